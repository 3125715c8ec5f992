"""Checkers of when members are dropped and offsets expire, how many members there are, and what coordinators assert of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from kraftlite.coordinator.api import JoinResult, SyncRequest, SyncResult
from kraftlite.coordinator.classic.group import GroupState
from kraftlite.coordinator.classic.rebalance import Timer
from kraftlite.coordinator.modern.group import ConsumerGroup
from kraftlite.coordinator.modern.member import MemberState
from kraftlite.coordinator.modern.records import CurrentKey, CurrentValue, record_of
from kraftlite.coordinator.records import (
    CommittedOffset,
    CoordinatorRecord,
    GroupValue,
    group_record,
    group_tombstone,
    offset_record,
    offset_tombstone,
)
from kraftlite.model.errors import ErrorCode
from kraftlite.runtime.trace.group import GroupMemberRemoved
from kraftlite.sim.checkers.base import CheckerFactory, Violation
from kraftlite.sim.checkers.group_sizes import GroupSizes
from kraftlite.sim.checkers.i40_one_owner import OneOwner
from kraftlite.sim.checkers.i42_offsets_kept import OffsetsKept
from kraftlite.sim.checkers.i44_loaded_groups import LoadedGroups
from kraftlite.sim.checkers.offsets_expire import OffsetsExpire
from kraftlite.sim.checkers.removals_deserved import RemovalsDeserved
from kraftlite.sim.checkers.self_checks_coordinators import SelfCheckCoordinators
from kraftlite.sim.services.groups import DELETE, HEARTBEAT, JOIN, SYNC, DeleteAsk, Told
from tests.unit.sim.test_checkers_groups import BROKER, TP, T, Topic, compared, heartbeat, joining, replayed

DAY_MS = 24 * 3_600_000
RETENTION_MS = 7 * DAY_MS


@pytest.fixture
def made() -> Iterator[Callable[[CheckerFactory], Topic]]:
    topics: list[Topic] = []

    def make(factory: CheckerFactory) -> Topic:
        topics.append(Topic(factory))
        return topics[-1]

    yield make
    for topic in topics:
        topic.loop.close()


Made = Callable[[CheckerFactory], Topic]

# --- who is dropped


def joins(topic: Topic, *, session_ms: int = 1_000) -> None:
    ask = replace(joining("a"), session_timeout_ms=session_ms)
    topic.serve(JOIN, ask, JoinResult(error=ErrorCode.NONE, member_id="a", generation=4))


def syncs(topic: Topic, between: Callable[[], Any] = lambda: None) -> None:
    ask = SyncRequest(
        group_id="g", generation=4, member_id="a", instance_id=None, protocol_type=None, protocol_name=None, assignments=()
    )
    topic.serve(SYNC, ask, SyncResult(error=ErrorCode.NONE), between)


def later(topic: Topic, ms: int) -> None:
    topic.loop._now_us += 1_000 * ms


def dropped(topic: Topic, reason: str, after_ms: int = 0) -> None:
    later(topic, after_ms)
    event = GroupMemberRemoved(group="g", member="a", instance=None, reason=reason)
    topic.checker.on_event(topic.loop.now_us(), topic.cluster.nodes[BROKER], event)


def classic(topic: Topic, generation: int = 4) -> None:
    topic.driver.shard.groups.obtain("g").generation = generation


def test_a_member_that_lives_is_not_dropped(made: Made) -> None:
    topic = made(RemovalsDeserved)
    joins(topic)
    dropped(topic, "session expired")
    topic.serve(HEARTBEAT, heartbeat(4), Told(ErrorCode.NONE), lambda: later(topic, 900))
    with pytest.raises(Violation, match=r"drops a of group g \(session expired\), of which it has heard 991 ms ago"):
        dropped(topic, "session expired", 90)


def test_a_refused_heartbeat_keeps_nobody(made: Made) -> None:
    topic = made(RemovalsDeserved)
    joins(topic)
    later(topic, 1_000)
    topic.serve(HEARTBEAT, heartbeat(3), Told(ErrorCode.ILLEGAL_GENERATION))
    dropped(topic, "session expired", 500)


def test_who_has_its_assignment_is_not_dropped_for_not_syncing(made: Made) -> None:
    topic = made(RemovalsDeserved)
    classic(topic)
    joins(topic)
    dropped(topic, "did not sync in time")
    joins(topic)
    syncs(topic, lambda: joins(topic))  # it joined again meanwhile
    dropped(topic, "did not sync in time")
    syncs(topic)
    classic(topic, 5)
    dropped(topic, "did not sync in time")
    classic(topic)
    with pytest.raises(Violation, match=r"drops a of group g \(did not sync in time\), which has the assignment of generation 4"):
        dropped(topic, "did not sync in time")


def test_who_has_joined_again_is_not_dropped_for_not_joining(made: Made) -> None:
    topic = made(RemovalsDeserved)
    joins(topic)
    topic.serve(HEARTBEAT, heartbeat(4), Told(ErrorCode.REBALANCE_IN_PROGRESS))
    dropped(topic, "did not rejoin in time")
    joins(topic)
    with pytest.raises(Violation, match="which has joined, and was not told anything since"):
        dropped(topic, "did not rejoin in time")


# --- what expires


def emptied(topic: Topic, since_ms: int, *, generation: int = 3) -> CoordinatorRecord:
    return group_record(
        "g",
        GroupValue(
            protocol_type="consumer",
            generation=generation,
            protocol_name=None,
            leader_id=None,
            state_since_ms=since_ms,
            members=(),
        ),
    )


def test_an_offset_is_kept_since_its_group_became_empty_and_not_since_its_commit(made: Made) -> None:
    topic = made(OffsetsKept)
    now_ms = topic.cluster.wall_ms()
    topic.commit(9, at_ms=now_ms - RETENTION_MS - DAY_MS)
    topic.write(emptied(topic, now_ms - DAY_MS))
    with pytest.raises(Violation, match="and nobody has asked for it"):
        topic.write(offset_tombstone("g", TP), group_tombstone("g"))


def test_an_offset_of_who_is_in_no_group_is_kept_since_its_own_commit(made: Made) -> None:
    topic = made(OffsetsKept)
    topic.commit(8, at_ms=topic.cluster.wall_ms() - RETENTION_MS - DAY_MS)
    topic.write(offset_tombstone("g", TP))
    topic.commit(8, at_ms=topic.cluster.wall_ms() - RETENTION_MS - DAY_MS)
    topic.commit(9)
    with pytest.raises(Violation, match="and nobody has asked for it"):
        topic.write(offset_tombstone("g", TP))


def test_a_deletion_takes_what_was_committed_before_its_end(made: Made) -> None:
    topic = made(OffsetsKept)
    topic.commit(9)
    topic.serve(DELETE, DeleteAsk("g"), Told(ErrorCode.NONE))
    topic.write(offset_tombstone("g", TP))
    topic.commit(9, at_ms=topic.cluster.wall_ms() + 10_000)
    with pytest.raises(Violation, match="and nobody has asked for it"):
        topic.write(offset_tombstone("g", TP))


def left_over(topic: Topic) -> str | None:
    checker = topic.checker
    assert isinstance(checker, OffsetsExpire)
    clock = SimpleNamespace(wall_ms=topic.cluster.wall_ms)
    node: Any = SimpleNamespace(now=SimpleNamespace(clock=clock))
    config = topic.driver.shard._config
    topic.driver.shard._config = replace(config, retention_check_interval_ms=300)
    return checker._overdue(node, topic.driver, topic.log, "g")  # type: ignore[arg-type]


def test_an_offset_whose_time_is_over_goes(made: Made) -> None:
    topic = made(OffsetsExpire)
    now_ms = topic.cluster.wall_ms()
    topic.log.apply(0, *offset_record("g", TP, CommittedOffset(9, None, "m", now_ms - RETENTION_MS - DAY_MS)))
    assert left_over(topic) is None, "the group is not loaded"
    topic.driver.shard.groups.obtain("g")
    assert left_over(topic) == f"{topic.log.tp}: g still has the offset of t-0, whose time was over {DAY_MS - 2_300} ms ago"
    topic.log.apply(1, *emptied(topic, now_ms - DAY_MS))
    assert left_over(topic) is None, "the log has another group than the memory"
    replayed(topic, emptied(topic, now_ms - DAY_MS))
    assert left_over(topic) is None, "it became empty only yesterday"
    topic.log.apply(2, *emptied(topic, now_ms - RETENTION_MS - DAY_MS))
    assert left_over(topic) is not None


# --- how many there are


def test_a_group_has_no_more_members_than_it_may(made: Made) -> None:
    topic = made(GroupSizes)
    assert isinstance(topic.checker, GroupSizes)
    topic.checker._classic = topic.checker._modern = 2
    topic.classic(1, "a", "b")
    with pytest.raises(Violation, match=r"gives group g the members \['a', 'b', 'c'\]; 2 are allowed"):
        topic.classic(2, "a", "b", "c")
    topic.write(group_tombstone("g"))
    topic.consumers(3, a=(0,), b=(1,))
    with pytest.raises(Violation, match=r"gives group g the members \['a', 'b', 'c'\]; 2 are allowed"):
        topic.consumers(4, c=(2,))


# --- what is loaded, and what they say of themselves


def test_a_load_keeps_the_time_since_which_a_group_is_empty(made: Made) -> None:
    topic = made(LoadedGroups)
    topic.write(emptied(topic, 77))
    replayed(topic, emptied(topic, 77))
    compared(topic)
    topic.driver.shard.groups.by_id["g"].state_since_ms = 78
    with pytest.raises(Violation, match="group g is"):
        compared(topic)


def test_a_shard_is_asked_for_its_invariants(made: Made) -> None:
    topic = made(SelfCheckCoordinators)
    checker, node = topic.checker, topic.cluster.nodes[BROKER]
    assert isinstance(checker, SelfCheckCoordinators)
    driver: Any = topic.driver
    driver._events, driver._stepping, driver._waiting = [], False, {}
    shard = driver.shard
    shard.consumers.by_id["g"] = group = ConsumerGroup.new("g")
    checker._ask(node, driver)
    group.target_epoch = 9
    with pytest.raises(Violation, match="the coordinator of __consumer_offsets-0 on node 2: consumer group g: target epoch 9"):
        checker._ask(node, driver)
    topic.log.lost = True
    checker._ask(node, driver)
    shard.groups.obtain("h").transition(GroupState.PREPARING_REBALANCE, 0)
    assert shard.groups.deadlines.get((Timer.JOIN, "h", "")) is None
    with pytest.raises(Violation, match="group h prepares a rebalance without a deadline"):
        checker._ask(node, driver)


def test_a_shard_owes_answers_only_to_who_waits_for_others(made: Made) -> None:
    topic = made(SelfCheckCoordinators)
    driver: Any = topic.driver
    driver._events, driver._stepping, driver._waiting = [], False, {7: topic.loop.create_future()}
    checker, node = topic.checker, topic.cluster.nodes[BROKER]
    assert isinstance(checker, SelfCheckCoordinators)
    driver.shard._effects._tell[1] = print
    checker._ask(node, driver)
    driver.shard._effects._tell.clear()
    with pytest.raises(Violation, match="request 7 has no answer, and nothing is under way that could give it one"):
        checker._ask(node, driver)
    driver.shard.groups.obtain("g").members["a"] = member = SimpleNamespace(waiting_join=7, waiting_sync=None)
    driver.shard.check = lambda *, assignments: None
    checker._ask(node, driver)
    member.waiting_join = 8
    driver._waiting[7].set_result(None)
    checker._ask(node, driver)


def test_a_join_ends_when_everybody_is_there(made: Made) -> None:
    topic = made(SelfCheckCoordinators)
    driver: Any = topic.driver
    driver._events, driver._stepping, driver._waiting = [], False, {}
    driver.shard.check = lambda *, assignments: None
    checker, node = topic.checker, topic.cluster.nodes[BROKER]
    assert isinstance(checker, SelfCheckCoordinators)
    group = driver.shard.groups.obtain("g")
    group.members["a"] = member = SimpleNamespace(waiting_join=None, waiting_sync=None)
    group.state, group.first_round = GroupState.PREPARING_REBALANCE, True
    checker._ask(node, driver)
    group.first_round, group.pending = False, {"b": None}
    member.waiting_join = 7
    checker._ask(node, driver)
    group.pending.clear()
    with pytest.raises(Violation, match=r"group g goes on waiting, and \['a'\] have all joined"):
        checker._ask(node, driver)


def test_a_member_that_is_away_holds_nothing_that_it_was_to_give_up(made: Made) -> None:
    topic = made(OneOwner)
    topic.consumers(3, a=(0, 1), b=(2,))
    away = CurrentValue(-2, 3, MemberState.UNREVOKED_PARTITIONS, {T: frozenset({0})}, {T: frozenset({1})})
    topic.write(record_of(CurrentKey("g", "a"), away._replace(revoking={})))
    with pytest.raises(Violation, match="has a keep what it was to give up, and away"):
        topic.write(record_of(CurrentKey("g", "a"), away))


def test_an_offset_that_a_transaction_moves_does_not_expire(made: Made) -> None:
    topic = made(OffsetsKept)
    topic.commit(8, at_ms=topic.cluster.wall_ms() - RETENTION_MS - DAY_MS)
    moved = CommittedOffset(9, None, "m", topic.cluster.wall_ms())
    topic.log.apply(topic.log.end, *offset_record("g", TP, moved), producer_id=5)
    topic.log.end += 1
    with pytest.raises(Violation, match="though the transaction of producer id 5 moves it"):
        topic.write(offset_tombstone("g", TP))


def test_offsets_of_a_group_that_is_none_are_of_no_concern(made: Made) -> None:
    topic = made(OffsetsExpire)
    topic.log.apply(0, *offset_record("g", TP, CommittedOffset(9, None, "m", 1)))
    topic.driver.shard.consumers.by_id["g"] = ConsumerGroup.new("g")
    assert left_over(topic) is not None
    topic.driver.shard.consumers.by_id["g"].members["a"] = object()  # type: ignore[assignment]
    assert left_over(topic) is None
