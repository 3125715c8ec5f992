"""A broker with many partitions is fenced part by part: others carry out the first part while the next is computed."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlite.metadata.records import BrokerRegistrationChangeRecord, MetadataRecord, PartitionChangeRecord
from kraftlite.model.ids import UNCHANGED
from kraftlite.model.tuning import Tuning
from tests.harness.controller_world import World

SESSION_MS = 9_000
FAILS = 1


def cluster(changes_per_part: int, partitions: int = 7) -> World:
    world = World(2, tuning=Tuning(elements_per_turn=3))
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
