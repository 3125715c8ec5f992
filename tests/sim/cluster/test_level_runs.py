"""Runs in which feature levels are raised while brokers are away or run older software."""

from __future__ import annotations

import pytest

from kraftlite.runtime.trace import TraceEvent
from kraftlite.runtime.trace.broker import BrokerRegistrationRefused
from kraftlite.runtime.trace.metadata import MetadataVersionChanged
from kraftlite.sim import level_scenes, schedule
from kraftlite.sim.fault_plan import parse
from kraftlite.sim.run import Outcome, RunPlan, run
from kraftlite.sim.shape import NAMED
from kraftlite.sim.themes import MEMBERSHIP, PLAIN
from kraftlite.simhost.host import SimHost

SHAPE = NAMED[level_scenes.SHAPE]


def play(name: str, seed: int) -> tuple[RunPlan, list[TraceEvent]]:
    faults = schedule.play(PLAIN, name, seed, SHAPE, 12_000)
    assert [parse(str(it)) for it in faults] == list(faults)
    plan = RunPlan(seed=seed, shape=SHAPE, faults=faults, duration_ms=12_000)
    events: list[TraceEvent] = []

    def keep(_now_us: int, _node: SimHost, event: TraceEvent) -> None:
        events.append(event)

    result = run(plan, sink=keep)
    assert (result.outcome, result.story) == (Outcome.OK, "")
    return plan, events


@pytest.mark.parametrize("seed", [1, 3])
@pytest.mark.parametrize("name", level_scenes.ALL)
def test_levels_rise_in_each_scene_and_every_check_holds(name: str, seed: int) -> None:
    _, events = play(name, seed)
    raised = [it.new for it in events if isinstance(it, MetadataVersionChanged) and it.new is not None]
    assert max(raised) > 16


def test_fv_05_a_broker_with_older_software_is_refused_when_the_level_is_raised_first() -> None:
    """It is let in when its session is over at the earliest, and the level was raised before."""
    faults = ("1000 old-software 5 for 5500", "2000 raise-level amount 2")
    plan = RunPlan(seed=1, shape=SHAPE, faults=tuple(map(parse, faults)), duration_ms=12_000)
    refused: list[str] = []

    def keep(_now_us: int, node: SimHost, event: TraceEvent) -> None:
        if isinstance(event, BrokerRegistrationRefused) and node.node_id == 5:
            refused.append(event.reason)

    result = run(plan, sink=keep)
    assert (result.outcome, result.story) == (Outcome.OK, "")
    assert any("does not support finalized version 18 of metadata.version" in it for it in refused), refused


def test_scenes_of_levels_are_those_of_the_themes_in_which_levels_move() -> None:
    assert set(level_scenes.ALL) <= set(schedule.scene_names(PLAIN))
    assert not set(level_scenes.ALL) & set(schedule.scene_names(MEMBERSHIP))
    assert schedule.stage("old-broker-meets-an-upgrade") == SHAPE and schedule.stage("added-alone") is None
