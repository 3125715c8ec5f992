"""A static member that is replaced has its partitions since its former self had them, for the checker of fenced members, too."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest

from kraftlite.coordinator.api import ConsumerHeartbeatRequest
from kraftlite.coordinator.consumer_protocol import Subscription, build_assignment, build_subscription
from kraftlite.coordinator.modern.group import ConsumerGroup
from kraftlite.coordinator.modern.member import MemberState, Parts
from kraftlite.coordinator.modern.records import CurrentKey, CurrentValue, EpochKey, EpochValue, MemberKey, MemberValue, record_of
from kraftlite.coordinator.records import GroupValue, group_record, group_tombstone
from kraftlite.coordinator.records import MemberValue as ClassicValue
from kraftlite.metadata.records import TopicRecord
from kraftlite.model.errors import ErrorCode
from kraftlite.runtime.trace.group import GroupMemberRemoved, GroupTypeChanged
from kraftlite.sim.checkers.base import Violation
from kraftlite.sim.checkers.i43_fenced_members import FencedMembers
from kraftlite.sim.services.groups import BEAT, COMMIT, Told
from tests.unit.sim.test_checkers_groups import BROKER, T, Topic, committing

PARTS: Parts = {T: frozenset({0})}
SAID = MemberValue("i", None, "c", "h", ("t",), "", 1, None, None)

LEAVING = ConsumerHeartbeatRequest(
    group_id="g", member_id="a", member_epoch=-2, instance_id="i", rack_id=None, rebalance_timeout_ms=None, topics=None,
    regex=None, server_assignor=None, owned=None, client_id="c", client_host="h",
)  # fmt: skip
"""Of member `a`, which is away for a while then."""


@pytest.fixture
def topic() -> Iterator[Topic]:
    """The member `a`, which is instance `i`, has partition 0 since epoch 2; the group is in epoch 3."""
    topic = Topic(FencedMembers)
    for epoch in (2, 3):
        current = CurrentValue(epoch, epoch - 1, MemberState.STABLE, PARTS, {})
        records = record_of(EpochKey("g"), EpochValue(epoch)), record_of(MemberKey("g", "a"), SAID)
        topic.write(*records, record_of(CurrentKey("g", "a"), current))
    yield topic
    topic.loop.close()


def replace(topic: Topic, said: MemberValue, *, gone: bool = True) -> None:
    """Another member comes, with the partition; `gone`: the coordinator has told that `a` is no member any more."""
    if gone:
        removed = GroupMemberRemoved(group="g", member="a", instance=None, reason="left")
        topic.checker.on_event(0, topic.cluster.nodes[BROKER], removed)
    current = CurrentValue(3, 0, MemberState.STABLE, PARTS, {})
    topic.write(
        record_of(CurrentKey("g", "a"), None),
        record_of(MemberKey("g", "a"), None),
        record_of(MemberKey("g", "b"), said),
        record_of(CurrentKey("g", "b"), current),
    )


def test_the_new_self_of_a_static_member_commits_in_an_epoch_of_the_former_one(topic: Topic) -> None:
    replace(topic, SAID)
    topic.commit(9, "b|2|1")
    with pytest.raises(Violation, match="is a commit of b in generation 1 of group g"):
        topic.commit(9, "b|1|1")


def test_another_takes_the_place_of_a_static_member_that_is_away(topic: Topic) -> None:
    topic.write(record_of(CurrentKey("g", "a"), CurrentValue(-2, 3, MemberState.STABLE, PARTS, {})))
    replace(topic, SAID, gone=False)


def test_nobody_takes_the_place_of_a_static_member_that_is_there(topic: Topic) -> None:
    with pytest.raises(Violation, match="takes the place of a, which is in epoch 3 and has not left"):
        replace(topic, SAID, gone=False)


def test_another_takes_the_place_of_a_static_member_whose_going_the_log_did_not_take(topic: Topic) -> None:
    topic.serve(BEAT, LEAVING, Told(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    replace(topic, SAID, gone=False)


def test_nobody_takes_the_place_of_one_that_was_served_since(topic: Topic) -> None:
    topic.serve(BEAT, LEAVING, Told(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    topic.serve(BEAT, dataclasses.replace(LEAVING, member_epoch=3), Told(ErrorCode.NONE))
    with pytest.raises(Violation, match="takes the place of a, which is in epoch 3 and has not left"):
        replace(topic, SAID, gone=False)


def test_another_member_that_gets_the_partition_does_not(topic: Topic) -> None:
    replace(topic, dataclasses.replace(SAID, instance_id="other"))
    with pytest.raises(Violation, match="is a commit of b in generation 2 of group g"):
        topic.commit(9, "b|2|1")


def convert(topic: Topic) -> None:
    """Member `b` converts a classic group of generation 5. Like `a`, which had partition 0 there, it is instance `i`."""
    topic.watch.facts.history.replay(TopicRecord(name="t", topic_id=T), 2)
    was = ClassicValue(
        member_id="a", instance_id="i", client_id="c", client_host="h", rebalance_timeout_ms=1, session_timeout_ms=1,
        subscription=build_subscription(Subscription(1, ("t",))), assignment=build_assignment(1, [("t", (0,))]),
    )  # fmt: skip
    classic = GroupValue(
        protocol_type="consumer", generation=5, protocol_name="range", leader_id="a", state_since_ms=1, members=(was,)
    )
    topic.write(group_record("n", classic))
    topic.write(
        group_tombstone("n"),
        record_of(CurrentKey("n", "a"), None),
        record_of(MemberKey("n", "a"), None),
        record_of(MemberKey("n", "b"), SAID),
        record_of(EpochKey("n"), EpochValue(6)),
        record_of(CurrentKey("n", "b"), CurrentValue(6, 0, MemberState.STABLE, PARTS, {})),
    )


def test_who_converts_a_group_as_the_new_self_of_a_static_member_has_its_partitions_since_the_last_generation(
    topic: Topic,
) -> None:
    convert(topic)
    topic.commit(9, "b|5|1", group_id="n")
    with pytest.raises(Violation, match="is a commit of b in generation 4 of group n"):
        topic.commit(9, "b|4|1", group_id="n")


def becomes_classic_and_is_not(topic: Topic, *members: str) -> None:
    """Member a goes, which makes the group a classic one; the log does not take that, and it is of the new protocol again, with
    these members."""
    node = topic.cluster.nodes[BROKER]
    topic.checker.on_event(0, node, GroupMemberRemoved(group="g", member="a", instance=None, reason="left"))
    topic.checker.on_event(0, node, GroupTypeChanged(group="g", type="classic", epoch=3, members=1))
    group = topic.driver.shard.consumers.by_id["g"] = ConsumerGroup.new("g")
    for member_id in members:
        group.replay(MemberKey("g", member_id), SAID)
    topic.checker.on_event(0, node, GroupTypeChanged(group="g", type="consumer", epoch=3, members=len(members)))
    topic.loop._now_us += 5_000
    topic.serve(COMMIT, committing(9), Told(ErrorCode.NONE, [ErrorCode.NONE]))


def test_a_member_whose_going_the_log_did_not_take_is_served(topic: Topic) -> None:
    becomes_classic_and_is_not(topic, "a", "b")
    with pytest.raises(Violation, match="serves Client/OffsetCommit of a, which it removed or replaced"):
        becomes_classic_and_is_not(topic, "b")
