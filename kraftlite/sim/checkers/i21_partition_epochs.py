"""Invariant 21: leader epoch and partition epoch never decrease; every change is one step, made on the state that it knew."""

from __future__ import annotations

from typing import ClassVar, TypeAlias
from uuid import UUID

from kraftlite.metadata import records as r
from kraftlite.metadata.image import MetadataImage
from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.controller import (
    AlterPartitionItem,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionResult,
)
from kraftlite.model.messages.methods import ALTER_PARTITION
from kraftlite.model.topic_partition import TopicIdPartition
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.sim.checkers.model import MetadataState
from kraftlite.sim.checkers.views import Entry, NodeView
from kraftlite.simhost.network import Exchange

AlterExchange: TypeAlias = Exchange[AlterPartitionRequest, AlterPartitionResponse]


class PartitionEpochs(MetadataChecker):
    """The log, the brokers' replicas, and the changes of ISR that the controller took, whether or not the leader was told: of its
    broker epoch, its leader epoch and its partition epoch, none was old."""

    numbers: ClassVar[tuple[int, ...]] = (21,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._replicas: dict[tuple[NodeId, int, TopicIdPartition], tuple[int, int]] = {}
        self._late: dict[AlterExchange, dict[tuple[UUID, int], int]] = {}
        """The partitions of a request that were further than it knew when it arrived first: how far. It may arrive twice."""
        self.facts.watch_arrival(ALTER_PARTITION, self._on_arrival)
        self.facts.watch_served(ALTER_PARTITION, self._on_altered)

    def on_record(self, entry: Entry, offset: int, record: r.MetadataRecord, before: MetadataState, after: MetadataState) -> None:
        if not isinstance(record, r.PartitionRecord | r.PartitionChangeRecord):
            return
        old = before.partition(record.topic_id, record.partition)
        new = after.partition(record.topic_id, record.partition)
        assert new is not None, "the record was replayed"
        where = f"offset {offset}, partition {record.partition} of {after.topics[record.topic_id].name}"
        if old is None:
            if new.leader_epoch != 0 or new.partition_epoch != 0:
                self.fail(f"{where}: a new partition begins with {new}")
        elif new.partition_epoch != old.partition_epoch + 1 or not 0 <= new.leader_epoch - old.leader_epoch <= 1:
            self.fail(f"{where}: {old} becomes {new}")
        elif new.leader != old.leader and new.leader_epoch == old.leader_epoch:
            self.fail(f"{where}: another leader in the same leader epoch, {old} becomes {new}")

    # --- replicas

    def on_cache(self, view: NodeView, image: MetadataImage) -> None:
        node = view.node.node
        assert node is not None and node.broker is not None
        for replica in node.broker.replicas.partitions():
            key = TopicIdPartition(replica.topic_id, replica.tp.partition)
            epochs = (replica.leader_epoch, replica.partition_epoch)
            if epochs == (-1, -1):
                continue  # it has not been told yet what to be
            before = self._replicas.get((*view.author, key))
            if before == epochs:
                continue
            if before is not None and (epochs[0] < before[0] or epochs[1] < before[1]):
                self.fail(f"the replica of {replica.tp} on broker {view.node_id} goes from epochs {before} to {epochs}")
            known = self.facts.changes.get(key, {}).get(epochs[1])
            if known is None or known.registration.leader_epoch != epochs[0]:
                self.fail(f"the replica of {replica.tp} on broker {view.node_id} is in epochs {epochs}; committed is {known}")
            self._replicas[(*view.author, key)] = epochs

    # --- changes of the ISR

    def _on_arrival(self, exchange: AlterExchange) -> None:
        controller = self.facts.view(self.world.nodes[exchange.target]).controller
        if controller is None:
            return
        late = {}
        for item in exchange.request.partitions:
            topic = controller.state.replication.topics.get(item.topic_id)
            now = None if topic is None else topic.partitions.get(item.partition)
            if now is not None and now.partition_epoch > item.partition_epoch:
                late[(item.topic_id, item.partition)] = now.partition_epoch
        self._late.setdefault(exchange, late)

    def _on_altered(self, exchange: AlterExchange, response: AlterPartitionResponse) -> None:
        request = exchange.request
        late = self._late.pop(exchange, {})
        asked = {(it.topic_id, it.partition): it for it in request.partitions}
        for result in response.partitions:
            key = (result.topic_id, result.partition)
            if result.error is ErrorCode.NONE and key in late:
                self.fail(f"{request} came when the partition was in epoch {late[key]} already, and was answered with {result}")
            if result.error is ErrorCode.NONE:
                self._check_change(request, asked[(result.topic_id, result.partition)], result)

    def _check_change(self, request: AlterPartitionRequest, item: AlterPartitionItem, result: AlterPartitionResult) -> None:
        where = f"the change {item} of broker {request.broker_id}, epoch {request.broker_epoch}, was answered with {result}"
        if result.partition_epoch not in (item.partition_epoch, item.partition_epoch + 1):
            self.fail(f"{where}: it was proposed on partition epoch {item.partition_epoch}")
        if result.partition_epoch != item.partition_epoch + 1:
            return  # nothing had to be written
        known = self.facts.changes.get(TopicIdPartition(item.topic_id, item.partition), {}).get(result.partition_epoch)
        if known is None:
            return  # that it is not committed is for invariant 18 to say
        before = known.before.partition(item.topic_id, item.partition)
        leader = known.before.brokers.get(request.broker_id)
        if before is None or before.leader != request.broker_id or before.leader_epoch != item.leader_epoch:
            self.fail(f"{where}: at offset {known.offset} the partition was {before}")
        if leader is None or leader.broker_epoch != request.broker_epoch:
            self.fail(f"{where}: at offset {known.offset} the broker was {leader}")
        for member in item.new_isr:
            registration = known.before.brokers.get(member.broker_id)
            if registration is None or not registration.active:
                self.fail(f"{where}: at offset {known.offset} its member {member} was {registration}")
            elif member.broker_epoch is not None and member.broker_epoch != registration.broker_epoch:
                self.fail(f"{where}: at offset {known.offset} its member {member} was in epoch {registration.broker_epoch}")
