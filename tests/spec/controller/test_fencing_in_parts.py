"""A broker with many partitions is fenced part by part: others carry out the first part while the next is computed."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlite.metadata.records import BrokerRegistrationChangeRecord, MetadataRecord, PartitionChangeRecord
from kraftlite.model.ids import UNCHANGED
from kraftlite.model.limits import LEADERS_FIRST_MS
from kraftlite.model.tuning import Tuning
from tests.harness.controller_world import World

SESSION_MS = 9_000
FAILS = 1


def cluster(changes_per_part: int, partitions: int = 7, **tuning: int) -> World:
    world = World(2, tuning=Tuning(elements_per_turn=3, **tuning))
    for node in world.nodes.values():
        node.core.state.brokers.changes_per_part = changes_per_part
    world.start_brokers(1, 2, 3)
    leads_some = [(2, 1, 3), (1, 2, 3), (3, 2, 1)]
    world.create("t", assignments=[leads_some[index % 3] for index in range(partitions)])
    return world


def falls_silent(world: World) -> list[tuple[MetadataRecord, ...]]:
    """The batches that are written when broker 1 is not heard of any more."""
    world.settle()
    before = len(world.quorum.batches)
    until_ms = world.now_ms + SESSION_MS + 2_000
    while world.now_ms < until_ms:
        world.advance(500)
        for alive in (2, 3):
            world.heartbeat(alive)
    world.settle()
    return [tuple(batch.records) for batch in world.quorum.batches[before:] if batch.records]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8])
def test_cm_10_what_it_led_is_written_before_the_rest_is_computed(size: int) -> None:
    world = cluster(size)
    batches = falls_silent(world)
    assert [len(records) for records in batches[:-1]] == [size] * (len(batches) - 1)
    records = [record for batch in batches for record in batch]
    *changes, last = records
    assert isinstance(last, BrokerRegistrationChangeRecord) and last.fenced, "the fencing comes last"
    leaders = [isinstance(it, PartitionChangeRecord) and it.leader is not UNCHANGED for it in changes]
    assert leaders == [True] * 2 + [False] * 5, "what it led comes first"
    assert all(FAILS not in world.partition("t", index).isr for index in range(7))
    world.check()
    whole = cluster(1_000)
    falls_silent(whole)
    for index in range(7):
        assert world.partition("t", index) == whole.partition("t", index)


def test_the_first_part_has_left_before_the_second_is_computed() -> None:
    world = cluster(2)
    node, elections = world.active, world.state.elections
    change = elections._change
    scheduled: list[int] = []

    def computing(*args: Any) -> Any:
        scheduled.append(node.raft.calls.count("schedule_prepared_append"))
        return change(*args)

    elections._change = computing
    node.raft.calls.clear()
    falls_silent(world)
    elections._change = change
    first = scheduled[0]
    assert [count - first for count in scheduled] == [0, 0, 1, 1, 2, 2, 3]


@pytest.mark.parametrize("turns", range(1, 12))
def test_a_controller_that_loses_its_leadership_between_two_parts_leaves_the_rest_to_the_next(turns: int) -> None:
    world = cluster(2)
    world.settle()
    world.now_ms += SESSION_MS - 100
    for alive in (2, 3):
        world.heartbeat(alive)
    world.now_ms += 1_200
    core = world.nodes[100].core
    for _ in range(turns):
        core.step(world.now_ms)
    world.quorum.elect(101)
    world.settle()
    assert world.nodes[100].core.state_hash() == world.nodes[101].core.state_hash()
    world.check()
    falls_silent(world)
    assert all(FAILS not in world.partition("t", index).isr for index in range(7))
    assert world.state.cluster.brokers[FAILS].fenced
    world.check()


def test_ce_27_a_session_that_is_over_is_seen_at_once_and_not_in_the_next_period() -> None:
    world = cluster(1_000)
    for broker in (1, 2, 3):
        world.heartbeat(broker)
    heard_ms = world.now_ms
    deadlines = []
    while not world.state.cluster.brokers[FAILS].fenced:
        due_ms = world.active.core.next_deadline_ms()
        assert due_ms is not None
        deadlines.append(due_ms)
        world.now_ms = due_ms
        for alive in (2, 3):
            world.heartbeat(alive)
        world.settle()
    assert world.now_ms - heard_ms == SESSION_MS + 1
    assert len(deadlines) < 30, "no busy waiting before"


def leaders_first(least: int = 1) -> World:
    world = cluster(2, leaders_first=least)
    for broker in (1, 2, 3):
        world.heartbeat(broker)
    world.now_ms += SESSION_MS - 100
    for alive in (2, 3):
        world.heartbeat(alive)
    return world


def in_isr(world: World) -> list[int]:
    return [index for index in range(7) if FAILS in world.partition("t", index).isr]


def led(world: World) -> list[int]:
    return [index for index in range(7) if world.partition("t", index).leader == FAILS]


def test_cm_10_what_it_led_is_led_elsewhere_before_it_leaves_other_isrs() -> None:
    world = leaders_first()
    assert (in_isr(world), led(world)) == (list(range(7)), [1, 4])
    before = world.active.core.last_written_offset
    world.advance(200)
    assert (in_isr(world), led(world)) == ([0, 2, 3, 5, 6], [])
    assert not world.state.cluster.brokers[FAILS].fenced
    world.check()
    world.heartbeat(2)
    world.heartbeat(3, offset=before)
    world.advance(500)
    assert in_isr(world) == [0, 2, 3, 5, 6], "one of two has not carried it out"
    world.heartbeat(3)
    world.advance(20)
    assert in_isr(world) == []
    assert world.state.cluster.brokers[FAILS].fenced
    assert not world.state.cluster.live.leaving
    world.check()


def test_it_is_fenced_after_two_seconds_whatever_others_have_carried_out() -> None:
    world = leaders_first()
    world.advance(200)
    world.advance(LEADERS_FIRST_MS - 100)
    assert in_isr(world)
    world.advance(200)
    assert not in_isr(world)
    assert world.state.cluster.brokers[FAILS].fenced


def test_a_broker_that_led_less_is_fenced_at_once() -> None:
    world = leaders_first(3)
    world.advance(200)
    assert not in_isr(world)
    assert world.state.cluster.brokers[FAILS].fenced


def test_nothing_is_led_by_a_broker_whose_session_is_over() -> None:
    """Where the next one fails before it is fenced, and for topics that are made then."""
    world = leaders_first()
    world.advance(200)
    assert led(world) == []
    world.create("later", assignments=[(1, 2, 3)])
    assert world.partition("later", 0).isr == (2, 3)
    world.heartbeat(2, want_shut_down=True)
    world.settle()
    assert world.partition("t", 0).leader == 3
    assert led(world) == []
    world.check()


def test_new_replicas_are_not_placed_on_a_broker_whose_session_is_over_while_others_are_there() -> None:
    world = leaders_first()
    world.advance(200)
    assert FAILS in world.state.cluster.live.leaving
    world.create("later", partitions=6, rf=2)
    assert all(FAILS not in world.partition("later", index).replicas for index in range(6))


def test_what_is_over_for_one_controller_is_looked_at_anew_by_the_next() -> None:
    world = leaders_first()
    world.advance(200)
    assert FAILS in world.state.cluster.live.leaving
    world.quorum.elect(101)
    world.settle()
    for broker in (1, 2, 3):
        world.heartbeat(broker)
    world.advance(LEADERS_FIRST_MS + 100)
    assert not world.state.cluster.brokers[FAILS].fenced, "it is heard of again"
    falls_silent(world)
    assert world.state.cluster.brokers[FAILS].fenced
    assert not in_isr(world)
