"""Swarms of a few short runs, in worker processes, and what is measured of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kraftlite.cli.main import cli
from kraftlite.sim import corpus
from kraftlite.sim.code_reach import PACKAGES, measure
from kraftlite.sim.run import RunPlan, run
from kraftlite.sim.shape import NAMED


def swarm(*options: str) -> Result:
    return CliRunner().invoke(cli, ["swarm", "--duration", "0.5", "--workers", "1", "-o", "json", *options])


def test_a_guided_swarm_keeps_what_reached_something_new_and_tries_it_first(tmp_path: Path) -> None:
    first = swarm("--seeds", "3", "--guided", "--corpus", str(tmp_path))
    assert first.exit_code == 0, first.output
    assert json.loads(first.stdout)["origins"]["changed"]["runs"] == 1
    kept = corpus.load(tmp_path)
    assert kept and {it.seed for it in kept} >= {1}
    second = swarm("--seeds", "2", "--guided", "--corpus", str(tmp_path), "--from", "50")
    found = json.loads(second.stdout)
    assert found["origins"]["corpus"]["runs"] == 1
    assert found["curve"][-1]["runs"] == 2


def test_a_swarm_reports_the_answers_of_its_runs() -> None:
    found = json.loads(swarm("--seeds", "2").stdout)
    assert found["seeds"] == 2 and found["answers"]["Metadata NONE"] > 0
    assert "log.cleaned" in found["never"]["events"] and "raft.leader_elected" not in found["never"]["events"]


MEASURED = """
import sys
from kraftlite.sim.code_reach import Tracer, measure
from kraftlite.sim.run import RunPlan, run
from kraftlite.sim.shape import NAMED
tracer = Tracer()
tracer.start()
result = run(RunPlan(seed=1, shape=NAMED["1+1"], faults=(), duration_ms=1000))
arcs = tracer.news()
assert tracer.news() == {}
tracer.stop()
reached = {it.name: it for it in measure(arcs)}
names = "log.log:Log.hw", "raft.context:RaftContext.become_unattached"
print(result.trace, *(reached[name].reached for name in names))
print(sum(it.reached for it in reached.values()), sum(len(it.missing) for it in reached.values()) > 100)
"""


def test_the_code_of_a_run_is_measured_and_the_run_is_the_same() -> None:
    """In a process of its own, since a tracer sees everything."""
    pytest.importorskip("coverage")
    found = subprocess.run([sys.executable, "-c", MEASURED], capture_output=True, text=True, timeout=300, check=False)
    assert found.returncode == 0, found.stderr
    trace, read, voted, count, some_missing = found.stdout.split()
    assert trace == run(RunPlan(seed=1, shape=NAMED["1+1"], faults=(), duration_ms=1000)).trace
    assert (read, voted, some_missing) == ("True", "False", "True")
    assert 300 < int(count) < 2000


def test_modules_that_were_never_run_count_as_well() -> None:
    pytest.importorskip("coverage")
    found = measure({})
    assert {it.package for it in found} == set(PACKAGES) and not any(it.reached for it in found)
    assert sum(it.package == "coordinator" for it in found) > 300
