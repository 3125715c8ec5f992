"""Whole runs: they pass, they repeat, past failures stay away, and what is planted is found and told apart."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import pytest

from kraftlite.runtime.trace import TraceEvent
from kraftlite.sim.checkers.base import Checker, LivenessViolation
from kraftlite.sim.fault_plan import parse
from kraftlite.sim.regressions import Regression, load
from kraftlite.sim.run import Outcome, RunPlan, run
from kraftlite.sim.shape import NAMED
from kraftlite.sim.shrink import shrink
from kraftlite.simhost.host import SimHost

REGRESSIONS = Path(__file__).parents[1] / "regressions.toml"
SHORT_MS = 4_000


@pytest.mark.parametrize("seed", range(900, 906))
def test_every_check_holds(seed: int) -> None:
    result = run(RunPlan(seed=seed, duration_ms=SHORT_MS))
    assert result.outcome is Outcome.OK, f"{result.checker}: {result.story}\nkraftlite sim --seed {seed} --duration 4"
    assert result.acked > 0
    assert result.consumed > 0


@pytest.mark.parametrize("regression", load(REGRESSIONS), ids=lambda it: f"{it.plan.seed}")
def test_past_failures_stay_away(regression: Regression) -> None:
    result = run(regression.plan)
    assert result.outcome is Outcome.OK, f"again: {regression.story}\n{result.checker}: {result.story}"


def test_a_seed_repeats_event_for_event_in_other_processes_with_other_hash_seeds() -> None:
    code = (
        "import sys\nfrom kraftlite.sim.run import RunPlan, run\n"
        f"print(*(run(RunPlan(seed=s, duration_ms={SHORT_MS})).trace for s in (31, 32)))"
    )
    here = [run(RunPlan(seed=seed, duration_ms=SHORT_MS)).trace for seed in (31, 32)]
    assert here[0] != here[1]
    for hash_seed in ("0", "4242"):
        found = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        assert found.stdout.split() == here, f"PYTHONHASHSEED={hash_seed} {found.stderr}"


def test_a_named_shape_without_faults_has_no_failover() -> None:
    seen: list[str] = []
    result = run(
        RunPlan(seed=1, shape=NAMED["3+3"], faults=(), duration_ms=SHORT_MS),
        sink=lambda _now, _node, event: seen.append(event.event),
    )
    assert result.outcome is Outcome.OK
    assert seen.count("raft.leader_elected") == 1
    assert "controller.broker_session_expired" not in seen


class _Planted(Checker):
    """Objects as soon as a broker was fenced."""

    def on_event(self, now_us: int, node: SimHost, event: TraceEvent) -> None:
        if event.event == "controller.broker_session_expired":
            self.fail("a session expired")


class _Deaths(Checker):
    """Keeps what it is told of the end of nodes, and looks for words from the grave."""

    told: ClassVar[list[str]] = []

    def on_death(self, node: SimHost, how: str) -> None:
        self.told.append(f"{node.node_id} {how}")

    def on_event(self, now_us: int, node: SimHost, event: TraceEvent) -> None:
        if self.told and self.told[-1].startswith(f"{node.node_id} ") and event.event == "node.stopped":
            self.fail("a node that was killed says that it has stopped")


def test_a_node_that_is_killed_while_it_stops_has_not_stopped() -> None:
    _Deaths.told.clear()
    faults = (parse("1000 stop 2 for 900"), parse("1001 kill 2 for 900"))
    result = run(RunPlan(seed=1, shape=NAMED["1+3"], faults=faults, duration_ms=SHORT_MS), [_Deaths])
    assert result.outcome is Outcome.OK, result.story
    assert _Deaths.told == ["2 killed"]


class _Hopeless(Checker):
    def at_end(self) -> None:
        raise LivenessViolation(self.name, "never")


class _Broken(Checker):
    def on_boot(self, node: SimHost) -> None:
        raise ZeroDivisionError("a bug of the checker")


def test_outcomes_are_told_apart() -> None:
    kill = (parse("100 kill 4 for 4000"), parse("200 lossy 1 and 2 for 300 amount 20000"))
    plan = RunPlan(seed=1, shape=NAMED["3+3"], faults=kill, duration_ms=5_000)
    assert run(plan, []).outcome is Outcome.OK
    safety = run(plan, [_Planted])
    assert (safety.outcome, safety.checker, safety.story) == (Outcome.SAFETY, "_Planted", "a session expired")
    assert run(plan, [_Hopeless]).outcome is Outcome.LIVENESS
    broken = run(plan, [_Broken])
    assert broken.outcome is Outcome.CRASH
    assert "a bug of the checker" in broken.story


def _no_clock() -> float:
    raise AssertionError("how fast the machine is must not decide what is left out")


def test_a_failure_is_shrunk_to_the_fault_that_it_needs() -> None:
    faults = tuple(
        parse(line)
        for line in (
            "50 wall-jump 1 amount 5000",
            "100 kill 4 for 4500",
            "200 lossy 1 and 2 for 300 amount 20000",
            "900 reset 5 and 6",
            "1000 disk-slow 2 for 500 amount 10000",
        )
    )
    failed = run(RunPlan(seed=1, shape=NAMED["3+3"], faults=faults, duration_ms=6_000), [_Planted])
    assert failed.outcome is Outcome.SAFETY
    shrunk = shrink(failed, budget_s=None, max_runs=40, runner=lambda plan: run(plan, [_Planted]), clock=_no_clock)
    assert [it.kind for it in shrunk.result.faults] == ["kill"]
    assert shrunk.plan.duration_ms <= 6_000
    again = run(shrunk.plan, [_Planted])
    assert (again.outcome, again.trace) == (Outcome.SAFETY, shrunk.result.trace)
