"""A simulated administrator who throttles replication while replicas catch up, and lifts the throttles again (KIP-73).

It comes with a quarter of the seeds of its theme, and writes to a topic of its own. Replicas fall behind there: a move adds
them, or their broker is killed. In these seeds the rates are measured over few windows.
"""

from __future__ import annotations

import contextlib
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kraftlite.log.batch import Record, build_batch
from kraftlite.model.errors import ApiError
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.controller import (
    AlterConfigOp,
    AlterPartitionReassignmentsRequest,
    ConfigChange,
    ConfigResourceChange,
    ConfigResourceType,
    CreatableTopic,
    CreateTopicsRequest,
    IncrementalAlterConfigsRequest,
    ReassignablePartition,
    ReplicaAssignment,
)
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.ports import TransportError
from kraftlite.sim.fault_plan import FaultPlan
from kraftlite.sim.history import History
from kraftlite.sim.service import PRODUCE, ProduceAsk
from kraftlite.sim.workloads.admin import SimOperator
from kraftlite.sim.workloads.creation import TIMEOUT_MS
from kraftlite.sim.workloads.throttle_settings import comes_with

if TYPE_CHECKING:
    from kraftlite.sim.client import SimClient
    from kraftlite.sim.cluster import SimCluster

NUMBER: Final = 127
TOPIC: Final = "throttled"
PARTITIONS: Final = 2
LIFTS: Final = 10
"""The attempts at the end to leave no throttle behind."""

SIDES: Final = ("leader", "follower")


def visit(
    cluster: SimCluster, history: History, partitions: Sequence[TopicPartition]
) -> Iterator[tuple[SimClient, Coroutine[None, None, None]]]:
    if comes_with(cluster.seed) and len(cluster.brokers) >= 2:
        it = ThrottleAdmin(cluster, history, NUMBER, "throttles")
        yield it, it.run(0)


class ThrottleAdmin(SimOperator):
    """One round after the other: replicas fall behind, and are throttled on the side of the leaders, of the followers, or on
    both; in some rounds they are not. Some time later the rates are lifted, or the lists of replicas, or both."""

    async def run(self, mean_gap_us: int) -> None:
        await self._create()
        await self._write(self.rng.choice((30, 100)))
        while not self.stopping:
            await self.pause(self.rng.randint(1, 300_000))
            throttled = self.rng.choice((SIDES[:1], SIDES[1:], SIDES, SIDES, ()))
            if self.rng.randrange(4):
                await self._throttle(throttled)
                await self._fall_behind()
            else:
                await self._fall_behind()
                await self._throttle(throttled)
            for _ in range(self.rng.choice((3, 10, 20))):
                if not self.stopping:
                    await self._write(self.rng.choice((1, 4)))
                    await self.pause(self.rng.randint(50_000, 400_000))
            await self._lift()
            await self.pause(self.rng.choice((500_000, 3_000_000)))
        for _ in range(LIFTS):
            if await self._lift(all_of_it=True):
                break
            await self.backoff()

    # --- what there is

    async def _create(self) -> None:
        """Replicas on all brokers but one, where there are so many."""
        brokers = list(self.sight.brokers)
        while not self.stopping:
            self.rng.shuffle(brokers)
            few = brokers[: max(1, min(2, len(brokers) - 1))]
            assignments = tuple(
                ReplicaAssignment(partition=index, broker_ids=tuple(few[index % len(few) :] + few[: index % len(few)]))
                for index in range(PARTITIONS)
            )
            topic = CreatableTopic(name=TOPIC, num_partitions=-1, replication_factor=-1, assignments=assignments, configs=())
            request = CreateTopicsRequest(topics=(topic,), validate_only=False, timeout_ms=TIMEOUT_MS)
            await self.send("create_topics", request, self._any_running())
            newest = self.cluster.newest_image()
            if newest is not None and newest.topics.topic(TOPIC) is not None:
                return
            await self.backoff()

    async def _write(self, batches: int) -> None:
        for _ in range(batches):
            tp = TopicPartition(TOPIC, self.rng.randrange(PARTITIONS))
            leader = await self.leader(tp)
            if leader is None or self.stopping:
                await self.refresh()
                return
            value = self.rng.randbytes(self.rng.choice((100, 900, 900, 3000)))
            batch = bytes(build_batch([Record(key=None, value=value)], timestamp_ms=self.cluster.wall_ms()))
            try:
                answer = await self.call(leader, PRODUCE, ProduceAsk(tp, 1, 1_000, batch))
            except (TransportError, ApiError):
                await self.refresh()
                return
            if answer.error:
                await self.refresh()

    # --- who falls behind

    async def _fall_behind(self) -> None:
        mortal = [node.node_id for node in self.cluster.brokers if not node.config.is_controller]
        if mortal and self.rng.randrange(3) == 0:
            down = FaultPlan(at_ms=0, kind="kill", target=str(self.rng.choice(mortal)), for_ms=self.rng.choice((300, 4_000)))
            self.cluster.inflict(down)
            await self._write(self.rng.choice((10, 30)))
            return
        partitions = range(PARTITIONS) if self.rng.randrange(2) else (self.rng.randrange(PARTITIONS),)
        wanted = tuple(
            ReassignablePartition(topic=TOPIC, partition=index, replicas=tuple(self._replicas())) for index in partitions
        )
        request = AlterPartitionReassignmentsRequest(
            partitions=wanted, allow_replication_factor_change=True, timeout_ms=TIMEOUT_MS
        )
        await self.send("alter_reassignments", request, self._any_running())

    def _replicas(self) -> Sequence[NodeId]:
        brokers = self.sight.brokers
        return self.rng.sample(brokers, self.rng.randint(1, min(3, len(brokers))))

    def _any_running(self) -> NodeId:
        running = [it.node_id for it in self.cluster.brokers if it.running]
        return self.rng.choice(running) if running else self.some_broker()

    # --- throttles

    async def _throttle(self, sides: Sequence[str]) -> None:
        rate = str(self.rng.choice((0, 1_000, 1_000, 3_000)))
        lists = {f"{side}.replication.throttled.replicas": self._listed() for side in sides}
        if not sides:
            return
        first = self.rng.randrange(2)
        if first:
            await self._set(ConfigResourceType.TOPIC, TOPIC, lists)
        for broker in self.rng.sample(self.sight.brokers, len(self.sight.brokers)):
            name = str(broker) if self.rng.randrange(10) else ""  # for all brokers at once it is refused
            await self._set(ConfigResourceType.BROKER, name, {f"{side}.replication.throttled.rate": rate for side in sides})
        if not first:
            await self._set(ConfigResourceType.TOPIC, TOPIC, lists)

    def _listed(self) -> str:
        if self.rng.randrange(2):
            return "*"
        pairs = [f"{index}:{broker}" for index in range(PARTITIONS) for broker in self.sight.brokers]
        return ",".join(self.rng.sample(pairs, self.rng.randint(1, len(pairs))))

    async def _lift(self, *, all_of_it: bool = False) -> bool:
        """Return whether everything was taken. Half of a throttle throttles nobody; what is left goes another time."""
        gone = dict.fromkeys(f"{side}.replication.throttled.rate" for side in SIDES)
        rates, lists, done = self.rng.choice(((True, True), (True, False), (False, True))), True, True
        if all_of_it or rates[0]:
            for broker in self.sight.brokers:
                done &= await self._set(ConfigResourceType.BROKER, str(broker), gone)
        if all_of_it or rates[1]:
            lists = await self._set(
                ConfigResourceType.TOPIC, TOPIC, dict.fromkeys(f"{side}.replication.throttled.replicas" for side in SIDES)
            )
        return done and lists

    async def _set(self, kind: ConfigResourceType, name: str, values: Mapping[str, str | None]) -> bool:
        """None: delete. A broker is asked for itself while it runs."""
        changes = tuple(
            ConfigChange(name=key, op=int(AlterConfigOp.DELETE if text is None else AlterConfigOp.SET), value=text)
            for key, text in values.items()
        )
        resource = ConfigResourceChange(resource_type=int(kind), resource_name=name, changes=changes)
        request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False, timeout_ms=TIMEOUT_MS)
        itself = [it.node_id for it in self.cluster.brokers if str(it.node_id) == name and it.running]
        op = None
        with contextlib.suppress(TransportError, ApiError):
            op = await self.send("alter_configs", request, itself[0] if itself else self._any_running())
        return op is not None and op.error is None
