"""The users of a simulated cluster: producers of every kind, consumers, an administrator."""

from __future__ import annotations

import asyncio
import random
from typing import Any, Final

from kraftlite.model.errors import ErrorCode
from kraftlite.model.messages.controller import (
    AlterConfigOp,
    AlterPartitionReassignmentsRequest,
    ConfigChange,
    ConfigResourceChange,
    ConfigResourceType,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    DeleteTopicsRequest,
    ElectionType,
    ElectLeadersRequest,
    IncrementalAlterConfigsRequest,
    ReassignablePartition,
    TopicSelector,
)
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.sim import slow_publishers
from kraftlite.sim.client import SimAdmin, SimClient, SimConsumer, SimProducer
from kraftlite.sim.cluster import SimCluster
from kraftlite.sim.history import History, Verdict
from kraftlite.sim.shape import TopicPlan
from kraftlite.sim.themes import MEMBERSHIP, SINK, TRANSACTIONS
from kraftlite.sim.workloads.creation import TIMEOUT_MS, create
from kraftlite.sim.workloads.visits import visitors

RETENTION: Final = "retention.ms"
RETENTION_MS: Final = 1_000_000_000_000
"""So long that nothing expires, not even when a clock jumps by days."""


PAUSES: Final = {TRANSACTIONS: 5, SINK: 5, MEMBERSHIP: 3}
"""The factor by which everybody pauses longer, in the themes in which others work."""


class Workload:
    """Starts after `prepare`; `finish` returns when every producer has its verdicts."""

    def __init__(self, cluster: SimCluster, history: History, rng: random.Random) -> None:
        self.cluster = cluster
        self.history = history
        self.rng = rng
        self.admin = SimAdmin(cluster, 0, "admin", history)
        self.partitions = [
            TopicPartition(topic.name, index) for topic in cluster.shape.topics for index in range(topic.partitions)
        ]
        self.producers: list[SimProducer] = []
        self.clients: list[SimClient] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._made = 0
        self._churn_until_us = 0
        self._churn_gap_us = 0
        self._plain_topics = slow_publishers.comes_with(cluster.seed, cluster.theme)
        """Topics that come and go in a hurry have no configuration."""

    async def prepare(self) -> None:
        """The shape's topics exist afterwards."""
        for topic in self.cluster.shape.topics:
            while True:
                op = await self.admin.do("create_topics", create(topic), {"topic": topic.name, "partitions": topic.partitions})
                if op.verdict is Verdict.OK or op.error == ErrorCode.TOPIC_ALREADY_EXISTS.name:
                    break
                await self.admin.backoff()

    def start(self) -> None:
        rng, longer = self.rng, PAUSES.get(self.cluster.theme, 1)
        producers = [self._producer("idempotent", acks=-1, idempotent=True, in_flight=rng.choice((1, 2, 5)))]
        if rng.randrange(2):
            producers.append(self._producer("idempotent-2", acks=-1, idempotent=True, in_flight=rng.choice((1, 5))))
        if rng.randrange(2):
            acks = rng.choice((-1, 1, 0))
            producers.append(self._producer(f"plain-acks{acks}", acks=acks, idempotent=False, attempts=rng.choice((1, 3))))
        for producer in producers:
            self._run(producer.run(self.partitions, longer * rng.choice((30_000, 100_000, 300_000))))
        for number in range(rng.choice((1, 1, 2))):
            consumer = SimConsumer(self.cluster, 50 + number, f"consumer-{number}", self.history)
            self.clients.append(consumer)
            self._run(consumer.run(self.partitions, longer * rng.choice((100_000, 300_000))))
        self._run(self._administer(longer * rng.choice((400_000, 1_500_000))))
        for visitor, running in visitors(self.cluster, self.history, self.partitions):
            self.clients.append(visitor)
            self._run(running)

    def _producer(self, name: str, **settings: Any) -> SimProducer:
        producer = SimProducer(self.cluster, 1 + len(self.producers), name, self.history, **settings)
        self.producers.append(producer)
        self.clients.append(producer)
        return producer

    def _run(self, coro: Any) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(coro, context=self.cluster.outside))

    async def finish(self, limit_ms: int) -> str | None:
        """Stop; None when every record has its verdict, else who is stuck."""
        self.admin.stopping = True
        for client in self.clients:
            client.stopping = True
        _done, stuck = await asyncio.wait(self._tasks, timeout=limit_ms / 1000)
        for task in self._tasks:
            if task not in stuck:
                task.result()  # an error in the workload is a bug of the simulator
        if not stuck:
            return None
        waiting = [
            f"{it.name} {tp} {[(p.number, p.error) for batch in batches for p in batch]}"
            for it in self.producers
            for tp, batches in it.open.items()
            if batches
        ]
        return "; ".join(waiting) or f"{len(stuck)} clients"

    # --- the administrator

    def churn(self, for_ms: int, gap_ms: int) -> None:
        """Do nothing for a while from now on but create and delete topics."""
        self._churn_until_us = self.cluster.loop.now_us() + for_ms * 1000
        self._churn_gap_us = gap_ms * 1000

    async def _administer(self, mean_gap_us: int) -> None:
        admin, rng = self.admin, self.admin.rng
        topics: list[str] = []
        partitions: dict[str, int] = {}
        while not admin.stopping:
            churning = self.cluster.loop.now_us() < self._churn_until_us
            await admin.pause(rng.randint(1, 2 * (self._churn_gap_us if churning else mean_gap_us)))
            at = rng.choice((0, 9)) if churning else rng.randrange(12)
            if at < 3 and len(topics) < 6:
                await self._create(topics, partitions, everywhere=churning)
            elif at in (3, 9) and topics:
                name = topics.pop(rng.randrange(len(topics)))
                request = DeleteTopicsRequest(topics=(TopicSelector(name=name, topic_id=None),), timeout_ms=TIMEOUT_MS)
                await admin.do("delete_topics", request, {"topic": name})
            elif at == 4 and topics:
                name = rng.choice(topics)
                partitions[name] += 1
                item = CreatePartitionsTopic(name=name, count=partitions[name], assignments=None)
                growth = CreatePartitionsRequest(topics=(item,), validate_only=False, timeout_ms=TIMEOUT_MS)
                await admin.do("create_partitions", growth, {"topic": name, "partitions": partitions[name]})
            elif at < 8:
                await self._configure(topics)
            elif at == 8:
                request_all = ElectLeadersRequest(
                    election_type=int(ElectionType.PREFERRED), partitions=None, timeout_ms=TIMEOUT_MS
                )
                await admin.do("elect_leaders", request_all, {})
            elif at == 10 and not self.cluster.replicas_stay:
                await self._reassign()
            else:
                await admin.refresh()

    async def _create(self, topics: list[str], partitions: dict[str, int], *, everywhere: bool) -> None:
        """`everywhere`: with as many replicas as there can be, also on brokers that are only just coming."""
        rng = self.admin.rng
        most = min(3, len(self.cluster.brokers))
        self._made += 1
        name = f"a{self._made}"
        plan = TopicPlan(
            name=name,
            partitions=rng.randint(1, 3),
            replication=most if everywhere else rng.randint(1, most),
            config={} if everywhere and self._plain_topics else {RETENTION: str(RETENTION_MS + self._made)},
        )
        topics.append(name)
        partitions[name] = plan.partitions
        await self.admin.do("create_topics", create(plan), {"topic": name, "partitions": plan.partitions, "config": plan.config})

    async def _reassign(self) -> None:
        """Other brokers for a partition; or, now and then, no longer."""
        rng = self.admin.rng
        tp = rng.choice(self.partitions)
        brokers = [node.node_id for node in self.cluster.brokers]
        factor = next(topic.replication for topic in self.cluster.shape.topics if topic.name == tp.topic)
        wanted = None if rng.randrange(6) == 0 else tuple(rng.sample(brokers, factor))
        move = ReassignablePartition(topic=tp.topic, partition=tp.partition, replicas=wanted)
        request = AlterPartitionReassignmentsRequest(
            partitions=(move,), allow_replication_factor_change=True, timeout_ms=TIMEOUT_MS
        )
        await self.admin.do("alter_reassignments", request, {"partition": str(tp)})

    async def _configure(self, topics: list[str]) -> None:
        rng = self.admin.rng
        names = topics + [topic.name for topic in self.cluster.shape.topics]
        name = rng.choice(names)
        self._made += 1
        value = str(RETENTION_MS + self._made)
        change = ConfigChange(name=RETENTION, op=int(AlterConfigOp.SET), value=value)
        resource = ConfigResourceChange(resource_type=int(ConfigResourceType.TOPIC), resource_name=name, changes=(change,))
        request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False, timeout_ms=TIMEOUT_MS)
        await self.admin.do("alter_configs", request, {"topic": name, "config": {RETENTION: value}})
