"""A simulated administrator who takes moves back when it is too late: only replicas that a move adds are in sync (CM-44, CM-45).

It comes with a third of the seeds of its theme, and has a topic of its own, to which nobody writes. It moves the one replica to
two other brokers, of which one is down, so that the move goes on; when the other one is in sync it takes down the broker that the
replica came from. Then it cancels the move, which needs an unclean election, or asks for another one, which may not take the only
replica in sync away.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from kraftlite.metadata.registrations import PartitionRegistration
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.controller import (
    AlterPartitionReassignmentsRequest,
    ConfigPair,
    CreatableTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    ReassignablePartition,
    ReplicaAssignment,
    TopicSelector,
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

NUMBER: Final = 125
TOPIC: Final = "moving"


def comes_with(seed: int) -> bool:
    return random.Random(f"moves/{seed}").randrange(3) == 0


def visit(
    cluster: SimCluster, history: History, partitions: Sequence[TopicPartition]
) -> Iterator[tuple[SimClient, Coroutine[None, None, None]]]:
    mortal = [node for node in cluster.brokers if not node.config.is_controller]
    if comes_with(cluster.seed) and len(cluster.brokers) >= 3 and len(mortal) >= 2:
        it = MoveAdmin(cluster, history, NUMBER, "moves")
        yield it, it.run(0)


class MoveAdmin(SimOperator):
    """One move after the other. The brokers that it takes down are no controllers: they would be missed as such."""

    async def run(self, mean_gap_us: int) -> None:
        mortal = [node.node_id for node in self.cluster.brokers if not node.config.is_controller]
        while not self.stopping:
            await self.pause(self.rng.randint(1, 500_000))
            origin, down = self.rng.sample(mortal, 2)
            await self.send("create_topics", self._topic(origin), self.some_broker())
            if await self._until(lambda now, origin=origin: now is not None and now.leader == origin, 2_000):  # type: ignore[misc]
                await self._strand(origin, down)
            gone = DeleteTopicsRequest(topics=(TopicSelector(name=TOPIC, topic_id=None),), timeout_ms=TIMEOUT_MS)
            await self.send("delete_topics", gone, self.some_broker())

    def _topic(self, origin: NodeId) -> CreateTopicsRequest:
        unclean = ConfigPair(name="unclean.leader.election.enable", value=self.rng.choice(("true", "false")))
        topic = CreatableTopic(
            name=TOPIC,
            num_partitions=-1,
            replication_factor=-1,
            assignments=(ReplicaAssignment(partition=0, broker_ids=(origin,)),),
            configs=(unclean,),
        )
        return CreateTopicsRequest(topics=(topic,), validate_only=False, timeout_ms=TIMEOUT_MS)

    async def _strand(self, origin: NodeId, down: NodeId) -> None:
        """Begin a move that cannot end, leave only what it adds in sync, and take it back or ask for another one."""
        session_ms = period_ms(self.cluster.shape, "broker.session.timeout.ms", 9_000)
        away_ms = 2 * session_ms + 3_000
        added = self.rng.choice([it.node_id for it in self.cluster.brokers if it.node_id not in (origin, down)])
        self._kill(down, away_ms)
        await self._move(added, down)
        if not await self._until(lambda now: now is not None and added in now.isr, 3_000):
            return
        self._kill(origin, away_ms)
        await self._until(lambda now: now is not None and now.isr == (added,), session_ms + 2_000)
        if self.rng.randrange(3) == 0:
            await self._move(down)
        for _ in range(self.rng.choice((1, 2))):
            await self.pause(self.rng.randint(1, 300_000))
            await self._move()

    def _kill(self, broker: NodeId, for_ms: int) -> None:
        self.cluster.inflict(FaultPlan(at_ms=0, kind="kill", target=str(broker), for_ms=for_ms))

    async def _move(self, *replicas: NodeId) -> None:
        """Without replicas: cancel."""
        wanted = ReassignablePartition(topic=TOPIC, partition=0, replicas=replicas or None)
        request = AlterPartitionReassignmentsRequest(
            partitions=(wanted,), allow_replication_factor_change=True, timeout_ms=TIMEOUT_MS
        )
        running = [it.node_id for it in self.cluster.brokers if it.running]
        await self.send("alter_reassignments", request, self.rng.choice(running) if running else self.some_broker())

    def _now(self) -> PartitionRegistration | None:
        """The partition by the newest metadata of a broker that runs."""
        newest = self.cluster.newest_image()
        return None if newest is None else newest.topics.registration(TopicPartition(TOPIC, 0))

    async def _until(self, holds: Callable[[PartitionRegistration | None], bool], limit_ms: int) -> bool:
        end_us = self.now_us() + 1_000 * limit_ms
        while not holds(self._now()):
            if self.stopping or self.now_us() >= end_us:
                return False
            await self.pause(20_000)
        return True
