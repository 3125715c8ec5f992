"""Invariant 42, of topics that are deleted: their offsets go with them (CP-39)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kraftlite.coordinator.core.placement import OFFSETS_TOPIC
from kraftlite.model.ids import NodeId
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.group_log import GroupChecker, GroupLog
from kraftlite.sim.checkers.replica_facts import PartitionChange, ReplicaChecker


@dataclass(frozen=True, slots=True)
class _Doomed:
    """An offset of a topic that has just been deleted, where it is in the log, and its coordinator, which all replicas follow."""

    log: GroupLog
    group_id: str
    tp: TopicPartition
    at: int
    coordinator: NodeId
    boots: int
    partition_epoch: int


class OffsetsOfDeletedTopics(GroupChecker, ReplicaChecker):
    """The coordinator of a group removes what is committed for a partition whose topic is deleted; else whoever reads a topic of
    the same name would begin where the one before was read to.

    A coordinator that goes, or whose followers do, before it has written that, leaves the offsets to their expiry, as in Kafka:
    only one is judged of whose partition nothing has changed since."""

    numbers: ClassVar[tuple[int, ...]] = (42,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._doomed: list[_Doomed] = []
        self.judged = 0

    def on_partition(self, change: PartitionChange) -> None:
        if change.new is not None:
            return
        for log in self.groups.logs.values():
            for group_id, offsets in log.offsets.items():
                versions = offsets.get(change.tp)
                if versions and versions[-1].value is not None:
                    self._note(log, group_id, change.tp, versions[-1].at)

    def _note(self, log: GroupLog, group_id: str, tp: TopicPartition, at: int) -> None:
        standing = self._standing(log)
        if standing is not None and not self.groups.is_lost(log):
            self._doomed.append(_Doomed(log, group_id, tp, at, *standing))

    def _standing(self, log: GroupLog) -> tuple[NodeId, int, int] | None:
        """The coordinator with its incarnation, and the partition epoch; None when there is none, or not all replicas follow."""
        topic = self.facts.metadata.history.latest.topic_named(OFFSETS_TOPIC)
        found = None if topic is None else topic[1].partitions.get(log.tp.partition)
        if found is None or found.leader is None or set(found.isr) != set(found.replicas):
            return None
        node = self.world.nodes[found.leader]
        return None if not node.started else (found.leader, node.boots, found.partition_epoch)

    def unsettled(self) -> str | None:
        left = []
        for it in self._doomed:
            versions = it.log.offsets[it.group_id][it.tp]
            now = self._standing(it.log)
            if self.groups.is_lost(it.log) or now != (it.coordinator, it.boots, it.partition_epoch):
                continue
            if versions[-1].at != it.at:
                self.judged += 1
                continue
            left.append(it)
        self._doomed = left
        if not left:
            return None
        first = left[0]
        return f"{first.log.tp}: {first.group_id} still has the offset of {first.tp} from before its topic was deleted"
