"""Controllers that die while the first records of a cluster are written, and what their successors make of it."""

from __future__ import annotations

from kraftlite.model.tuning import Tuning
from kraftlite.runtime.trace import TraceEvent
from kraftlite.runtime.trace.controller import ControllerActivated
from kraftlite.sim import boot_faults, themes
from kraftlite.sim.checkers.facts import MetadataWatch
from kraftlite.sim.fault_plan import FaultPlan, parse
from kraftlite.sim.run import Outcome, RunPlan, run
from kraftlite.sim.shape import NAMED
from kraftlite.simhost.host import SimHost

AMID = 41_000_021
"""A seed whose first controller dies when a part of its first records is committed."""


def test_some_seeds_have_them_with_the_sizes_that_they_need() -> None:
    plain = NAMED["3+3"]
    with_them = [seed for seed in range(100) if boot_faults.draw(seed)]
    assert 10 < len(with_them) < 35
    for seed in range(100):
        tuning = boot_faults.vary(plain, seed).tuning
        assert (tuning.first_records_per_batch < Tuning().first_records_per_batch) == (seed in with_them)
    assert boot_faults.draw(with_them[0]) == boot_faults.draw(with_them[0])


def test_a_fault_is_read_again_as_it_is_printed() -> None:
    plan = FaultPlan(at_ms=0, kind="kill-amid-bootstrap", for_ms=50, amount=700)
    assert parse(str(plan)) == plan


def test_who_takes_over_amid_the_first_records_aborts_them_and_writes_them_again() -> None:
    said: list[str] = []

    def hear(_now_us: int, _node: SimHost, event: TraceEvent) -> None:
        if isinstance(event, ControllerActivated):
            said.append(event.reason)

    result = run(RunPlan(seed=AMID, duration_ms=500, theme=themes.TROUBLES), [MetadataWatch], sink=hear)
    assert result.outcome is Outcome.OK, result.story
    assert said[0] == "bootstrapped an empty log"
    assert "aborted the half-written bootstrap" in said[1]
