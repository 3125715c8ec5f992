"""The offsets of a topic go with it, or the checker says so (CP-39)."""

from __future__ import annotations

import pytest

from kraftlite.coordinator.records import offset_tombstone
from kraftlite.model.ids import NodeId
from kraftlite.model.topic_partition import TopicIdPartition
from kraftlite.sim.checkers.deleted_topics import OffsetsOfDeletedTopics
from kraftlite.sim.checkers.replica_facts import PartitionChange
from tests.unit.sim.test_checkers_groups import BROKER, OFFSETS, TP, Topic
from tests.unit.sim.test_checkers_groups import T as TOPIC_ID


class Deleted(Topic):
    """An offset of topic t is committed, and then the topic is deleted."""

    def __init__(self, *, lost: bool = False) -> None:
        super().__init__(OffsetsOfDeletedTopics)
        assert isinstance(self.checker, OffsetsOfDeletedTopics)
        self.found: OffsetsOfDeletedTopics = self.checker
        self.stands(0)
        self.commit(5)
        if lost:
            self.world.losses.excused[OFFSETS] = "its only copy lost what was not flushed"
        self.found.on_partition(PartitionChange(key=TopicIdPartition(TOPIC_ID, 0), tp=TP, old=None, new=None))

    def stands(self, partition_epoch: int, *, coordinator: NodeId = BROKER, boots: int = 1) -> None:
        self.found._standing = lambda log: (coordinator, boots, partition_epoch)  # type: ignore[method-assign]


def test_an_offset_that_stays_is_found() -> None:
    left = Deleted().found.unsettled()
    assert left == "__consumer_offsets-0: g still has the offset of t-0 from before its topic was deleted"


def test_an_offset_that_is_removed_is_settled() -> None:
    made = Deleted()
    made.write(offset_tombstone("g", TP))
    assert made.found.unsettled() is None and made.found.judged == 1


def test_an_offset_of_a_topic_made_since_may_stay() -> None:
    made = Deleted()
    made.commit(7)
    assert made.found.unsettled() is None


@pytest.mark.parametrize(("epoch", "coordinator", "boots"), [(1, BROKER, 1), (0, NodeId(1), 1), (0, BROKER, 2)])
def test_a_coordinator_that_has_gone_is_not_judged(epoch: int, coordinator: NodeId, boots: int) -> None:
    made = Deleted()
    made.stands(epoch, coordinator=coordinator, boots=boots)
    assert made.found.unsettled() is None and made.found.judged == 0


def test_a_log_that_lost_something_is_not_judged() -> None:
    assert Deleted(lost=True).found.unsettled() is None


def test_a_partition_that_grows_is_no_deletion() -> None:
    made = Topic(OffsetsOfDeletedTopics)
    checker = made.checker
    assert isinstance(checker, OffsetsOfDeletedTopics)
    made.commit(5)
    registration = made.watch.facts.history.latest.topic_named(OFFSETS.topic)
    assert registration is not None
    there = registration[1].partitions[0]
    checker._standing = lambda log: (BROKER, 1, 0)  # type: ignore[method-assign]
    checker.on_partition(PartitionChange(key=TopicIdPartition(TOPIC_ID, 0), tp=TP, old=there, new=there))
    assert checker.unsettled() is None
