"""A few mutants that are caught in seconds, so that the inner loop notices a checker that has stopped looking.

`make mutants` runs all of them.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kraftlite.log.producers import ProducerState
from kraftlite.raft.elections import Elections
from kraftlite.raft.leadership import Leadership
from kraftlite.raft.voters import VoterSet
from kraftlite.sim.fault_plan import parse
from kraftlite.sim.run import Outcome, RunPlan
from kraftlite.sim.shape import NAMED
from tests.sim.mutants import report
from tests.sim.mutants.catalog import mutants
from tests.sim.mutants.patching import Patch, PatchError
from tests.sim.mutants.runner import Attempt, Record, caught_by, matches, run_mutant, run_without

PLAN = RunPlan(
    seed=1,
    shape=NAMED["3+3"],
    duration_ms=5_000,
    faults=(
        parse("500 kill leader orders-0 for 3500"),
        parse("1000 lossy 4 and 5 for 3000 amount 300000"),
        parse("1000 lossy 5 and 6 for 3000 amount 300000"),
        parse("1500 pause 6 for 2500"),
    ),
)
CAUGHT = (
    "observers-count",
    "answers-at-append",
    "unfenced-before-caught-up",
    "truncates-to-hw",
    "consumer-reads-to-leo",
    "resend-appended-again",
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


@pytest.mark.parametrize("name", list(mutants()))
def test_what_a_mutant_changes_is_there_and_is_put_back(name: str) -> None:
    mutant = mutants()[name]
    with Patch() as patch:
        if mutant.lens is not None:
            mutant.lens(patch)
        mutant.change(patch)
        changes = list(patch.changes)
        assert changes
        assert all(vars(owner)[attribute] is not original for owner, attribute, original in changes)
    assert all(vars(owner)[attribute] is original for owner, attribute, original in changes)


def test_a_target_that_was_renamed_or_changed_is_an_error() -> None:
    with Patch() as patch:
        with pytest.raises(PatchError, match="no become_dictator of its own"):
            patch.set(Elections, "become_dictator", None)
        with pytest.raises(PatchError, match=r"0 times, not once"):
            patch.edit(VoterSet, "majority", ("return everybody", "return nobody"))
        with pytest.raises(PatchError, match="has the parameters"):
            patch.set(ProducerState, "duplicate_of", lambda self: None)
        with pytest.raises(PatchError, match="has the parameters"):
            patch.around(Leadership, "update_hw", lambda original, self: None)
        assert not patch.changes


def test_the_table_tells_who_caught_what() -> None:
    first, second = list(mutants().values())[:2]
    found = Record(mutant=first, next_seed=2)
    found.tried[0] = Attempt(mutant=first.name, seed=0, seconds=1.2)
    found.tried[1] = Attempt(mutant=first.name, seed=1, by=f"Some[{first.expects[0]}]", seconds=0.9)
    missed = Record(mutant=second, tried={0: Attempt(mutant=second.name, seed=0, seconds=3.0)})
    assert report.rows([found, missed]) == [
        (first.name, first.breaks, f"Some[{first.expects[0]}]", "1", "2", "2"),
        (second.name, second.breaks, "**survived**", "", "1", "3"),
    ]
    assert report.markdown([found, missed]).startswith("1 of 2 mutants are caught.")


def test_the_table_goes_between_its_markers(tmp_path: Path) -> None:
    path = tmp_path / "MUTANTS.md"
    path.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    report.write(path, [Record(mutant=next(iter(mutants().values())))])
    text = path.read_text()
    assert "old" not in text
    assert re.match(r"before\n<!-- mutants: begin.*0 of 1 mutants.*<!-- mutants: end -->\nafter\n$", text, re.DOTALL)
    path.write_text("no markers")
    with pytest.raises(ValueError, match="has no lines"):
        report.write(path, [])
