"""Invariant 26, of refusals: a leader waits for whom it has asked to join until every copy of the question is void (RP-23)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.controller import AlterPartitionRequest, AlterPartitionResponse
from kraftlite.model.messages.methods import ALTER_PARTITION
from kraftlite.model.method import AnyMethod
from kraftlite.model.topic_partition import TopicIdPartition
from kraftlite.replication.leader import LeaderState
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.replica_facts import ReplicaChecker
from kraftlite.sim.checkers.replica_views import ReplicaView, Stamp

_REFUSED = (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED)


@dataclass(frozen=True, slots=True)
class _Refusal:
    leader: LeaderState
    partition_epoch: int
    added: tuple[NodeId, ...]


class Withdrawals(ReplicaChecker):
    """A replica that a leader has asked to join, and that the controller has refused, stays in the maximal ISR until there is a
    newer partition epoch: an earlier copy of the question may be under way, and be carried out when the replica is eligible
    again. The answer must have arrived."""

    numbers: ClassVar[tuple[int, ...]] = (26,)
    only_methods = (ALTER_PARTITION,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._refused: dict[tuple[NodeId, TopicIdPartition], _Refusal] = {}

    def on_answer(self, source: NodeId, target: NodeId, method: AnyMethod, request: object, response: object) -> None:
        if not isinstance(request, AlterPartitionRequest) or not isinstance(response, AlterPartitionResponse):
            return
        refused = {(it.topic_id, it.partition) for it in response.partitions if it.error in _REFUSED}
        for item in request.partitions:
            if (item.topic_id, item.partition) not in refused:
                continue
            key = TopicIdPartition(item.topic_id, item.partition)
            view = self.facts.views.get(key, {}).get(source)
            leader = None if view is None else view.partition.leader
            if (
                view is None
                or leader is None
                or (leader.leader_epoch, view.partition.partition_epoch)
                != (
                    item.leader_epoch,
                    item.partition_epoch,
                )
            ):
                continue
            added = tuple(it.broker_id for it in item.new_isr if it.broker_id not in leader.isr.committed)
            if added and all(it in leader.isr.maximal for it in added):
                self._refused[source, key] = _Refusal(leader, item.partition_epoch, added)

    def on_replica(self, view: ReplicaView, was: Stamp | None) -> None:
        refusal = self._refused.get((view.node_id, view.key))
        if refusal is None:
            return
        if view.leader is not refusal.leader or view.partition_epoch != refusal.partition_epoch:
            del self._refused[view.node_id, view.key]
        elif any(it not in view.maximal for it in refusal.added):
            self.fail(
                f"{view.text} waits for {view.maximal} in partition epoch {view.partition_epoch}, and no more for "
                f"{refusal.added}, whose joining was refused: an earlier copy of the question may still be carried out"
            )
