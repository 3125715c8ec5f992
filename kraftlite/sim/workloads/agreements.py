"""A simulated administrator who asks for what has to agree with something else: the number of replicas with that of a partition
that moves (KIP-860), and levels of features that need each other (KIP-584).

It comes with half of the seeds of its theme, and has a random stream and a topic of its own, to which nobody writes.
"""

from __future__ import annotations

import random
from collections.abc import Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from kraftlite.metadata.features import ELIGIBLE_LEADER_REPLICAS_VERSION, LATEST_METADATA_VERSION, METADATA_VERSION
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.controller import (
    AlterPartitionReassignmentsRequest,
    CreatableTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    FeatureUpdate,
    ReassignablePartition,
    ReplicaAssignment,
    TopicSelector,
    UpdateFeaturesRequest,
)
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.sim.client import SimClient
from kraftlite.sim.fault_plan import FaultPlan
from kraftlite.sim.history import History
from kraftlite.sim.targets import period_ms
from kraftlite.sim.workloads.admin import SimOperator
from kraftlite.sim.workloads.creation import TIMEOUT_MS

if TYPE_CHECKING:
    from kraftlite.sim.cluster import SimCluster

NUMBER: Final = 127
TOPIC: Final = "agreed"
UP: Final = 1


def comes_with(seed: int) -> bool:
    return random.Random(f"agreements/{seed}").randrange(2) == 0


def visit(
    cluster: SimCluster, history: History, partitions: Sequence[TopicPartition]
) -> Iterator[tuple[SimClient, Coroutine[None, None, None]]]:
    if comes_with(cluster.seed):
        it = AgreementsAdmin(cluster, history, NUMBER, "agreements")
        yield it, it.run(it.rng.choice((300_000, 800_000)))


class AgreementsAdmin(SimOperator):
    """One thing after the other. Levels are only asked for, and stay as they are."""

    async def run(self, mean_gap_us: int) -> None:
        mortal = [node.node_id for node in self.cluster.brokers if not node.config.is_controller]
        while not self.stopping:
            await self.pause(self.rng.randint(1, 2 * mean_gap_us))
            if len(self.cluster.brokers) >= 3 and mortal and self.rng.randrange(2):
                await self._move_on(self.rng.choice(mortal))
            else:
                await self._ask_for_levels()

    async def _ask_for_levels(self) -> None:
        """Ask for one of two that depend on each other, or for both."""
        updates = [
            FeatureUpdate(name=ELIGIBLE_LEADER_REPLICAS_VERSION, level=self.rng.choice((0, 1, 1)), upgrade_type=UP),
            FeatureUpdate(name=METADATA_VERSION, level=self.rng.choice((22, 23, LATEST_METADATA_VERSION)), upgrade_type=UP),
        ]
        some = self.rng.choice((updates[:1], updates[:1], updates[1:], updates))
        request = UpdateFeaturesRequest(updates=tuple(some), validate_only=True, timeout_ms=TIMEOUT_MS)
        await self.send("update_features", request, self.some_broker())

    async def _move_on(self, down: NodeId) -> None:
        """Begin a move that waits for a broker which is down, and ask for others meanwhile that keep the number of replicas or do
        not."""
        others = [it.node_id for it in self.cluster.brokers if it.node_id != down]
        here = tuple(self.rng.sample(others, self.rng.randint(1, min(3, len(others)))))
        topic = CreatableTopic(
            name=TOPIC,
            num_partitions=-1,
            replication_factor=-1,
            assignments=(ReplicaAssignment(partition=0, broker_ids=here),),
            configs=(),
        )
        create = CreateTopicsRequest(topics=(topic,), validate_only=False, timeout_ms=TIMEOUT_MS)
        await self.send("create_topics", create, self.some_broker())
        away_ms = period_ms(self.cluster.shape, "broker.session.timeout.ms", 9_000) + 2_000
        self.cluster.inflict(FaultPlan(at_ms=0, kind="kill", target=str(down), for_ms=away_ms))
        await self._move((*here[1:], down), any_factor=True)
        for _ in range(self.rng.randint(2, 5)):
            size = self.rng.randint(1, min(len(others), len(here) + 1))
            await self._move(
                tuple(self.rng.sample(others, size)) if self.rng.randrange(2) else (*here[1:], down), any_factor=False
            )
        gone = DeleteTopicsRequest(topics=(TopicSelector(name=TOPIC, topic_id=None),), timeout_ms=TIMEOUT_MS)
        await self.send("delete_topics", gone, self.some_broker())

    async def _move(self, replicas: tuple[NodeId, ...], *, any_factor: bool) -> None:
        wanted = ReassignablePartition(topic=TOPIC, partition=0, replicas=replicas)
        request = AlterPartitionReassignmentsRequest(
            partitions=(wanted,), allow_replication_factor_change=any_factor, timeout_ms=TIMEOUT_MS
        )
        running = [it.node_id for it in self.cluster.brokers if it.running]
        await self.send("alter_reassignments", request, self.rng.choice(running) if running else self.some_broker())
