"""Plans of runs are data: they are printed and read again, refused in words, changed, and kept."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kraftlite.sim import corpus
from kraftlite.sim.corpus import Discovery, GuidedPlans, Plans
from kraftlite.sim.coverage import Coverage
from kraftlite.sim.fault_plan import parse
from kraftlite.sim.plans import CHANGES, Change, mutated, parse_plan, text_of
from kraftlite.sim.regressions import append, load
from kraftlite.sim.run import Outcome, RunPlan
from kraftlite.sim.shape import NAMED, Shape
from kraftlite.sim.swarm import Summary

FAULTS = (parse("100 kill 2 for 50"), parse("700 cut 1 and controller for 5"))
PLANS = [
    RunPlan(seed=0),
    RunPlan(seed=7, duration_ms=2000),
    RunPlan(seed=7, shape=NAMED["3c"], faults=FAULTS),
    RunPlan(seed=7, knobs={"log.roll.ms": "200"}, faults=()),
    RunPlan(seed=7, shape_seed=1, knobs_seed=2, faults_seed=3, knobs={}),
]


@pytest.mark.parametrize("plan", PLANS, ids=text_of)
def test_a_plan_is_read_as_it_is_printed(plan: RunPlan) -> None:
    text = text_of(plan)
    assert parse_plan(text) == plan
    assert "\n" not in text and "'" not in text


def test_a_shape_without_a_name_cannot_be_printed() -> None:
    with pytest.raises(ValueError, match="has no name"):
        text_of(RunPlan(seed=1, shape=Shape(controllers=1, brokers=9)))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("7", "not an object"),
        ("{", "is no plan of a run"),
        ("[" * 100_000, "is no plan of a run"),
        ("{}", "seed is missing"),
        ('{"seed": -1}', "seed -1: allowed is a whole number from 0"),
        ('{"seed": true}', "seed True"),
        ('{"seed": 1, "knobs_seed": "2"}', "knobs_seed '2'"),
        ('{"seed": 1, "duration_ms": 5}', "duration_ms 5: allowed is a whole number from 100 to 3600000"),
        ('{"seed": 1, "sheep": 5}', "unknown sheep: known are seed, theme, duration_ms"),
        ('{"seed": 1, "shape": "9+9"}', "shape '9\\+9': allowed is one of 3\\+3"),
        ('{"seed": 1, "knobs": {"a": 1}}', "allowed are keys of the configuration with texts"),
        ('{"seed": 1, "knobs": {"a": "1"}}', "'a' is no key of the configuration"),
        ('{"seed": 1, "knobs": {"log.roll.ms": "0"}}', "log.roll.ms=0: allowed is a value of at least 1"),
        ('{"seed": 1, "faults": ["1 explode 1"]}', "unknown fault 'explode'"),
        ('{"seed": 1, "faults": "1 kill 1"}', "faults '1 kill 1': allowed are lines"),
        (" " * 2_000_000, "characters; allowed are at most"),
    ],
)
def test_what_is_no_plan_is_refused_in_words(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        parse_plan(text)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("change", CHANGES, ids=lambda it: it.__name__)
def test_a_changed_plan_is_another_plan_that_can_be_printed_and_drawn(change: Change) -> None:
    plan, other = RunPlan(seed=5), RunPlan(seed=9, knobs={"log.roll.ms": "200"})
    found = [change(random.Random(number), plan, other) for number in range(8)]
    assert plan not in found
    for it in found:
        assert parse_plan(text_of(it)) == it
        shape, faults = it.drawn()
        assert shape.topics and all(fault.at_ms < plan.duration_ms for fault in faults)
    if change.__name__ in ("_other_workload", "_workload_of_another"):
        assert all(it.drawn() == plan.drawn() and it.seed != plan.seed for it in found)


def test_changes_of_changes_can_be_drawn() -> None:
    rng, plan = random.Random(1), RunPlan(seed=5)
    for number in range(60):
        plan = mutated(rng, plan, RunPlan(seed=number))
        plan.drawn()
    assert parse_plan(text_of(plan)) == plan


# --- the corpus


def test_a_corpus_is_kept_and_tried_first(tmp_path: Path) -> None:
    directory = tmp_path / "some" / "corpus"
    assert corpus.load(directory) == []
    corpus.save(directory, map(text_of, PLANS))
    assert corpus.load(directory) == PLANS
    guide = GuidedPlans(range(100, 200), 1000, runs=20, corpus=corpus.load(directory), rng=random.Random(1))
    taken = list(_taken(guide))
    assert [plan for _, plan in taken[:5]] == PLANS and {origin for origin, _ in taken[:5]} == {"corpus"}
    assert [plan.seed for origin, plan in taken[5:]] == [*range(100, 115)], "nothing new was learned: plain seeds"


def test_a_line_that_is_no_plan_is_named(tmp_path: Path) -> None:
    (tmp_path / corpus.FILE).write_text('{"seed": 1}\nnonsense\n')
    with pytest.raises(ValueError, match=r"plans.jsonl:2: 'nonsense' is no plan of a run: .*; delete the file to begin anew"):
        corpus.load(tmp_path)


def test_what_reached_something_new_is_changed_and_kept_the_best_first() -> None:
    guide = GuidedPlans(range(100, 200), 1000, runs=9, corpus=[RunPlan(seed=1), RunPlan(seed=2), *PLANS], rng=random.Random(1))
    origins = []
    while (found := guide.next()) is not None:
        origin, plan = found
        origins.append(origin)
        guide.learn(plan, {1: 3, 2: 9}.get(plan.seed, 0) if origin == "corpus" else 0)
    assert origins == ["corpus"] * 4 + ["changed", "seed", "changed", "seed", "changed"]
    assert guide.keeps()[:2] == [text_of(RunPlan(seed=2)), text_of(RunPlan(seed=1))]
    assert set(map(text_of, PLANS[2:])) <= set(guide.keeps()), "there was no time to try these"


def test_a_corpus_has_a_bound() -> None:
    guide = GuidedPlans(range(10_000), 1000, runs=10_000, corpus=[], rng=random.Random(1))
    for number in range(corpus.MAX_PLANS + 50):
        guide.learn(RunPlan(seed=number), number + 1)
    kept = guide.keeps()
    assert len(kept) == corpus.MAX_PLANS
    assert kept[0] == text_of(RunPlan(seed=corpus.MAX_PLANS + 49))


def test_plain_plans_are_the_seeds() -> None:
    assert [plan for _, plan in _taken(Plans(range(3, 6), 1000))] == [RunPlan(seed=it, duration_ms=1000) for it in (3, 4, 5)]


def _taken(plans: Plans) -> Iterator[tuple[corpus.Origin, RunPlan]]:
    while (found := plans.next()) is not None:
        yield found


def test_the_directory_is_in_the_users_cache() -> None:
    assert corpus.default_dir({"XDG_CACHE_HOME": "/x"}) == Path("/x/kraftlite/corpus")
    assert corpus.default_dir({"XDG_CACHE_HOME": "relative"}) == Path.home() / ".cache/kraftlite/corpus"


def test_a_curve_has_what_was_known_at_powers_of_two_and_now() -> None:
    found = Discovery()
    assert found.add("seed", [("events", ("leader", "a")), ("raft", ("leader", "follower"))], 5) == 7
    for _ in range(5):
        assert found.add("changed", [("events", ("leader", "a"))], 0) == 0
    assert found.add("changed", [("answers", ("Fetch", "NONE"))], 1) == 2
    assert [(it.runs, it.pairs, it.features, it.arcs) for it in found.points] == [
        (1, 2, 2, 5),
        (2, 2, 2, 5),
        (4, 2, 2, 5),
        (7, 2, 3, 6),
    ]
    assert dict(found.found) == {"seed": 7, "changed": 2}


# --- failures


def summary(plan: RunPlan, **more: object) -> Summary:
    facts = {"outcome": Outcome.SAFETY, "checker": "X", "story": "it's broken", "trace": "", "shape": "", "elapsed_s": 0.0}
    facts |= {"virtual_ms": 0, "steps": 0, "counts": {}, "coverage": Coverage()}
    return Summary(plan=plan, **{**facts, **more})  # type: ignore[arg-type]


def test_a_failure_is_told_as_the_command_that_repeats_it() -> None:
    assert summary(RunPlan(seed=3)).reproduce == "kraftlite sim --seed 3"
    assert summary(RunPlan(seed=3, duration_ms=4500)).reproduce == "kraftlite sim --seed 3 --duration 4.5"
    shrunk = summary(RunPlan(seed=3), shrink_runs=4, duration_ms=7000, faults=("100 kill 2 for 50",))
    assert shrunk.reproduce == "kraftlite sim --seed 3 --duration 7 --fault '100 kill 2 for 50'"
    assert summary(RunPlan(seed=3), shrink_runs=4, duration_ms=15_000).reproduce == "kraftlite sim --seed 3 --no-faults"
    changed = RunPlan(seed=3, knobs_seed=9)
    assert summary(changed).reproduce == """kraftlite sim --plan '{"seed": 3, "knobs_seed": 9}'"""


def test_a_failure_becomes_a_regression_that_is_the_same_run(tmp_path: Path) -> None:
    path = tmp_path / "regressions.toml"
    plan = RunPlan(seed=3, knobs_seed=9)
    append(path, [summary(plan, shrink_runs=1, duration_ms=7000, faults=tuple(map(str, FAULTS))), summary(RunPlan(seed=4))])
    first, second = load(path)
    assert first.plan == replace(plan, faults=FAULTS, duration_ms=7000)
    assert second.plan == RunPlan(seed=4)
    assert first.story == "SAFETY X: it's broken"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"seed": 1, "shape": []}', "shape []: allowed is one of 3+3"),
        ('{"seed": 1, "theme": {}}', "theme {}: allowed is one of plain"),
        (
            '{"seed": 1, "faults": ["100 wall-jump 2 amount 99999999999999"]}',
            "amount 99999999999999: allowed is a whole number from -",
        ),
        ('{"seed": 1, "faults": ["100 kill 2 for 99999999999999"]}', "for 99999999999999: allowed is a whole number from 0 to"),
        ('{"seed": 1, "faults": ["99999999999999 kill 2"]}', "time 99999999999999: allowed is a whole number from 0 to"),
        ('{"seed": 1, "faults": ["100 rot 2 for -5"]}', "for -5: allowed is a whole number from 0 to"),
    ],
)
def test_a_plan_that_no_run_can_have_is_refused_in_words(text: str, told: str) -> None:
    with pytest.raises(ValueError, match="is no plan of a run") as refused:
        parse_plan(text)
    assert told in str(refused.value)
