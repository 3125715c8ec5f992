"""Users of logs that do not only grow: keyed producers, readers from the beginning, whoever deletes records, asks for offsets by
time and changes the configuration of topics.

The workload has topics of its own: one is compacted, one forgets soon, one does both. Brokers of its seeds compact, delete, flush
and write checkpoints within seconds.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from kraftlite.log import codecs
from kraftlite.log.batch import Record, build_batch, iter_batches, iter_records
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.limits import MAX_INT64, MIB
from kraftlite.model.messages.controller import (
    AlterConfigOp,
    ConfigChange,
    ConfigResourceChange,
    ConfigResourceType,
    IncrementalAlterConfigsRequest,
)
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.ports import TransportError
from kraftlite.sim.client import SimAdmin, SimClient, SimProducer
from kraftlite.sim.history import History, Produce, Verdict
from kraftlite.sim.service import FETCH, FetchAsk
from kraftlite.sim.services.logs import DELETE_RECORDS, EPOCH_END, LIST, DeleteAsk, EpochEndAsk, ListAsk
from kraftlite.sim.shape import Shape, TopicPlan
from kraftlite.sim.workloads import stranger
from kraftlite.sim.workloads.creation import TIMEOUT_MS, create
from kraftlite.sim.workloads.logs_history import Reading

if TYPE_CHECKING:
    from kraftlite.sim.cluster import SimCluster

NUMBER: Final = 200
"""The first client of this workload, behind those of all others."""
STAMP: Final = "message.timestamp.before.max.ms"
"""A key whose value says which of the workload's changes was the last one. It is so large that it never matters."""
STAMP_MS: Final = 1_000_000_000_000_000
NEVER: Final = str(MAX_INT64)
CODECS: Final = (codecs.NONE, codecs.NONE, codecs.GZIP, codecs.SNAPPY, codecs.LZ4, codecs.ZSTD)
SPECIAL: Final = (-1, -2, -3, -3, -4, -5)
KEYS: Final = 8
BIG_BYTES: Final = 9_000
MOST_RECORDS: Final = 600
"""The number of records after which a producer stops: a run that takes minutes to converge is no longer about logs."""
REFUSED: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE.name, ErrorCode.RECORD_LIST_TOO_LARGE.name})
"""Refusals after which the same batch is not sent again."""

VALUES: Final[Mapping[str, tuple[str, ...]]] = {
    "segment.ms": ("200", "800", "2000"),
    "segment.bytes": ("16384", "65536", str(MIB)),
    "segment.jitter.ms": ("0", "100"),
    "segment.index.bytes": ("96", "10485760"),
    "index.interval.bytes": ("0", "64", "4096"),
    "max.message.bytes": ("4000", "1048588"),
    "compression.type": ("producer", "producer", "uncompressed", "gzip", "lz4", "snappy", "zstd"),
    "message.timestamp.type": ("CreateTime", "CreateTime", "LogAppendTime"),
    "flush.messages": ("1", "5", NEVER, NEVER),
    "flush.ms": ("100", "1000", NEVER),
    "file.delete.delay.ms": ("0", "300", "60000"),
    "min.insync.replicas": ("1", "2"),
}
"""The configurations that a replica of any topic acts on. The first three are drawn for each topic, the others for some."""
COMPACTION: Final[Mapping[str, tuple[str, ...]]] = {
    "min.cleanable.dirty.ratio": ("0.0", "0.01", "0.3"),
    "delete.retention.ms": ("0", "500", "2000", "86400000"),
    "min.compaction.lag.ms": ("0", "300", "1000"),
    "max.compaction.lag.ms": ("1000", "4000", NEVER),
}
RETENTION: Final[Mapping[str, tuple[str, ...]]] = {
    "retention.ms": ("-1", "800", "3000"),
    "retention.bytes": ("-1", "1500", "8000", "40000"),
}
POLICIES: Final = ("compact", "delete", "compact,delete")


FIRST_RETENTION_MS: Final = 500
"""The time from the start of a broker to its first look for old segments. Production waits half a minute."""


def with_periods(shape: Shape, seed: int) -> Shape:
    """The shape of a seed; of one with this workload, with periods of the broker's housekeeping that a run of seconds reaches."""
    rng = random.Random(f"logs/periods/{seed}")
    config = {**shape.config, **draw_periods(rng, forgets=not stranger.comes_with(seed))}
    return replace(shape, config=config, tuning=replace(shape.tuning, first_retention_ms=FIRST_RETENTION_MS))


def draw_periods(rng: random.Random, *, forgets: bool = True) -> dict[str, str]:
    """`forgets`: producers may be forgotten within the run. A stranger's zombies are not refused then."""
    found = {
        "log.cleaner.backoff.ms": rng.choice(("20", "100", "500")),
        "log.retention.check.interval.ms": rng.choice(("50", "200", "1000")),
        "log.flush.offset.checkpoint.interval.ms": rng.choice(("200", "1000", "60000")),
        "log.flush.start.offset.checkpoint.interval.ms": rng.choice(("200", "1000", "60000")),
        "log.flush.scheduler.interval.ms": rng.choice(("100", "1000", NEVER)),
        "log.segment.delete.delay.ms": rng.choice(("0", "300", "60000")),
        "log.cleaner.dedupe.buffer.size": str(MIB),
        "log.cleaner.io.buffer.load.factor": rng.choice(("0.0008", "0.0012", "0.0012", "0.9", "0.9")),
        "producer.id.expiration.check.interval.ms": rng.choice(("300", "600000")),
    }
    if rng.randrange(3) == 0:
        found["log.cleaner.io.max.bytes.per.second"] = rng.choice(("20000", "100000"))
    if forgets and rng.randrange(6) == 0:
        found["producer.id.expiration.ms"] = rng.choice(("500", "2000"))
    return found


def elects_uncleanly(seed: int) -> bool:
    """Return whether a replica that is behind may lead the topics: whoever has more cuts off also what it has compacted."""
    return random.Random(f"logs/unclean/{seed}").randrange(5) == 0


def draw_topics(rng: random.Random, brokers: int) -> list[TopicPlan]:
    found = []
    for name, policy in (("lc", "compact"), ("ld", "delete"), ("lb", "compact,delete")):
        config = {"cleanup.policy": policy}
        tables = (VALUES, RETENTION) if policy == "delete" else (VALUES, COMPACTION, RETENTION)
        for table in tables:
            for number, (key, values) in enumerate(table.items()):
                if table is not VALUES or number < 2 or rng.randrange(3) == 0:
                    config[key] = rng.choice(values)
        found.append(
            TopicPlan(name=name, partitions=rng.choice((1, 1, 2)), replication=rng.randint(1, min(3, brokers)), config=config)
        )
    kept = [it for it in found if rng.randrange(3)]
    return kept or found[:1]


def visit(
    cluster: SimCluster, history: History, partitions: Sequence[TopicPartition]
) -> Iterator[tuple[SimClient, Coroutine[None, None, None]]]:
    rng = random.Random(f"logs/visit/{cluster.seed}")
    topics = draw_topics(rng, len(cluster.brokers))
    if elects_uncleanly(cluster.seed):
        topics = [replace(it, config={**it.config, "unclean.leader.election.enable": "true"}) for it in topics]
    mine = [TopicPartition(topic.name, index) for topic in topics for index in range(topic.partitions)]
    admin = LogsAdmin(cluster, NUMBER, "logs-admin", history)
    yield admin, admin.run(topics, rng.choice((500_000, 1_500_000, 4_000_000)))
    for number in range(rng.choice((1, 2, 2))):
        idempotent = rng.randrange(3) > 0
        producer = KeyedProducer(
            cluster,
            NUMBER + 1 + number,
            f"keyed-{number}",
            history,
            acks=-1 if idempotent else rng.choice((-1, -1, 1)),
            idempotent=idempotent,
            in_flight=rng.choice((1, 2, 5)),
            attempts=2,
        )
        yield producer, producer.run_when_ready(mine, rng.choice((40_000, 100_000, 250_000)))
    reader = FullReader(cluster, NUMBER + 10, "reader", history)
    yield reader, reader.run(mine, rng.choice((50_000, 200_000)))
    asker = LogsAsker(cluster, NUMBER + 11, "asker", history)
    yield asker, asker.run(mine, rng.choice((100_000, 300_000)), deletes_below=rng.choice((0, 1, 4)))


def is_ready(history: History, partitions: Sequence[TopicPartition]) -> bool:
    return all(tp.topic in history.logs.topics for tp in partitions)


class LogsAdmin(SimAdmin):
    """Creates the topics, and changes one of their configurations now and then."""

    async def run(self, topics: Sequence[TopicPlan], mean_gap_us: int) -> None:
        for topic in topics:
            while not self.stopping:
                facts = {"topic": topic.name, "partitions": topic.partitions}
                op = await self.do("create_topics", create(topic), facts)
                if op.verdict is Verdict.OK or op.error == ErrorCode.TOPIC_ALREADY_EXISTS.name:
                    self.history.logs.topics.append(topic.name)
                    break
                await self.backoff()
        made = 0
        while not self.stopping:
            await self.pause(self.rng.randint(1, 2 * mean_gap_us))
            made += 1
            await self._configure(topics[self.rng.randrange(len(topics))], made)

    async def _configure(self, topic: TopicPlan, made: int) -> None:
        """One or two changes in one request, and the stamp that makes the request different from all others."""
        tables: list[Mapping[str, tuple[str, ...]]] = [VALUES]
        if topic.name != "ld":
            tables += [COMPACTION, {"cleanup.policy": POLICIES}]
        if topic.name != "lc":
            tables += [RETENTION]
        rng = self.rng
        wanted = {STAMP: str(STAMP_MS + made)}
        for _ in range(rng.choice((1, 1, 2))):
            table = tables[rng.randrange(len(tables))]
            key = rng.choice(tuple(table))
            wanted[key] = rng.choice(table[key])
        if rng.randrange(40) == 0:
            wanted["unclean.leader.election.enable"] = rng.choice(("true", "false"))
        changes = tuple(ConfigChange(name=key, op=int(AlterConfigOp.SET), value=value) for key, value in sorted(wanted.items()))
        if rng.randrange(8) == 0:
            gone = rng.choice(tuple(VALUES))
            if gone not in wanted:
                changes += (ConfigChange(name=gone, op=int(AlterConfigOp.DELETE), value=None),)
        resource = ConfigResourceChange(resource_type=int(ConfigResourceType.TOPIC), resource_name=topic.name, changes=changes)
        request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False, timeout_ms=TIMEOUT_MS)
        await self.do("alter_configs", request, {"topic": topic.name, "config": {STAMP: wanted[STAMP]}})


class KeyedProducer(SimProducer):
    """Writes few keys again and again: values, tombstones, big records, long keys, every codec, times that go back."""

    SIZES = (1, 1, 2, 4, 8)

    async def run_when_ready(self, partitions: Sequence[TopicPartition], mean_gap_us: int) -> None:
        while not self.stopping and not is_ready(self.history, partitions):
            await self.pause(50_000)
        await self.run(partitions, mean_gap_us)

    async def _send(self, tp: TopicPartition) -> None:
        if sum(self.numbers.values()) < MOST_RECORDS:
            await super()._send(tp)

    def _build(self, records: Sequence[Produce]) -> bytes:
        rng, first = self.rng, records[0]
        stamp = self.cluster.wall_ms() - rng.choice((0, 0, 0, rng.randint(0, 3_000)))
        made: list[Record] = []
        big = rng.randrange(25) == 0
        for it in records:
            record = self._content(it, big and it is first)
            made.append(record)
            self.history.logs.sent[(it.tp, it.value)] = (record, stamp + record.timestamp_delta)
        return bytes(
            build_batch(
                made,
                timestamp_ms=stamp,
                codec=rng.choice(CODECS),
                producer_id=first.producer_id,
                producer_epoch=first.producer_epoch,
                base_sequence=first.sequence,
            )
        )

    def _content(self, it: Produce, big: bool) -> Record:
        rng = self.rng
        name = f"k{rng.randrange(KEYS)}"
        key = (name if rng.randrange(4) else f"{name} with so many words that a digest takes its place").encode()
        value: bytes | None = it.value.encode() + b" " + bytes(rng.choice((0, 10, 100, 400)))
        if big:
            value = rng.randbytes(BIG_BYTES)
        elif rng.randrange(5) == 0:
            value = None
        headers: tuple[tuple[str, bytes | None], ...] = (("id", it.value.encode()),)
        if rng.randrange(4) == 0:
            headers += (("empty", None),)
        return Record(key=key, value=value, headers=headers, timestamp_delta=rng.choice((0, 0, 1, rng.randint(0, 40))))

    def _again(self, tp: TopicPartition, records: Sequence[Produce], code: str, attempts: int, behind: bool) -> bool:
        if code in REFUSED:
            if records[0].producer_id == self.producer_id:
                self.producer_id = -1  # its sequences have a hole now
            return False
        return super()._again(tp, records, code, attempts, behind)


class FullReader(SimClient):
    """Reads one partition after the other from offset 0, or from where its log begins, to its end."""

    async def run(self, partitions: Sequence[TopicPartition], mean_gap_us: int) -> None:
        while not self.stopping:
            await self.pause(self.rng.randint(1, 2 * mean_gap_us))
            if is_ready(self.history, partitions):
                await self._read(partitions[self.rng.randrange(len(partitions))])

    async def _read(self, tp: TopicPartition) -> None:
        position, reading = 0, None
        slow_us = self.rng.choice((0, 0, 20_000, 100_000))
        for _ in range(400):
            if self.stopping:
                return
            leader = await self.leader(tp)
            if leader is None:
                await self.backoff()
                await self.refresh()
                continue
            ask = FetchAsk(tp, position, self.leader_epoch(tp), 0, self.rng.choice((300, 5_000, MIB)))
            try:
                result = await self.call(leader, FETCH, ask)
            except (TransportError, ApiError):
                await self.backoff()
                await self.refresh()
                continue
            code = ErrorCode(result.error)
            if code is ErrorCode.OFFSET_OUT_OF_RANGE:
                start = await self._start(tp, leader)
                if start is None or (reading is not None and position > 0):
                    return  # what it would read next is gone: nobody knows what else
                position = start
                continue
            if code is not ErrorCode.NONE:
                await self.backoff()
                await self.refresh()
                continue
            if reading is None:
                reading = Reading(client=self.name, tp=tp, topic_id=self.topic_id(tp), began_us=self.now_us(), start=position)
            if (leader, ask.leader_epoch) not in reading.leaders:
                reading.leaders.append((leader, ask.leader_epoch))
            after = take(reading, bytes(result.records), position)
            if after == position:
                reading.end, reading.ended_us = max(position, result.hw), self.now_us()
                if result.hw >= position:
                    self.history.logs.readings.append(reading)
                return
            position = after
            await self.pause(slow_us)

    async def _start(self, tp: TopicPartition, leader: NodeId) -> int | None:
        try:
            answer = await self.call(leader, LIST, ListAsk(tp, -2, None))
        except (TransportError, ApiError):
            return None
        return answer.offset if ErrorCode(answer.error) is ErrorCode.NONE else None


def take(reading: Reading, data: bytes, position: int) -> int:
    """Take over what one fetch brought; the position behind it."""
    for header, raw in iter_batches(data):
        for record in () if header.is_control else iter_records(raw):
            offset = header.base_offset + record.offset_delta
            if offset >= position and record.key is not None:
                reading.last[record.key] = (offset, record.value is not None)
        position = max(position, header.next_offset)
    return position


class LogsAsker(SimClient):
    """Asks where offsets are, and has the oldest records deleted."""

    async def run(self, partitions: Sequence[TopicPartition], mean_gap_us: int, deletes_below: int) -> None:
        acts: list[Callable[[TopicPartition, NodeId], Awaitable[None]]] = []
        acts += [self._list] * 5
        acts += [self._epoch_end] * 2
        acts += [self._delete] * deletes_below
        while not self.stopping:
            await self.pause(self.rng.randint(1, 2 * mean_gap_us))
            if not is_ready(self.history, partitions):
                continue
            tp = partitions[self.rng.randrange(len(partitions))]
            leader = await self.leader(tp)
            if leader is not None:
                await acts[self.rng.randrange(len(acts))](tp, leader)

    async def _ask(self, leader: NodeId, method: Any, ask: Any, timeout_ms: int = 3_000) -> Any:
        """The answer; None when there is none. The checkers see it by themselves."""
        try:
            answer = await self.call(leader, method, ask, timeout_ms)
        except (TransportError, ApiError):
            await self.refresh()
            return None
        if ErrorCode(answer.error) is not ErrorCode.NONE:
            await self.refresh()
        return answer

    async def _list(self, tp: TopicPartition, leader: NodeId) -> None:
        rng = self.rng
        timestamp = rng.choice((*SPECIAL, *[self.cluster.wall_ms() - rng.randint(-500, 12_000)] * 4))
        sent = self.history.produces[rng.randrange(len(self.history.produces))] if self.history.produces else None
        if sent is not None and (known := self.history.logs.sent.get((sent.tp, sent.value))) is not None:
            timestamp = rng.choice((timestamp, known[1], known[1] + 1))
        epoch = self.leader_epoch(tp)
        ask = ListAsk(tp, timestamp, rng.choice((None, epoch, epoch)), rng.randrange(4) == 0)
        await self._ask(leader, LIST, ask)

    async def _epoch_end(self, tp: TopicPartition, leader: NodeId) -> None:
        known = self.leader_epoch(tp) or 0
        epoch = self.rng.choice((known, known, known - 1, self.rng.randint(0, known + 1)))
        await self._ask(leader, EPOCH_END, EpochEndAsk(tp, max(0, epoch), self.rng.choice((None, known))))

    async def _delete(self, tp: TopicPartition, leader: NodeId) -> None:
        rng = self.rng
        latest = await self._ask(leader, LIST, ListAsk(tp, -1, None))
        if latest is None or latest.offset < 0:
            return
        offset = rng.choice((-1, latest.offset, latest.offset // 2, rng.randint(0, latest.offset), latest.offset + 5))
        timeout_ms = rng.choice((300, 2_000, 10_000))
        await self._ask(leader, DELETE_RECORDS, DeleteAsk(tp, offset, timeout_ms), timeout_ms + 1_000)
