"""Simulated producers that come to the greatest sequence: the next one is 0, and nobody minds."""

from __future__ import annotations

from kraftlite.log.batch import MAX_SEQUENCE
from kraftlite.sim import client, themes
from kraftlite.sim.history import Verdict
from kraftlite.sim.run import Outcome, RunPlan, run
from kraftlite.sim.shape import NAMED
from tests.sim.mutants.patching import Patch
from tests.sim.mutants.producers import of_years

PLAN = RunPlan(seed=3, shape=NAMED["1+3"], duration_ms=3_000, faults=())


def test_some_producers_begin_near_the_end_of_the_sequences() -> None:
    firsts = [client._first_sequence(themes.PLAIN, seed, 1) for seed in range(100)]
    assert 10 < sum(it > 0 for it in firsts) < 50
    assert not any(client._first_sequence(themes.SINK, seed, 1) for seed in range(100))
    assert all(it == 0 or MAX_SEQUENCE - 20 < it <= MAX_SEQUENCE for it in firsts)


def test_lg_17_sequences_begin_anew_behind_the_greatest() -> None:
    with Patch() as patch:
        of_years(patch)
        result = run(PLAN)
    assert result.outcome is Outcome.OK, result.story
    written = [it.sequence for it in result.history.produces if it.idempotent and it.verdict is Verdict.OK]
    assert min(written) == 0 and max(written) == MAX_SEQUENCE
