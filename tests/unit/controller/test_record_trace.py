"""What the trace tells of the records of one operation."""

from __future__ import annotations

from typing import Any

from kraftlite.controller.record_trace import TRACED_RECORDS
from tests.harness.controller_world import World


def appended(world: World, since: int) -> list[Any]:
    return [event for event in world.active.tracer.events[since:] if event.event == "controller.record_appended"]


def test_a_change_says_what_was_and_what_is_and_why() -> None:
    world = World()
    world.start_brokers(1, 2)
    world.create("t", assignments=[[1, 2]])
    since = len(world.active.tracer.events)
    world.fence(1)
    change, fence = appended(world, since)
    assert str(change.tp) == "t-0" and (change.old_leader, change.leader) == (1, 2)
    assert (change.old_leader_epoch, change.leader_epoch, change.partition_epoch) == (0, 1, 1)
    assert (change.old_isr, change.isr) == ((1, 2), (2,))
    assert change.offset == change.first_offset == fence.first_offset == fence.offset - 1
    assert change.cause == fence.cause == "operation:broker_heartbeat broker=1 old=unfenced new=fenced"


def test_a_session_that_expired_says_how_long_the_broker_was_silent() -> None:
    world = World()
    world.start_brokers(1)
    since = len(world.active.tracer.events)
    world.advance(20_000)
    (fence,) = appended(world, since)
    expired = next(e for e in world.active.tracer.events if e.event == "controller.broker_session_expired")
    assert expired.silent_ms > 9_000
    assert fence.cause == f"operation:maybe_fence_stale_broker broker=1 silent_ms={expired.silent_ms}"


def test_of_many_records_the_first_ones_and_the_last_one_are_told() -> None:
    world = World()
    world.start_brokers(1, 2)
    world.create("t", assignments=[[1, 2]] * 100)
    since = len(world.active.tracer.events)
    world.fence(1)
    told = appended(world, since)
    assert len(told) == TRACED_RECORDS + 1
    assert told[-1].record == "BrokerRegistrationChange", "the fencing is written last, and is what all of it is about"
    (many,) = [event for event in world.active.tracer.events[since:] if event.event == "controller.records_appended"]
    assert (many.count, many.last_offset, many.cause) == (101, told[-1].offset, told[-1].cause)
