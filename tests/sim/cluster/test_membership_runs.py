"""Runs in which the voters change (theme `membership`)."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

from kraftlite.sim import membership_scenes, schedule
from kraftlite.sim.checkers.base import Checker, World
from kraftlite.sim.checkers.catalog import ALL
from kraftlite.sim.checkers.voter_sets import VoterSets
from kraftlite.sim.fault_plan import parse
from kraftlite.sim.quorum import INITIAL, STANDALONE, STATIC, Forming
from kraftlite.sim.run import Outcome, RunPlan, RunResult, run
from kraftlite.sim.shape import NAMED
from kraftlite.sim.themes import MEMBERSHIP

SHAPE = replace(NAMED["3+3"], controllers=4, forming=Forming(how=INITIAL, voters=(1, 2, 3)))
FAULTS = ("1500 add-voter 4", "3500 remove-voter controller", "6000 new-disk 4 for 300")


def watched_run(plan: RunPlan) -> tuple[RunResult, VoterSets]:
    worlds: list[World] = []

    def keep(world: World) -> Checker:
        worlds.append(world)
        return Checker(world)

    result = run(plan, (*ALL, keep))
    return result, worlds[0].notes["metadata facts"].voter_sets


def test_voters_are_added_removed_and_replaced_and_a_seed_has_one_trace() -> None:
    plan = RunPlan(seed=7, theme=MEMBERSHIP, shape=SHAPE, faults=tuple(map(parse, FAULTS)), duration_ms=8_000)
    result, sets = watched_run(plan)
    assert result.outcome is Outcome.OK, result.story
    keys = [keys for _, keys in sets.committed]
    assert len(keys) > 3
    assert any(len(after) > len(before) for before, after in itertools.pairwise(keys)), "one was added"
    assert any(len(after) < len(before) for before, after in itertools.pairwise(keys)), "one was removed"
    leaders = [text for _, text in result.injected if text.startswith(("remove-voter", "new-disk"))]
    assert leaders and leaders[0] != "remove-voter", "the leader was there to be removed"
    again = run(plan)
    assert (again.trace, again.steps) == (result.trace, result.steps)


def test_seeds_draw_every_kind_of_quorum() -> None:
    shapes = [RunPlan(seed=seed, theme=MEMBERSHIP).drawn()[0] for seed in range(30)]
    forming = [shape.forming for shape in shapes if shape.forming is not None]
    assert {it.how for it in forming} == {STANDALONE, INITIAL, STATIC} and any(it.joins for it in forming)
    assert all(4 <= sum("controller" in role for role in shape.roles) <= 7 for shape in shapes)


def test_scenes_are_faults_that_can_be_printed_and_read() -> None:
    rng, shape = random.Random(1), SHAPE
    for name in schedule.scene_names(MEMBERSHIP):
        faults = schedule.play(MEMBERSHIP, name, 3, shape, 15_000)
        assert faults and [parse(str(it)) for it in faults] == list(faults), name
        assert membership_scenes.ALL[name](rng, shape, 0), name


def test_a_broker_is_taken_out_and_comes_back_while_the_active_controller_goes() -> None:
    topics = tuple(replace(it, replication=2, partitions=1) for it in SHAPE.topics[:1])
    faults = ("1500 retire-broker 5", "1700 remove-voter 2", "1900 kill controller for 500")
    plan = RunPlan(
        seed=7, theme=MEMBERSHIP, shape=replace(SHAPE, topics=topics), faults=tuple(map(parse, faults)), duration_ms=9_000
    )
    result = run(plan)
    assert result.outcome is Outcome.OK, result.story
    done = [text for _, text in result.injected]
    stopped = done.index("retire-broker 5"), next(at for at, text in enumerate(done) if text.startswith("stop 5 "))
    back = next(at for at, text in enumerate(done) if text.startswith(("wipe 5 ", "kill 5 ")))
    assert stopped[0] < stopped[1] < back, "it is stopped when it has no replicas, and comes back when it is unregistered"
