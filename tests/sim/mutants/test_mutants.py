"""A few mutants that are caught in seconds, so that the inner loop notices a checker that has stopped looking.

`make mutants` runs all of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import pytest

from kraftlite.log.producers import ProducerState
from kraftlite.raft.elections import Elections
from kraftlite.raft.leadership import Leadership
from kraftlite.raft.voters import VoterSet
from kraftlite.sim.fault_plan import parse
from kraftlite.sim.run import Outcome, RunPlan
from kraftlite.sim.shape import NAMED
from tests.sim.mutants import known, report, runner
from tests.sim.mutants.catalog import Mutant, mutants
from tests.sim.mutants.known import Known
from tests.sim.mutants.patching import Patch, PatchError
from tests.sim.mutants.runner import Attempt, Record, caught_by, hunt, matches, run_mutant, run_without

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
    first, second = (mutants()[name] for name in ("vote-not-persisted", "two-votes-in-one-epoch"))
    found = Record(mutant=first, next_seed=2)
    found.tried[0] = Attempt(mutant=first.name, seed=0, seconds=1.2)
    found.tried[1] = Attempt(mutant=first.name, seed=1, by=f"Some[{first.expects[0]}]", seconds=0.9)
    missed = Record(mutant=second, tried={0: Attempt(mutant=second.name, seed=0, seconds=3.0)})
    assert report.rows([found, missed]) == [
        (first.name, first.breaks, f"Some[{first.expects[0]}]", "1", "2"),
        (second.name, second.breaks, "**survived**", "", "3"),
    ]
    assert report.markdown([found, missed]).startswith("1 of 2 mutants are caught. The median of their first seeds is 1.")


class _Runs(Executor):
    """In the place of worker processes: knows which seeds catch which mutant, and which fail without any."""

    def __init__(self, catches: dict[str, set[int]], fail_anyway: set[int]) -> None:
        self.catches, self.fail_anyway = catches, fail_anyway
        self.tried: list[tuple[str, int]] = []
        self.plain: list[int] = []
        self.does: dict[Callable[..., Any], Callable[..., Any]] = {
            runner.attempt: self.attempt,
            runner.fails_without: self.fails_without,
        }

    def submit(self, work: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(self.does[work](*args, **named))
        return done

    def attempt(self, name: str, seed: int) -> Attempt:
        self.tried.append((name, seed))
        caught = seed in self.catches[name] or seed in self.fail_anyway
        return Attempt(mutant=name, seed=seed, by="Some[1]" if caught else "")

    def fails_without(self, name: str, seed: int) -> bool:
        self.plain.append(seed)
        return seed in self.fail_anyway


def test_the_known_seed_comes_first_and_is_enough() -> None:
    first, second, third = plain_mutants(3)
    runs = _Runs({first.name: {2, 7}, second.name: {3}, third.name: {9}}, fail_anyway=set())
    found = hunt([first, second, third], seeds=5, workers=1, known={first.name: 7, second.name: 1, third.name: 9}, pool=runs)
    assert [None if it.first is None else it.first.seed for it in found] == [7, 3, 9]
    assert runs.tried == [
        (first.name, 7), (second.name, 1), (second.name, 0), (second.name, 2), (second.name, 3), (third.name, 9),
    ]  # fmt: skip


def test_a_seed_that_fails_without_a_mutant_is_run_once_and_counts_for_none() -> None:
    first, second = plain_mutants(2)
    runs = _Runs({first.name: {0, 2}, second.name: {2}}, fail_anyway={0})
    done: list[str] = []
    found = hunt([first, second], seeds=4, workers=1, on_done=lambda it: done.append(it.mutant.name), pool=runs)
    assert [None if it.first is None else it.first.seed for it in found] == [2, 2]
    assert all(it.tried[0].fails_anyway for it in found)
    assert runs.plain == [0, 2]
    assert done == [first.name, second.name]


def test_a_mutant_that_no_seed_catches_has_survived() -> None:
    (only,) = plain_mutants(1)
    runs = _Runs({only.name: set()}, fail_anyway=set())
    (found,) = hunt([only], seeds=3, workers=2, known={only.name: 40}, pool=runs)
    assert found.first is None
    assert [seed for _, seed in runs.tried] == [40, 0, 1, 2]


def plain_mutants(count: int) -> list[Mutant]:
    """Mutants without a shape and a lens of their own, whose seeds are the same runs without them."""
    return [it for it in mutants().values() if it.shape is None and it.lens is None][:count]


def test_known_seeds_are_kept_and_a_survivor_keeps_its_own(tmp_path: Path) -> None:
    path = tmp_path / "known.toml"
    assert known.read(path) == {}
    first, second, third = (it.name for it in plain_mutants(3))
    caught = Record(mutant=mutants()[first], tried={4: Attempt(mutant=first, seed=4, by="Some[1]", seconds=2.4)})
    survived = Record(mutant=mutants()[second], tried={0: Attempt(mutant=second, seed=0, seconds=3.0)})
    before = {first: Known(9, "Other[2]", 1), second: Known(6, "Other[2]", 1), "gone": Known(1, "Other[2]", 1)}
    found = before | {it.mutant.name: known.of_record(it, before.get(it.mutant.name)) for it in (caught, survived)}
    known.write(found, [first, second, third], path)
    assert known.read(path) == {first: Known(4, "Some[1]", 2), second: Known(6, "", 3)}
    assert known.seeds(known.read(path)) == {first: 4, second: 6}


def test_the_table_is_made_of_what_is_known() -> None:
    first, second = plain_mutants(2)
    records = [known.record_of(first, Known(4, "Some[99]", 2)), known.record_of(second, Known(6, "", 30))]
    assert report.rows(records)[0][2:] == ("Some[99] *", "4", "2")
    assert report.rows(records)[1][2:] == ("**survived**", "", "30")
    assert report.summary(records) == "1 of 2 mutants are caught. The median of their first seeds is 4."


def test_known_seeds_are_of_mutants_that_there_are() -> None:
    assert set(known.read()) <= set(mutants())


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
