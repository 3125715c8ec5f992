"""Swarms of a few short runs, in worker processes."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner, Result

from kraftlite.cli.main import cli
from kraftlite.sim import corpus


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
