"""A simulated administrator who takes a replica of a partition away and gives it back, so that its leader leads on in the next
epoch: followers and sessions stay, and what was under way belongs to another epoch when it arrives.

It comes with an eighth of the plain and troubled seeds, and has a random stream of its own.
"""

from __future__ import annotations

import random
from collections.abc import Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from kraftlite.metadata.image import MetadataImage
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.controller import AlterPartitionReassignmentsRequest, ReassignablePartition
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.sim.client import SimAdmin, SimClient
from kraftlite.sim.history import History
from kraftlite.sim.themes import PLAIN, TROUBLES
from kraftlite.sim.workloads.creation import TIMEOUT_MS

if TYPE_CHECKING:
    from kraftlite.sim.cluster import SimCluster

NUMBER: Final = 82
ONE_SEED_IN: Final = {PLAIN: 8, TROUBLES: 8}
GAPS_US: Final = (50_000, 200_000)
"""The mean times between two moves, one of which a seed takes."""


def comes_with(theme: str, seed: int) -> bool:
    return theme in ONE_SEED_IN and random.Random(f"thinning/{seed}").randrange(ONE_SEED_IN[theme]) == 0


def visit(
    cluster: SimCluster, history: History, partitions: Sequence[TopicPartition]
) -> Iterator[tuple[SimClient, Coroutine[None, None, None]]]:
    replicated = {topic.name for topic in cluster.shape.topics if topic.replication > 2}
    thinned = [tp for tp in sorted(partitions) if tp.topic in replicated]
    if thinned and comes_with(cluster.theme, cluster.seed):
        it = Thinner(cluster, NUMBER, "thinning", history)
        yield it, it.run(thinned, it.rng.choice(GAPS_US))


class Thinner(SimAdmin):
    """Always leaves the leader and one follower; gives back what a partition lacks before it takes away anything else of it."""

    async def run(self, partitions: Sequence[TopicPartition], mean_gap_us: int) -> None:
        while not self.stopping:
            await self.pause(self.rng.randint(1, 2 * mean_gap_us))
            tp = self.rng.choice(partitions)
            replicas = self._wanted(tp)
            if replicas is not None:
                move = ReassignablePartition(topic=tp.topic, partition=tp.partition, replicas=replicas)
                request = AlterPartitionReassignmentsRequest(
                    partitions=(move,), allow_replication_factor_change=True, timeout_ms=TIMEOUT_MS
                )
                await self.do("alter_reassignments", request, {"partition": str(tp)})

    def _wanted(self, tp: TopicPartition) -> tuple[NodeId, ...] | None:
        found = self._newest().topics.registration(tp)
        if found is None or found.leader is None or found.adding_replicas or found.removing_replicas:
            return None
        factor = next(topic.replication for topic in self.cluster.shape.topics if topic.name == tp.topic)
        if len(found.replicas) < factor:
            others = [it.node_id for it in self.cluster.brokers if it.node_id not in found.replicas]
            return (*found.replicas, self.rng.choice(others))
        if self.cluster.replicas_stay:
            return None
        gone = self.rng.choice([it for it in found.replicas if it != found.leader])
        return tuple(it for it in found.replicas if it != gone)

    def _newest(self) -> MetadataImage:
        images = [it.node.broker.cache.image for it in self.cluster.brokers if it.started and it.node and it.node.broker]
        return max(images, key=lambda it: it.offset, default=MetadataImage.EMPTY)
