"""A few mutants that are caught in seconds, so that the inner loop notices a checker that has stopped looking. `make mutants` runs all."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kraftlite.log.producers import ProducerState
from kraftlite.raft.core import RaftCore
from kraftlite.raft.leadership import Leadership
from kraftlite.sim.run import Outcome, RunPlan
from kraftlite.sim.shape import NAMED
from tests.sim.mutants.catalog import mutants
from tests.sim.mutants.patching import Patch, PatchError
from tests.sim.mutants.runner import Record, Attempt, caught_by, matches, run_mutant, run_without

PLAN = RunPlan(seed=1, shape=NAMED["3+3"], duration_ms=5_000)
CAUGHT = (
    "observers-count",
    "answers-at-append",
    "answers-at-earlier-commit",
    "acks-all-at-append",
    "consumer-reads-to-leo",
    "hw-passes-pending-expansion",
)


def test_the_run_that_the_mutants_are_put_into_passes() -> None:
    result = run_without(mutants()[CAUGHT[0]], PLAN)
    assert result.outcome is Outcome.OK, result.story


@pytest.mark.parametrize("name", CAUGHT)
def test_a_mutant_is_caught(name: str) -> None:
    mutant = mutants()[name]
    result = run_mutant(mutant, PLAN)
    by = caught_by(result)
    assert any(matches(by, expected) for expected in mutant.expects), f"{by or 'nobody'}: {result.story}"
