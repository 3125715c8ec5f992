"""What a controller measures of itself: its events, how far it is behind, whom it hears of."""

from __future__ import annotations

import itertools
from typing import Any

from kraftlite.controller.events import Internal
from kraftlite.controller.performance import EventPerformance
from kraftlite.controller.results import ControllerResult
from kraftlite.metadata.records import NoOpRecord
from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.runtime.durations import RECENT, DurationSummary
from kraftlite.runtime.trace.controller import ControllerPerformance, SlowEvent
from tests.harness.controller_world import World


def told(world: World, kind: type[Any]) -> list[Any]:
    return [event for event in world.active.tracer.events if isinstance(event, kind)]


def test_ce_33_a_sentence_for_each_period() -> None:
    found = EventPerformance(period_ms=60_000, slow_ms=2_000)
    assert found.report().message == "In the last 60000 ms period, there were no controller events completed."
    assert [found.observe(name, took_us) for name, took_us in (("a", 1_000), ("b", 5_004), ("c", 5_004))] == [None, None, None]
    assert found.report() == ControllerPerformance(
        message="In the last 60000 ms period, 3 controller events were completed, which took an average of 3.67 ms each. "
        "The slowest event was b, which took 5.00 ms.",
        events=3,
        average_us=3_669,
        slowest="b",
        slowest_us=5_004,
    )
    assert found.report().events == 0, "the next period begins anew"


def test_ce_33_an_event_that_is_far_too_slow_is_told_of_at_once() -> None:
    found = EventPerformance(slow_ms=2_000)
    assert found.observe("fine", 1_999_999) is None
    slow = found.observe("create_topics", 2_000_000)
    assert slow == SlowEvent(
        operation="create_topics", took_ms=2_000, message="Exceptionally slow controller event create_topics took 2000 ms."
    )


def test_ce_33_the_active_controller_tells_once_a_period_and_a_standby_does_not() -> None:
    world = World(2, performance_period_ms=500, slow_event_ms=0)
    world.start_brokers(1)
    world.advance(1_600)
    assert [event.events > 0 for event in told(world, ControllerPerformance)] == [True] * 3
    assert "In the last 500 ms period, " in told(world, ControllerPerformance)[0].message
    assert {event.operation for event in told(world, SlowEvent)} >= {"activate", "register_broker", "handle_commit"}
    standby = world.nodes[101].tracer.events
    assert not [event for event in standby if isinstance(event, ControllerPerformance)]


def test_tm_12_quantiles_are_of_the_latest_durations() -> None:
    found = DurationSummary()
    assert found.quantiles([0.5]) == []
    for took_us in range(1, 2 * RECENT + 1):
        found.note(took_us)
    assert len(found.recent) == RECENT and found.count == 2 * RECENT and found.max_us == 2 * RECENT
    assert found.quantiles([0.0, 0.5, 1.0]) == [RECENT + 1, RECENT + RECENT // 2 + 1, 2 * RECENT]


def test_tm_12_events_are_measured_by_name_and_deferred_ones_by_their_delay() -> None:
    world = World()
    world.start_brokers(1)
    core = world.active.core
    ticks = itertools.count(step=250)
    core.metrics.clock_us = lambda: next(ticks)
    core.metrics.events.clear()
    started, delays = core.metrics.operations_started_count, core.metrics.deferred_delay.count
    core.read("look", lambda _now: None, lambda *_: None, world.now_ms - 3)
    core.read("look", lambda _now: None, lambda *_: None, world.now_ms - 3, deadline_ms=world.now_ms - 1)
    core.queue.schedule_deferred("t", Internal("later", lambda _now: None), world.now_ms - 7, world.now_ms - 20)
    core.step(world.now_ms)
    times = core.metrics.events
    assert (times["look"].worked.count, times["look"].waited.count, times["later"].waited.max_us) == (1, 1, 7_250)
    assert core.metrics.deferred_delay.count == delays + 1
    assert (core.metrics.operations_started_count, core.metrics.operations_timed_out_count) == (started + 2, 1)


def test_tm_12_how_far_the_last_record_lies_back() -> None:
    world = World(2)
    active, standby = world.active.core.metrics, world.nodes[101].core.metrics
    assert World(elect=False, bootstrap=None).nodes[100].core.metrics.last_applied_record_lag_ms is None
    active.wall_ms = lambda: 5_000
    world.submit("write", lambda _now: ControllerResult(records=[NoOpRecord()], response=None))
    active.wall_ms = lambda: 5_750
    assert active.last_applied_record_lag_ms == 750, "the active controller counts from when it made the record"
    applied_ms = standby.last_applied_record_timestamp_ms
    standby.wall_ms = lambda: applied_ms + 90
    assert standby.last_applied_record_lag_ms == 90, "a standby from when the record was appended"
    assert standby.last_applied_record_offset == active.last_applied_record_offset


def test_tm_12_how_long_the_active_controller_has_not_heard_of_each_broker() -> None:
    world = World(2)
    world.start_brokers(1, 2)
    metrics = world.active.core.metrics
    metrics.clock_us = lambda: world.now_ms * 1000
    world.heartbeat(1)
    world.heartbeat(2)
    world.now_ms += 400
    world.state.cluster.live.tracker.touch(NodeId(2), world.epochs[2], world.now_ms)
    assert metrics.silences_ms() == [("1", 400), ("2", 0)]
    world.now_ms += 60_000
    assert dict(metrics.silences_ms())["1"] == 9_000, "a session at most"
    assert world.nodes[101].core.metrics.silences_ms() == []


def test_tm_12_the_share_of_time_without_events() -> None:
    world = World()
    metrics = world.active.core.metrics
    now = [0]
    metrics.clock_us = lambda: now[0]
    assert metrics.idle_ratio() == 1.0
    metrics.note_event("x", 0, None, 250, expired=False)
    now[0] = 1_000
    assert metrics.idle_ratio() == 0.75
    now[0] = 2_000
    assert metrics.idle_ratio() == 1.0


def test_tm_12_what_broke_is_counted_and_so_are_brokers_that_leave() -> None:
    world = World()
    world.start_brokers(1, 2)
    metrics = world.active.core.metrics

    def broken(_now: int) -> ControllerResult[None]:
        raise KeyError("a bug")

    assert world.submit("broken", broken).code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert metrics.metadata_error_count == 1
    world.create("t", assignments=[[1, 2]])
    world.heartbeat(1, want_shut_down=True)
    assert metrics.controlled_shutdown_broker_count == 1
