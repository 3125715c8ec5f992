"""Transactions: producers under a few transactional ids, copiers that commit offsets with what they write, and readers of what is
committed.

A transactional id has one instance after another. One dies in the middle of a transaction; or it lives on beside the next, which
fences it, and goes on to send late. Instances are of transaction.version 0, which add partitions themselves, or of 2. The
workload has topics of its own, in which nobody else writes.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from kraftlite.coordinator.core.placement import OFFSETS_TOPIC, TRANSACTION_TOPIC
from kraftlite.metadata.features import TRANSACTION_VERSION
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.controller import (
    AlterPartitionReassignmentsRequest,
    DeleteTopicsRequest,
    FeatureUpdate,
    ReassignablePartition,
    TopicSelector,
    UpdateFeaturesRequest,
)
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.replication.delete_records import UP_TO_HW
from kraftlite.runtime.ports import TransportError
from kraftlite.sim.client import SimAdmin, SimClient
from kraftlite.sim.history import History, Verdict
from kraftlite.sim.services.logs import DELETE_RECORDS, DeleteAsk
from kraftlite.sim.shape import TopicPlan
from kraftlite.sim.workloads import transaction_groups, transaction_hanging
from kraftlite.sim.workloads.creation import create
from kraftlite.sim.workloads.transaction_client import TransactionClient
from kraftlite.sim.workloads.transaction_copying import CopyingInstance
from kraftlite.sim.workloads.transaction_instance import PASSING, Instance
from kraftlite.sim.workloads.transactions_history import COMPACTED, HANGING, Reading

if TYPE_CHECKING:
    from kraftlite.sim.cluster import SimCluster

NUMBER: Final = 300
"""The first client of this workload, behind those of all others."""
LAST_WORDS_US: Final = 20_000_000
"""Longer than any request of a run between brokers may take."""
INPUT: Final = "tx-in"
OUTPUT: Final = "tx-out"


def visit(
    cluster: SimCluster, history: History, partitions: Sequence[TopicPartition]
) -> Iterator[tuple[SimClient, Coroutine[None, None, None]]]:
    rng = random.Random(f"transactions/visit/{cluster.seed}")
    most = min(3, len(cluster.brokers))
    replication = rng.choice((most, most, 1))
    config = {"min.insync.replicas": str(rng.choice((1, min(2, replication))))}
    topics = [
        TopicPlan(name=name, partitions=rng.choice((1, 2, 3)), replication=replication, config=config) for name in (INPUT, OUTPUT)
    ]
    hangs = _something_hangs(cluster.seed)
    if hangs:
        topics.append(TopicPlan(name=HANGING, partitions=1, replication=most, config={}))
    inputs = [TopicPartition(INPUT, index) for index in range(topics[0].partitions)]
    outputs = [TopicPartition(OUTPUT, index) for index in range(topics[1].partitions)]
    admin = TopicMaker(cluster, NUMBER, "transactions-admin", history)
    yield admin, admin.run(topics, compacted_topics(cluster.seed, most))
    for index in range(rng.choice((1, 2, 3))):
        producer = Succession(cluster, NUMBER + 1 + index, f"x{index}", history)
        yield producer, producer.run(inputs, outputs if rng.randrange(3) == 0 else inputs)
    for index in range(rng.choice((0, 1, 1))):
        copier = Succession(cluster, NUMBER + 10 + index, f"copier-{index}", history)
        yield copier, copier.run(inputs, outputs, CopyingInstance)
    for index in range(rng.choice((1, 2))):
        reader = CommittedReader(cluster, NUMBER + 20 + index, f"committed-{index}", history)
        yield reader, reader.run((*inputs, *outputs, *([transaction_hanging.PLACE] if hangs else ())))
    if hangs:
        yield from transaction_hanging.visit(cluster, history)
    more = random.Random(f"transactions/groups/{cluster.seed}")
    if more.randrange(2) == 0:
        yield from transaction_groups.mixers(cluster, history, inputs, more)
        for index in range(more.choice((1, 1, 2))):
            mixer = Succession(cluster, NUMBER + 30 + index, f"mixer-{index}", history)
            yield mixer, mixer.run(inputs, outputs, transaction_groups.MixingInstance)
    if more.randrange(3) == 0:
        yield from transaction_groups.members(cluster, history, inputs, outputs, more)


def compacted_topics(seed: int, most: int) -> Sequence[TopicPlan]:
    """In some seeds a topic whose segments are closed, and cleaned, while transactions are open in it."""
    rng = random.Random(f"transactions/compacted/{seed}")
    if rng.randrange(3):
        return ()
    config = {
        "cleanup.policy": "compact",
        "segment.bytes": rng.choice(("300", "700", "1500")),
        "min.cleanable.dirty.ratio": "0",
        "delete.retention.ms": rng.choice(("0", "2000")),
        "min.insync.replicas": str(min(2, most)),
    }
    return (TopicPlan(name=COMPACTED, partitions=rng.choice((1, 1, 2)), replication=most, config=config),)


def _something_hangs(seed: int) -> bool:
    return random.Random(f"transactions/hanging/{seed}").randrange(4) == 0


def is_ready(history: History, *topics: str) -> bool:
    return all(topic in history.transactions.topics for topic in topics)


class TopicMaker(SimAdmin):
    """Creates the topics of the workload; in some seeds it moves partitions, deletes a topic that transactions write to and
    creates it again, deletes its records, or changes `transaction.version`."""

    async def run(self, topics: Sequence[TopicPlan], compacted: Sequence[TopicPlan] = ()) -> None:
        self.more = random.Random(f"transactions/passing/{self.cluster.seed}")
        await self._create(topics)
        for plan in compacted:
            if await self._made(plan):
                places = [TopicPartition(plan.name, index) for index in range(plan.partitions)]
                self.history.transactions.compacted += places
        moves, comes_and_goes, changes = (self.rng.randrange(among) == 0 for among in (3, 4, 6))
        cutting = random.Random(f"transactions/cutting/{self.cluster.seed}")
        brokers = [node.node_id for node in self.cluster.brokers]
        while not self.stopping and (moves or comes_and_goes or changes):
            await self.pause(self.rng.randint(200_000, 2_000_000))
            if moves and len(brokers) > 1:
                await self._move(topics, brokers)
            if comes_and_goes and self.rng.randrange(2):
                await self._come_and_go(brokers)
            if comes_and_goes and cutting.randrange(3):
                await self._cut(cutting)
            if changes and self.rng.randrange(3) == 0:
                level = self.rng.choice((0, 1, 2, 2))
                update = FeatureUpdate(name=TRANSACTION_VERSION, level=level, upgrade_type=2)
                request = UpdateFeaturesRequest(updates=(update,), validate_only=False, timeout_ms=4_000)
                await self.do("update_features", request, {"feature": TRANSACTION_VERSION, "level": level})

    async def _move(self, topics: Sequence[TopicPlan], brokers: Sequence[NodeId]) -> None:
        """Other brokers for a partition that is written to in transactions, or for one of the offsets or of the coordinators."""
        await self.refresh()
        names = [topic.name for topic in topics] + [OFFSETS_TOPIC, TRANSACTION_TOPIC]
        known = [] if self.known is None else sorted(it for it in self.known.leaders if it.topic in names)
        if not known:
            return
        tp = known[self.rng.randrange(len(known))]
        factor = self.rng.randint(1, min(3, len(brokers))) if tp.topic == OFFSETS_TOPIC else min(3, len(brokers))
        replicas = tuple(self.rng.sample(list(brokers), factor))
        move = ReassignablePartition(topic=tp.topic, partition=tp.partition, replicas=replicas)
        request = AlterPartitionReassignmentsRequest(partitions=(move,), allow_replication_factor_change=True, timeout_ms=4_000)
        await self.do("alter_reassignments", request, {"partition": str(tp)})

    async def _come_and_go(self, brokers: Sequence[NodeId]) -> None:
        """Delete the topic, mostly while a transaction has written there; it may be gone for seconds, and when the run ends."""
        passing = self.history.transactions
        if passing.passing and self.more.randrange(4):
            await self._wait_for_use()
        passing.passing = False
        gone = DeleteTopicsRequest(topics=(TopicSelector(name=PASSING.topic, topic_id=None),), timeout_ms=4_000)
        await self.do("delete_topics", gone, {"topic": PASSING.topic})
        await self.pause(self.rng.choice((1, 200_000)))
        if self.more.randrange(3) == 0:
            await self.pause(self.more.choice((1_000_000, 4_000_000, 20_000_000)))
        if self.stopping:
            return
        plan = TopicPlan(name=PASSING.topic, partitions=1, replication=min(2, len(brokers)), config={})
        op = await self.do("create_topics", create(plan), {"topic": PASSING.topic, "partitions": 1})
        if op.verdict is Verdict.OK:
            passing.passing = True

    async def _cut(self, rng: random.Random) -> None:
        """R17: delete what consumers can read of the topic, mostly while a transaction has written there. Who reads only what is
        committed is then given a part of the transaction, so nobody is told what these readers should get."""
        if not self.history.transactions.passing:
            return
        if rng.randrange(4):
            await self._wait_for_use()
        await self.refresh()
        leader, _ = (None, -1) if self.known is None else self.known.leaders.get(PASSING, (None, -1))
        if leader is not None and not self.stopping:
            with contextlib.suppress(ApiError, TransportError):
                await self.call(leader, DELETE_RECORDS, DeleteAsk(PASSING, UP_TO_HW, 2_000), 3_000)

    async def _wait_for_use(self) -> None:
        """Until a transaction that has not ended has written to the topic, or for a second."""
        for _ in range(100):
            last = self.history.transactions.tried[-6:]
            if self.stopping or any(it.ended_us is None and any(sent.tp == PASSING for sent in it.sends) for it in last):
                return
            await self.pause(10_000)

    async def _create(self, topics: Sequence[TopicPlan]) -> None:
        for topic in topics:
            if await self._made(topic):
                self.history.transactions.topics.append(topic.name)

    async def _made(self, topic: TopicPlan) -> bool:
        """Create a topic, and return whether it is there; False: the run ends."""
        while not self.stopping:
            facts = {"topic": topic.name, "partitions": topic.partitions}
            op = await self.do("create_topics", create(topic), facts)
            if op.verdict is Verdict.OK or op.error == ErrorCode.TOPIC_ALREADY_EXISTS.name:
                return True
            await self.backoff()
        return False


class Succession(TransactionClient):
    """The instances of one transactional id: its name is the id."""

    def __init__(self, cluster: SimCluster, number: int, name: str, history: History) -> None:
        super().__init__(cluster, number, name, history)
        self.timeout_ms = self.rng.choice((1_000, 3_000, 6_000))
        self._timeouts = random.Random(f"transactions/timeouts/{cluster.seed}/{name}")
        self._patience = self._timeouts.choice(((self.timeout_ms,), (1_000, 3_000, 6_000)))
        """The timeouts that its instances ask for."""
        self._versions = self.rng.choice(((0,), (2,), (2,), (0, 2)))
        self._gap_us = self.rng.choice((2_000, 60_000, 150_000, 400_000))

    async def run(
        self, inputs: Sequence[TopicPartition], targets: Sequence[TopicPartition], kind: type[CopyingInstance] | None = None
    ) -> None:
        """One instance after another; `kind`: of those that commit offsets. At the end a fresh one must be able to commit."""
        while not is_ready(self.history, INPUT, OUTPUT):
            if self.stopping:
                return
            await self.pause(100_000)
        late: list[asyncio.Task[None]] = []
        number = 0
        while True:
            version = self.rng.choice(self._versions)
            self.timeout_ms = self._timeouts.choice(self._patience)
            if kind is not None:
                instance: Instance = kind(self, number, version, targets, self._gap_us, inputs)
            else:
                instance = Instance(self, number, version, targets, self._gap_us)
            task = asyncio.get_running_loop().create_task(instance.run(), context=self.cluster.outside)
            await self._live(instance, task)
            if task.done():
                task.result()
            elif self.stopping:
                await task
            elif self.rng.randrange(2):
                task.cancel()
                await asyncio.wait([task])
            else:
                late.append(task)  # it does not know yet that there is another
            number += 1
            if self.stopping:
                break
        for task in late:
            await task
        await self._last_words(number, targets)

    async def _last_words(self, number: int, targets: Sequence[TopicPartition]) -> None:
        """Fresh instances, one after another, until one has committed. A question of a leader that was lost before all was well
        holds up those that come behind it, until its time is over."""
        self.be_patient_again()
        self.timeout_ms, end_us = 20_000, self.now_us() + LAST_WORDS_US
        words = self.history.transactions.last_words
        words[self.name] = False
        while not words[self.name] and self.now_us() < end_us:
            words[self.name] = await Instance(self, number, self._versions[0], targets, self._gap_us).last_word()
            number += 1

    async def _live(self, instance: Instance, task: asyncio.Task[None]) -> None:
        """Until the instance has ended, or for some seconds, or until the run ends. Half of the successors begin just when it
        ends a transaction."""
        end_us = self.now_us() + self.rng.randint(500_000, 6_000_000)
        while not task.done() and not self.stopping and self.now_us() < end_us:
            await asyncio.wait([task], timeout=0.1)
        if not task.done() and not self.stopping and self.rng.randrange(2):
            ending = asyncio.get_running_loop().create_task(instance.ending.wait(), context=self.cluster.outside)
            await asyncio.wait([task, ending], timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
            ending.cancel()
            await self.pause(self.rng.choice((1, 300, 2_000)))


class CommittedReader(TransactionClient):
    """Reads partitions with isolation read_committed from their beginning; begins anew now and then."""

    async def run(self, partitions: Sequence[TopicPartition]) -> None:
        readings: dict[TopicPartition, Reading] = {}
        while not self.stopping:
            tp = partitions[self.rng.randrange(len(partitions))]
            if not is_ready(self.history, tp.topic):
                await self.pause(100_000)
                continue
            reading = readings.get(tp)
            if reading is None or self.rng.randrange(60) == 0:
                reading = readings[tp] = Reading(client=self.name, tp=tp)
                self.history.transactions.readings.append(reading)
            found = await self.fetch_committed(tp, reading.end)
            if found is not None:
                reading.end = found[0]
                reading.records += found[1]
            await self.pause(self.rng.randint(1, 100_000))
