"""Invariant 55: a leader sends a consumer to a follower that may serve it, and nobody else does."""

from __future__ import annotations

from typing import ClassVar

from kraftlite.model.ids import NodeId
from kraftlite.model.topic_partition import TopicIdPartition
from kraftlite.replication.api import FetchResult
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.replica_facts import PartitionChange, ReplicaChecker
from kraftlite.sim.service import FETCH, FetchAsk
from kraftlite.simhost.network import AnyExchange


class FollowerReads(ReplicaChecker):
    """Only a consumer that names its rack is sent away, by a leader in another rack, without records, to another replica in that
    rack which is in the ISR as of the partition epoch that the leader knows (KIP-392, RP-41), whose broker is alive as far as the
    leader knows, and which has told it that it has the offset. Invariants 29 and 38 judge what is read there, as they judge what
    is read at a leader."""

    numbers: ClassVar[tuple[int, ...]] = (55,)
    only_methods = (FETCH,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._isrs: dict[tuple[TopicIdPartition, int], tuple[NodeId, ...]] = {}
        """By partition and partition epoch, as the controller has committed them."""
        self.sent_away = 0

    def on_partition(self, change: PartitionChange) -> None:
        if change.new is not None:
            self._isrs[change.key, change.new.partition_epoch] = change.new.isr

    def on_served(self, exchange: AnyExchange, response: object) -> None:
        if not isinstance(response, FetchResult) or response.preferred_read_replica is None:
            return
        ask, node_id, preferred = exchange.request, NodeId(exchange.target), response.preferred_read_replica
        assert isinstance(ask, FetchAsk)
        self.sent_away += 1
        where = f"{ask.tp}: node {node_id} sends a consumer in rack {ask.rack} to node {preferred}"
        view = self.facts.view(node_id, ask.tp)
        if view is None:
            return  # it has died meanwhile
        if view.leader is None:
            self.fail(f"{where}, and is not the leader")
        if response.records:
            self.fail(f"{where}, with {len(response.records)} bytes of records")
        if ask.rack is None or self._rack(node_id) == ask.rack or self._rack(preferred) != ask.rack:
            self.fail(f"{where}; it is in rack {self._rack(node_id)}, the other in rack {self._rack(preferred)}")
        isr = self._isrs.get((view.key, view.partition_epoch))
        if preferred == node_id or (isr is not None and preferred not in isr):
            self.fail(f"{where}; the ISR of partition epoch {view.partition_epoch} is {isr}")

        self._check_fit(node_id, preferred, ask, where)

    def _check_fit(self, node_id: NodeId, preferred: NodeId, ask: FetchAsk, where: str) -> None:
        """By what the leader knows now: it has answered in the same turn in which it has read."""
        node = self.world.nodes[node_id].node
        broker = None if node is None else node.broker
        partition = None if broker is None else broker.replicas.partition(ask.tp)
        if broker is None or partition is None or partition.leader is None:
            return
        known = broker.replicas._table.image.cluster.brokers.get(preferred)
        if known is None or not known.active:
            self.fail(f"{where}, which is registered as {known}")
        follower = partition.leader.followers.get(preferred)
        end = None if follower is None else follower.leo
        if end is None or end < ask.offset:
            self.fail(f"{where} for offset {ask.offset}; that one has told it to end at {end}")

    def _rack(self, node_id: NodeId) -> str | None:
        return self.world.nodes[node_id].config.values.get("broker.rack")
