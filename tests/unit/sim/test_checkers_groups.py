"""Each checker of groups finds what is wrong in a made-up offsets topic, and nothing in one that is right."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest

from kraftlite.broker.handlers.group_offsets import PartitionCommit, TopicRef
from kraftlite.coordinator.api import (
    CommitRequest,
    ConsumerHeartbeatRequest,
    ConsumerHeartbeatResult,
    FetchedOffset,
    HeartbeatRequest,
    JoinRequest,
    JoinResult,
    SyncRequest,
    SyncResult,
)
from kraftlite.coordinator.config import GroupConfig
from kraftlite.coordinator.consumer_protocol import Subscription, build_assignment, build_subscription
from kraftlite.coordinator.core.placement import OFFSETS_TOPIC
from kraftlite.coordinator.modern.member import MemberState, Parts
from kraftlite.coordinator.modern.records import (
    CurrentKey,
    CurrentValue,
    EpochKey,
    EpochValue,
    MemberKey,
    MemberValue,
    TargetEpochKey,
    TargetEpochValue,
    TargetKey,
    TargetValue,
    record_of,
)
from kraftlite.coordinator.records import (
    CommittedOffset,
    CoordinatorRecord,
    GroupValue,
    group_record,
    group_tombstone,
    offset_record,
    offset_tombstone,
)
from kraftlite.coordinator.records import MemberValue as ClassicValue
from kraftlite.coordinator.shard_core import GroupShard
from kraftlite.metadata.records import PartitionRecord, TopicRecord
from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.producer import Producer
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.trace import NullTracer
from kraftlite.runtime.trace.group import GroupMemberRemoved, StaticMemberReplaced
from kraftlite.sim.checkers.base import CheckerFactory, Losses, Violation, World
from kraftlite.sim.checkers.facts import MetadataWatch
from kraftlite.sim.checkers.group_log import Change, GroupChecker, GroupLog, group_facts
from kraftlite.sim.checkers.i40_one_owner import OneOwner
from kraftlite.sim.checkers.i41_epochs_grow import EpochsGrow
from kraftlite.sim.checkers.i42_offsets_kept import OffsetsKept
from kraftlite.sim.checkers.i43_fenced_members import FencedMembers
from kraftlite.sim.checkers.i44_loaded_groups import LoadedGroups
from kraftlite.sim.cluster import SimCluster
from kraftlite.sim.history import History
from kraftlite.sim.loop import VirtualLoop
from kraftlite.sim.services.groups import (
    BEAT,
    COMMIT,
    HEARTBEAT,
    JOIN,
    OFFSET_FETCH,
    SYNC,
    CommitAsk,
    OffsetFetchAsk,
    Told,
)
from kraftlite.sim.services.transactions import COMMIT as COMMIT_IN_TRANSACTION
from kraftlite.sim.services.transactions import TransactionalCommitAsk
from kraftlite.sim.shape import NAMED
from kraftlite.simhost.network import Exchange

TP, T = TopicPartition("t", 0), UUID(int=7)
OFFSETS = TopicPartition(OFFSETS_TOPIC, 0)
BROKER = NodeId(2)
CASES: list[tuple[CheckerFactory, Callable[[Topic], Any], str]] = []
"""(checker, what breaks it, what the checker says of it)."""


class Driver:
    """The coordination of the partition by node 2."""

    loaded, loading, leader_epoch, tp = True, False, 0, OFFSETS

    def __init__(self) -> None:
        self.shard = GroupShard(GroupConfig.from_values({}), NullTracer(), random.Random(1))


class Topic:
    """A world in which nothing runs, whose offsets topic has one partition. Records are written by hand."""

    def __init__(self, factory: CheckerFactory) -> None:
        self.loop = VirtualLoop(1)
        self.cluster = SimCluster(self.loop, NAMED["1+1"], 1)
        self.world = World(cluster=self.cluster, history=History(), losses=Losses(), rng=random.Random(1))
        self.watch = MetadataWatch(self.world)
        topic_id = UUID(int=1)
        partition = PartitionRecord(
            topic_id=topic_id, partition=0, replicas=(BROKER,), isr=(BROKER,), leader=BROKER, leader_epoch=0, partition_epoch=0
        )
        self.watch.facts.history.replay(TopicRecord(name=OFFSETS_TOPIC, topic_id=topic_id), 0)
        self.watch.facts.history.replay(partition, 1)
        self.facts = group_facts(self.world)
        self.log = self.facts.logs[OFFSETS] = GroupLog(OFFSETS)
        self.driver = Driver()
        self.facts.driver = lambda node, group_id: self.driver  # type: ignore[method-assign, assignment, return-value]
        self.checker = factory(self.world)

    # --- the log

    def write(self, *records: CoordinatorRecord) -> None:
        changes: list[Change] = []
        for key, value in records:
            change = self.log.apply(self.log.end, key, value)
            self.log.end += 1
            if change is not None:
                changes.append(change)
        assert isinstance(self.checker, GroupChecker)
        self.checker.on_records(self.log, changes)

    def classic(self, generation: int, *members: str, share: tuple[int, ...] = ()) -> None:
        values = tuple(
            ClassicValue(
                member_id=it, instance_id=None, client_id="c", client_host="h", rebalance_timeout_ms=1, session_timeout_ms=1,
                subscription=build_subscription(Subscription(1, ("t",))), assignment=build_assignment(1, [("t", share)]),
            )
            for it in members
        )  # fmt: skip
        leader = members[0] if members else None
        self.write(
            group_record(
                "g",
                GroupValue(
                    protocol_type="consumer", generation=generation, protocol_name="range", leader_id=leader, state_since_ms=1,
                    members=values,
                ),
            )
        )  # fmt: skip

    def consumers(self, epoch: int, **shares: tuple[int, ...]) -> None:
        """A group in this epoch whose members have these partitions of T."""
        said = MemberValue(None, None, "c", "h", ("t",), "", 1, None, None)
        records = [record_of(EpochKey("g"), EpochValue(epoch)), record_of(TargetEpochKey("g"), TargetEpochValue(epoch))]
        for member_id, share in shares.items():
            parts: Parts = {T: frozenset(share)}
            current = CurrentValue(epoch, epoch - 1, MemberState.STABLE, parts, {})
            records += (
                record_of(MemberKey("g", member_id), said),
                record_of(TargetKey("g", member_id), TargetValue(parts)),
                record_of(CurrentKey("g", member_id), current),
            )
        self.write(*records)

    def commit(self, offset: int, metadata: str = "m", *, at_ms: int = 0, group_id: str = "g") -> None:
        wall_ms = self.cluster.wall_ms() if at_ms == 0 else at_ms
        self.write(offset_record(group_id, TP, CommittedOffset(offset, None, metadata, wall_ms)))

    # --- messages

    def serve(self, method: Any, request: Any, response: Any, between: Callable[[], Any] = lambda: None) -> None:
        done = self.loop.create_future()
        exchange = Exchange(NodeId(1100), BROKER, method, request, done)
        self.checker.on_arrival(exchange)
        between()
        self.loop._now_us += 1_000
        self.checker.on_served(exchange, response)

    def beat(self, member_id: str, epoch: int, *told: int) -> None:
        request = ConsumerHeartbeatRequest(
            group_id="g", member_id=member_id, member_epoch=epoch, instance_id=None, rack_id=None, rebalance_timeout_ms=None,
            topics=None, regex=None, server_assignor=None, owned=None, client_id="c", client_host="h",
        )  # fmt: skip
        result = ConsumerHeartbeatResult(member_id=member_id, member_epoch=epoch, assignment=((T, told),))
        self.checker.on_call(NodeId(1100), BROKER, BEAT, request)
        self.checker.on_answer(NodeId(1100), BROKER, BEAT, request, Told(ErrorCode.NONE, result))


def breaks(checker: CheckerFactory, words: str) -> Callable[[Callable[[Topic], Any]], Callable[[Topic], Any]]:
    def note(function: Callable[[Topic], Any]) -> Callable[[Topic], Any]:
        CASES.append((checker, function, words))
        return function

    return note


def heartbeat(generation: int, member_id: str = "a") -> HeartbeatRequest:
    return HeartbeatRequest(group_id="g", generation=generation, member_id=member_id, instance_id=None)


def committing(offset: int) -> CommitAsk:
    base = CommitRequest(group_id="g", generation=1, member_id="a", instance_id=None, offsets=())
    return CommitAsk(base=base, commits=(PartitionCommit(TopicRef("t", None), 0, offset, None, "m"),))


# --- 40


@breaks(OneOwner, "partition 1 of topic .* is held by a and by b")
def two_hold_one(topic: Topic) -> None:
    topic.consumers(2, a=(0, 1), b=(1,))


@breaks(OneOwner, "is aimed at by a and by b")
def two_are_to_get_one(topic: Topic) -> None:
    topic.consumers(2, a=(0,), b=(1,))
    topic.write(record_of(TargetKey("g", "b"), TargetValue({T: frozenset({0, 1})})))


@breaks(OneOwner, "assigns t-0 to a and to b")
def a_generation_with_a_partition_twice(topic: Topic) -> None:
    topic.classic(1, "a", "b", share=(0,))


@breaks(OneOwner, "member b is told that it owns partition 1 of topic .*, which a owns and has not given up")
def two_are_told_of_one(topic: Topic) -> None:
    topic.consumers(2, a=(0, 1), b=())
    topic.beat("a", 2, 0, 1)
    topic.beat("b", 2, 1)


@breaks(OneOwner, "the leader has sent")
def another_assignment_than_the_leaders(topic: Topic) -> None:
    topic.classic(1, "a", share=(0,))
    request = SyncRequest(
        group_id="g", generation=1, member_id="a", instance_id=None, protocol_type=None, protocol_name=None,
        assignments=(("a", b"mine"),),
    )  # fmt: skip
    topic.checker.on_call(NodeId(1100), BROKER, SYNC, request)
    topic.checker.on_answer(NodeId(1100), BROKER, SYNC, request, SyncResult(error=ErrorCode.NONE, assignment=b"another"))


# --- 41


@breaks(EpochsGrow, "takes the generation of group g from 3 back to 2")
def a_generation_that_goes_back(topic: Topic) -> None:
    topic.classic(3, "a")
    topic.classic(2, "a")


@breaks(EpochsGrow, "gives generation 3 of group g another assignment")
def a_generation_with_two_assignments(topic: Topic) -> None:
    topic.classic(3, "a", share=(0,))
    topic.classic(3, "a", share=(1,))


@breaks(EpochsGrow, "takes the group epoch of group g from 5 back to 4")
def an_epoch_that_goes_back(topic: Topic) -> None:
    topic.consumers(5, a=())
    topic.write(record_of(EpochKey("g"), EpochValue(4)))


@breaks(EpochsGrow, "takes the group epoch of group g from 7 back to 1")
def an_upgrade_that_begins_anew(topic: Topic) -> None:
    topic.classic(7, "a")
    topic.write(group_tombstone("g"), record_of(EpochKey("g"), EpochValue(1)))


@breaks(EpochsGrow, "has member a in epoch 6, its group is in 5")
def a_member_ahead_of_its_group(topic: Topic) -> None:
    topic.consumers(5, a=())
    topic.write(record_of(CurrentKey("g", "a"), CurrentValue(6, 5, MemberState.STABLE, {}, {})))


@breaks(EpochsGrow, "takes member a from epoch 5 back to 4")
def a_member_that_goes_back(topic: Topic) -> None:
    topic.consumers(5, a=())
    topic.write(record_of(CurrentKey("g", "a"), CurrentValue(4, 3, MemberState.STABLE, {}, {})))


@breaks(EpochsGrow, "has target epoch 6 of g in epoch 5")
def a_target_ahead_of_its_group(topic: Topic) -> None:
    topic.consumers(5, a=())
    topic.write(record_of(TargetEpochKey("g"), TargetEpochValue(6)))


def joining(member_id: str) -> JoinRequest:
    return JoinRequest(
        group_id="g", member_id=member_id, instance_id=None, client_id="c", client_host="h", session_timeout_ms=1,
        rebalance_timeout_ms=1, protocol_type="consumer", protocols=(), require_known_member_id=False, can_skip_assignment=False,
    )  # fmt: skip


@breaks(EpochsGrow, "a joins generation 2 at node 2, when it came 3 was stored")
def a_join_of_the_past(topic: Topic) -> None:
    topic.classic(3, "a")
    topic.serve(JOIN, joining("a"), JoinResult(error=ErrorCode.NONE, member_id="a", generation=2))


# --- 42


@breaks(OffsetsKept, r"node 2 acknowledged \(9, None, 'm'\) for t-0 of group g, which is not committed")
def an_acknowledged_offset_that_is_not_there(topic: Topic) -> None:
    topic.commit(8)
    topic.serve(COMMIT, committing(9), Told(ErrorCode.NONE, [ErrorCode.NONE]))


def fetched(topic: Topic, offset: int) -> None:
    answer = [FetchedOffset(TP, ErrorCode.NONE, offset, None, "m" if offset >= 0 else "")]
    topic.serve(OFFSET_FETCH, OffsetFetchAsk(group_id="g", partitions=(TP,)), Told(ErrorCode.NONE, answer))


@breaks(OffsetsKept, "somebody has been told of the one at 1")
def a_fetch_that_goes_back(topic: Topic) -> None:
    topic.commit(8)
    topic.commit(9)
    topic.serve(COMMIT, committing(9), Told(ErrorCode.NONE, [ErrorCode.NONE]))
    fetched(topic, 9)
    fetched(topic, 8)


@breaks(OffsetsKept, "answers FetchedOffset.*offset=-1")
def an_offset_that_vanished(topic: Topic) -> None:
    topic.commit(9)
    fetched(topic, 9)
    fetched(topic, -1)


@breaks(OffsetsKept, "answers FetchedOffset.*offset=77")
def an_offset_that_nobody_committed(topic: Topic) -> None:
    topic.commit(9)
    fetched(topic, 77)


@breaks(OffsetsKept, "removes the offset of t-0 of group g, whose members read it")
def an_offset_that_is_read_expires(topic: Topic) -> None:
    topic.classic(1, "a")
    topic.commit(9)
    topic.write(offset_tombstone("g", TP))


@breaks(OffsetsKept, "and nobody has asked for it")
def an_offset_that_expires_too_early(topic: Topic) -> None:
    topic.commit(9)
    topic.write(offset_tombstone("g", TP))


# --- 43


@breaks(FencedMembers, "is a commit of a in generation 2 of group g, whose members are then {'a': 3}")
def a_commit_of_an_older_generation(topic: Topic) -> None:
    topic.classic(3, "a")
    topic.commit(9, "a|2|1")


@breaks(FencedMembers, "is a commit of b in generation 3")
def a_commit_of_no_member(topic: Topic) -> None:
    topic.consumers(3, a=())
    topic.commit(9, "b|3|1")


@breaks(FencedMembers, "is a commit from outside of group g")
def a_commit_from_outside(topic: Topic) -> None:
    topic.classic(3, "a")
    topic.commit(9, "|-1|1")


@breaks(FencedMembers, "serves Client/Heartbeat of a, which it removed or replaced")
def a_removed_member_that_is_served(topic: Topic) -> None:
    node = topic.cluster.nodes[BROKER]
    topic.checker.on_event(0, node, GroupMemberRemoved(group="g", member="a", instance=None, reason="left"))
    topic.loop._now_us = 5_000
    topic.serve(HEARTBEAT, heartbeat(3), Told(ErrorCode.NONE))


@breaks(FencedMembers, "serves Client/OffsetCommit of a, which it removed or replaced")
def a_replaced_instance_that_commits(topic: Topic) -> None:
    node = topic.cluster.nodes[BROKER]
    topic.checker.on_event(0, node, StaticMemberReplaced(group="g", instance="i", old="a", new="b"))
    topic.loop._now_us = 5_000
    topic.serve(COMMIT, committing(9), Told(ErrorCode.NONE, [ErrorCode.NONE]))


def commits_in_a_transaction(topic: Topic, generation: int) -> None:
    topic.driver.shard.groups.obtain("g").generation = 3
    who: dict[str, Any] = {"transactional_id": "x", "producer": Producer(7, 0), "group_id": "g", "member_id": "a"}
    ask = TransactionalCommitAsk(version=2, offsets=((TP, 9),), generation=generation, **who)
    topic.serve(COMMIT_IN_TRANSACTION, ask, Told(ErrorCode.NONE, (ErrorCode.NONE,)))


@breaks(FencedMembers, "takes a commit in a transaction of a in generation 2; when it came, it was no member")
def a_stranger_that_commits_in_a_transaction(topic: Topic) -> None:
    commits_in_a_transaction(topic, 2)


@breaks(FencedMembers, "takes a commit in a transaction of a in generation 2; when it came, it was in 3 already")
def a_commit_in_a_transaction_of_an_older_generation(topic: Topic) -> None:
    topic.driver.shard.groups.obtain("g").members["a"] = object()  # type: ignore[assignment]
    commits_in_a_transaction(topic, 2)


@breaks(FencedMembers, "the group was in 0 when it came, and is in 0")
def a_heartbeat_of_another_generation(topic: Topic) -> None:
    topic.driver.shard.groups.obtain("g")
    topic.serve(HEARTBEAT, heartbeat(4), Told(ErrorCode.NONE))


# --- 44


def compared(topic: Topic, *, loaded: bool = True) -> None:
    assert isinstance(topic.checker, LoadedGroups)
    topic.checker._compare(topic.cluster.nodes[BROKER], topic.driver, topic.log, loaded=loaded)  # type: ignore[arg-type]


def replayed(topic: Topic, *records: CoordinatorRecord) -> None:
    for key, value in records:
        topic.driver.shard.replay(key, value, wall_ms=0)


@breaks(LoadedGroups, "the offset of t-0 in g is None, committed is CommittedOffset")
def an_offset_that_is_not_loaded(topic: Topic) -> None:
    topic.commit(9)
    compared(topic)


@breaks(LoadedGroups, "the offset of t-0 in g is CommittedOffset.*, committed is None")
def a_tombstone_that_is_not_loaded(topic: Topic) -> None:
    topic.commit(9)
    topic.write(offset_tombstone("g", TP))
    replayed(topic, offset_record("g", TP, CommittedOffset(9, None, "m", 1)))
    compared(topic)


@breaks(LoadedGroups, "the offset of t-0 in g is None, committed is CommittedOffset")
def an_offset_that_is_missing_at_the_end(topic: Topic) -> None:
    topic.commit(9)
    compared(topic, loaded=False)


@breaks(LoadedGroups, "group g is None, committed is")
def a_group_that_is_not_loaded(topic: Topic) -> None:
    topic.classic(3, "a")
    compared(topic)


@breaks(LoadedGroups, "consumer group g is None, committed is")
def a_consumer_group_that_is_not_loaded(topic: Topic) -> None:
    topic.consumers(3, a=(0,))
    compared(topic)


@pytest.mark.parametrize(("checker", "violate", "words"), CASES, ids=[violate.__name__ for _, violate, _ in CASES])
def test_a_violation_is_found(checker: CheckerFactory, violate: Callable[[Topic], Any], words: str) -> None:
    topic = Topic(checker)
    try:
        with pytest.raises(Violation, match=words) as caught:
            violate(topic)
        assert caught.value.checker.startswith(checker.__name__)  # type: ignore[attr-defined]
    finally:
        topic.loop.close()


@pytest.fixture(params=[OneOwner, EpochsGrow, OffsetsKept, FencedMembers, LoadedGroups])
def sound(request: pytest.FixtureRequest) -> Iterator[Topic]:
    topic = Topic(request.param)
    yield topic
    topic.loop.close()


def test_what_is_right_passes(sound: Topic) -> None:
    sound.commit(1, "|-1|1")
    sound.classic(1, "a", share=(0,))
    sound.commit(2, "a|1|1")
    sound.write(group_tombstone("g"))
    sound.consumers(4, a=(0,), b=(1,))
    sound.beat("a", 4, 0)
    sound.beat("b", 4, 1)
    sound.beat("a", 0)
    sound.commit(3, "b|4|1")
    fetched(sound, 1) if isinstance(sound.checker, LoadedGroups) else None


def test_a_removed_classic_member_may_join_a_group_of_the_consumer_protocol_under_its_old_id() -> None:
    topic = Topic(FencedMembers)
    node = topic.cluster.nodes[BROKER]
    topic.checker.on_event(0, node, GroupMemberRemoved(group="g", member="a", instance=None, reason="session expired"))
    topic.loop._now_us = 5_000
    topic.serve(JOIN, joining("a"), JoinResult(error=ErrorCode.NONE, member_id="a", generation=4))
    topic.serve(HEARTBEAT, heartbeat(4), Told(ErrorCode.NONE))
    topic.loop.close()
