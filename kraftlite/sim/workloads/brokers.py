"""A simulated administrator who takes brokers out of the cluster in order, and puts them, or new ones of their ids, back in.

It does what `kraftlite remove-broker` does: the replicas move to the other brokers (by the same plan), the broker is stopped when
it has none, and unregistered. What comes back later is the machine with what is left on its disk, or one with an empty disk. It
acts when it is told to (`retire-broker`), and in seeds with a broker to spare by itself.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from kraftlite.client.errors import ClientError
from kraftlite.client.moves import planned_moves
from kraftlite.metadata.image import MetadataImage
from kraftlite.model.errors import ApiError
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.controller import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    UnregisterBrokerRequest,
)
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.ports import TransportError
from kraftlite.sim.client import SimClient
from kraftlite.sim.fault_plan import FaultPlan
from kraftlite.sim.history import History
from kraftlite.sim.service import ADMIN, AdminAsk

if TYPE_CHECKING:
    from kraftlite.sim.cluster import SimCluster

NUMBER: Final = 88
TIMEOUT_MS: Final = 3_000
GAP_US: Final = 2_000_000
PATIENCE_US: Final = 6_000_000
"""The time in which the replicas of a broker have to move: a broker that others wait for may be down."""
AWAY_MS: Final = (1, 100, 1_500, 4_000)
LATE_MS: Final = 15_000


def visit(
    cluster: SimCluster, history: History, partitions: Sequence[TopicPartition]
) -> Iterator[tuple[SimClient, Coroutine[None, None, None]]]:
    it = BrokerAdmin(cluster, NUMBER, "brokers", history)
    yield it, it.run()


class BrokerAdmin(SimClient):
    """One broker after the other: two at once would have no place for their replicas."""

    def __init__(self, cluster: SimCluster, number: int, name: str, history: History) -> None:
        super().__init__(cluster, number, name, history)
        self._ordered: list[NodeId] = []
        if len(cluster.brokers) > 1:
            cluster.retire_broker = self._ordered.append
        most = max(topic.replication for topic in cluster.shape.topics)
        self._by_itself = len(cluster.brokers) > most

    async def run(self) -> None:
        leaving: NodeId | None
        while not self.stopping:
            await self.pause(self.rng.randint(1, 2 * GAP_US) if not self._ordered else 1)
            if self._ordered:
                leaving = self._ordered.pop(0)
            else:
                leaving = self.rng.choice([it.node_id for it in self.cluster.brokers]) if self._by_itself else None
            if leaving is not None and not self.cluster.nodes[leaving].config.is_controller and await self._drain(leaving):
                await self._take_out(leaving)

    # --- replicas

    async def _drain(self, leaving: NodeId) -> bool:
        """Move every replica off the broker; returns whether it has none by the metadata of another broker."""
        end_us = self.now_us() + PATIENCE_US
        while not self.stopping and self.now_us() < end_us:
            broker, image = self._other(leaving)
            if image is None:
                await self.backoff()
                continue
            replicas = {
                (name, index): [int(one) for one in it.replicas if one not in it.removing_replicas]
                for name, topic in image.topics.by_name.items()
                for index, it in topic.partitions.items()
            }
            if all(leaving not in it.replicas for topic in image.topics.by_name.values() for it in topic.partitions.values()):
                return True
            running = [int(it.node_id) for it in self.cluster.brokers if it.running]
            try:
                moves = planned_moves(replicas, int(leaving), running)
            except ClientError:  # there is no place for them now
                return False
            if moves:
                await self._move(broker, moves)
            await self.backoff()
        return False

    def _other(self, leaving: NodeId) -> tuple[NodeId, MetadataImage | None]:
        """Another broker, and the metadata that it has; None where it does not run."""
        node = self.rng.choice([it for it in self.cluster.brokers if it.node_id != leaving])
        broker = None if node.node is None or not node.started else node.node.broker
        return node.node_id, None if broker is None else broker.cache.image

    async def _move(self, broker: NodeId, moves: dict[tuple[str, int], list[int]]) -> None:
        wanted = tuple(
            ReassignablePartition(topic=name, partition=index, replicas=tuple(map(NodeId, replicas)))
            for (name, index), replicas in sorted(moves.items())
        )
        request = AlterPartitionReassignmentsRequest(
            partitions=wanted, allow_replication_factor_change=True, timeout_ms=TIMEOUT_MS
        )
        await self._ask(broker, "alter_reassignments", request)

    async def _ask(self, broker: NodeId, kind: str, request: object) -> bool:
        """Return whether it was carried out, as far as is known."""
        try:
            await self.call(broker, ADMIN, AdminAsk(kind, request), TIMEOUT_MS)
        except (TransportError, ApiError):
            return False
        return True

    # --- the machine

    async def _take_out(self, leaving: NodeId) -> None:
        """Stop the broker, unregister it, and let it come back: two of three times with an empty disk. One of which nobody knows
        whether it is unregistered comes back late."""
        node, rng = self.cluster.nodes[leaving], self.rng
        away_ms = rng.choice(AWAY_MS)
        self.cluster.inflict(FaultPlan(at_ms=0, kind="stop", target=str(leaving), for_ms=LATE_MS))
        end_us = self.now_us() + PATIENCE_US
        while node.running and self.now_us() < end_us:
            await self.pause(20_000)
        broker, image = self._other(leaving)
        if node.running or image is None:
            return
        request = UnregisterBrokerRequest(broker_id=leaving, timeout_ms=TIMEOUT_MS)
        if await self._ask(broker, "unregister_broker", request) and not node.running:
            kind = "wipe" if rng.randrange(3) else "kill"  # what does not run is not killed, but comes back
            self.cluster.inflict(FaultPlan(at_ms=0, kind=kind, target=str(leaving), for_ms=away_ms))
