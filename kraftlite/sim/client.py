"""Simulated Kafka clients: they find leaders, retry and pipeline as real ones do, and write down what they saw."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from kraftlite.log.batch import MAX_SEQUENCE, Record, build_batch, iter_batches, iter_records
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import Endpoint, NodeId
from kraftlite.model.method import Method, Req, Res
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.ports import TransportError
from kraftlite.sim.answers import NO_ANSWER, api_of, errors_of
from kraftlite.sim.history import Admin, Consumed, History, MetadataRead, Produce, Verdict
from kraftlite.sim.service import (
    ADMIN,
    FETCH,
    METADATA,
    OFFSETS,
    PRODUCE,
    PRODUCER_ID,
    AdminAsk,
    FetchAsk,
    MetadataAnswer,
    MetadataAsk,
    OffsetAsk,
    ProduceAsk,
    ProducerIdAsk,
)
from kraftlite.sim.themes import PLAIN

if TYPE_CHECKING:
    from kraftlite.sim.cluster import SimCluster

REQUEST_TIMEOUT_MS: Final = 3_000
METADATA_MAX_AGE_US: Final = 5_000_000
BACKOFF_US: Final = 100_000
FIRST_CLIENT_ID: Final = 1000

CERTAIN: Final = frozenset(
    {
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.MESSAGE_TOO_LARGE,
    }
)
"""Refusals of a produce that come before anything is appended."""

FATAL: Final = frozenset(
    it.name for it in (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.UNKNOWN_PRODUCER_ID)
)
"""Refusals after which an idempotent producer starts anew with another id."""


class SimClient:
    """One client on a machine of its own: its links can fail like any other."""

    def __init__(self, cluster: SimCluster, number: int, name: str, history: History) -> None:
        self.cluster = cluster
        self.name = name
        self.history = history
        self.node_id = NodeId(FIRST_CLIENT_ID + number)
        self.rng = random.Random(f"client/{cluster.seed}/{number}")
        self.transport = cluster.network.transport(self.node_id, cluster.outside)
        self.known: MetadataAnswer | None = None
        self._known_at_us = 0
        self._refreshing: asyncio.Task[None] | None = None
        self.stopping = False

    def now_us(self) -> int:
        return self.cluster.loop.now_us()

    async def pause(self, us: int) -> None:
        await asyncio.sleep(us / 1_000_000)

    async def backoff(self) -> None:
        await self.pause(self.rng.randint(BACKOFF_US // 2, BACKOFF_US * 3 // 2))

    async def call(self, broker: NodeId, method: Method[Req, Res], ask: Req, timeout_ms: int = REQUEST_TIMEOUT_MS) -> Res:
        """Raises TransportError or ApiError."""
        api, answers = api_of(method, ask), self.history.answers
        try:
            response = await self.transport.call(Endpoint(f"n{broker}", 9092), method, ask, timeout_ms)
        except ApiError as error:
            answers[(api, error.code.name)] += 1
            raise
        except TransportError:
            answers[(api, NO_ANSWER)] += 1
            raise
        for code in errors_of(response):
            answers[(api, code)] += 1
        return response

    # --- metadata

    async def refresh(self) -> None:
        """New metadata from some broker, unless all that were tried failed. One refresh at a time."""
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.get_running_loop().create_task(self._refresh(), context=self.cluster.outside)
        await asyncio.shield(self._refreshing)

    async def _refresh(self) -> None:
        brokers = [node.node_id for node in self.cluster.brokers]
        self.rng.shuffle(brokers)
        for broker in brokers:
            invoked = self.now_us()
            try:
                answer = await self.call(broker, METADATA, MetadataAsk(), 1_000)
            except (TransportError, ApiError):
                continue
            self.history.metadata.append(
                MetadataRead(
                    client=self.name,
                    broker=broker,
                    invoked_us=invoked,
                    returned_us=self.now_us(),
                    metadata_offset=answer.offset,
                    leaders=answer.leaders,
                    topic_ids=answer.topic_ids,
                    configs=answer.configs,
                )
            )
            self.known, self._known_at_us = answer, self.now_us()
            return
        await self.backoff()

    async def leader(self, tp: TopicPartition) -> NodeId | None:
        if self.known is None or self.now_us() - self._known_at_us > METADATA_MAX_AGE_US:
            await self.refresh()
        found = None if self.known is None else self.known.leaders.get(tp)
        return None if found is None else found[0]

    def topic_id(self, tp: TopicPartition) -> str | None:
        return None if self.known is None else self.known.topic_ids.get(tp.topic)

    def leader_epoch(self, tp: TopicPartition) -> int | None:
        found = None if self.known is None else self.known.leaders.get(tp)
        return None if found is None else found[1]


class SimProducer(SimClient):
    """Sends numbered records to partitions. Idempotent: retries without end and in order, up to five batches in flight per
    partition, a new producer id after a fatal error. Plain: a few attempts, which may duplicate."""

    SIZES: tuple[int, ...] = (1, 1, 1, 2, 3)
    """The numbers of records from which that of a batch is drawn."""

    def __init__(
        self,
        cluster: SimCluster,
        number: int,
        name: str,
        history: History,
        *,
        acks: int,
        idempotent: bool,
        in_flight: int = 1,
        attempts: int = 1,
    ) -> None:
        super().__init__(cluster, number, name, history)
        self.acks = acks
        self.idempotent = idempotent
        self.in_flight = in_flight
        self.attempts = attempts
        self.producer_id = -1
        self.producer_epoch = -1
        self.numbers: dict[TopicPartition, int] = {}
        self.sequences: dict[TopicPartition, int] = {}
        """The next one of each partition; the one behind the greatest is 0."""
        self._first_sequence = _first_sequence(cluster.theme, cluster.seed, number)
        self.open: dict[TopicPartition, list[list[Produce]]] = {}
        self._identity: asyncio.Task[None] | None = None

    @property
    def outstanding(self) -> int:
        return sum(len(batches) for batches in self.open.values())

    async def run(self, partitions: Sequence[TopicPartition], mean_gap_us: int) -> None:
        """Until `stopping`; then until every batch has a verdict."""
        tasks: dict[asyncio.Task[None], None] = {}
        while not self.stopping:
            tp = partitions[self.rng.randrange(len(partitions))]
            if len(self.open.get(tp, ())) < self.in_flight:
                task = asyncio.get_running_loop().create_task(self._send(tp), context=self.cluster.outside)
                tasks[task] = None
                task.add_done_callback(lambda it: (tasks.pop(it, None), it.result()))
            await self.pause(self.rng.randint(1, 2 * mean_gap_us))
        while tasks:
            await asyncio.wait(list(tasks))

    async def _send(self, tp: TopicPartition) -> None:
        mine: list[Produce] = []
        batches = self.open.setdefault(tp, [])
        batches.append(mine)
        try:
            if self.idempotent and self.producer_id < 0:
                await self._identify()
            mine.extend(self._record(tp) for _ in range(self.rng.choice(self.SIZES)))
            self.history.produces.extend(mine)
            await self._deliver(tp, mine)
        finally:
            batches.remove(mine)

    def _record(self, tp: TopicPartition) -> Produce:
        number = self.numbers.get(tp, 0)
        self.numbers[tp] = number + 1
        sequence = -1
        if self.idempotent:
            sequence = self.sequences.get(tp, self._first_sequence)
            self.sequences[tp] = (sequence + 1) & MAX_SEQUENCE
        return Produce(
            client=self.name,
            tp=tp,
            topic_id=self.topic_id(tp),
            number=number,
            acks=self.acks,
            idempotent=self.idempotent,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            sequence=sequence,
            invoked_us=self.now_us(),
        )

    async def _identify(self) -> None:
        if self._identity is None or self._identity.done():
            self._identity = asyncio.get_running_loop().create_task(self._ask_identity(), context=self.cluster.outside)
        await asyncio.shield(self._identity)

    async def _ask_identity(self) -> None:
        brokers = [node.node_id for node in self.cluster.brokers]
        while True:
            broker = brokers[self.rng.randrange(len(brokers))]
            try:
                answer = await self.call(broker, PRODUCER_ID, ProducerIdAsk())
            except (TransportError, ApiError):
                await self.backoff()
                continue
            self.producer_id, self.producer_epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
            return

    def _build(self, records: Sequence[Produce]) -> bytes:
        first = records[0]
        values = [Record(key=None, value=it.value.encode()) for it in records]
        stamp = self.cluster.wall_ms()
        if not self.idempotent:
            return bytes(build_batch(values, timestamp_ms=stamp))
        return bytes(
            build_batch(
                values,
                timestamp_ms=stamp,
                producer_id=first.producer_id,
                producer_epoch=first.producer_epoch,
                base_sequence=first.sequence,
            )
        )

    async def _deliver(self, tp: TopicPartition, records: list[Produce]) -> None:
        batch = self._build(records)
        attempts = 0
        certain = True
        """No attempt so far can have had an effect."""
        while True:
            attempts += 1
            behind = self._behind(tp, records)
            code, offset, sure = await self._attempt(tp, batch)
            certain = certain and sure
            for it in records:
                it.attempts = attempts
                it.error = None if code is None else code
            if code is None:
                self._conclude(records, Verdict.OK, offset)
                if self.idempotent and self.acks == -1:
                    self.history.acknowledged.append((tp, batch, offset))
                return
            if not self._again(tp, records, code, attempts, behind):
                self._conclude(records, Verdict.FAILED if certain else Verdict.UNKNOWN, -1)
                return
            await self.backoff()
            await self.refresh()

    async def _attempt(self, tp: TopicPartition, batch: bytes) -> tuple[str | None, int, bool]:
        """(error name or None, base offset, whether a failure certainly had no effect)."""
        leader = await self.leader(tp)
        if leader is None:
            return "LEADER_NOT_AVAILABLE", -1, True
        try:
            result = await self.call(leader, PRODUCE, ProduceAsk(tp, self.acks, REQUEST_TIMEOUT_MS // 2, batch))
        except TransportError as error:
            return str(error) or "TRANSPORT", -1, False
        except ApiError as error:
            return error.code.name, -1, error.code in CERTAIN
        code = ErrorCode(result.error)
        if code is ErrorCode.NONE:
            return None, result.base_offset, True
        if code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            return None, -1, True
        return code.name, -1, code in CERTAIN

    def _behind(self, tp: TopicPartition, records: Sequence[Produce]) -> bool:
        """Return whether an earlier batch of the same producer has no verdict yet: this one may overtake it."""
        first = records[0]
        return any(
            batch and batch[0].producer_id == first.producer_id and batch[0].number < first.number
            for batch in self.open.get(tp, [])
        )

    def _again(self, tp: TopicPartition, records: Sequence[Produce], code: str, attempts: int, behind: bool) -> bool:
        if not self.idempotent:
            return attempts < self.attempts
        first = records[0]
        if first.producer_id != self.producer_id:
            return False  # another batch made this producer start anew
        if code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER.name and behind:
            return True
        if code in FATAL:
            self.producer_id = -1
            return False
        return True

    def _conclude(self, records: Sequence[Produce], verdict: Verdict, base_offset: int) -> None:
        for index, it in enumerate(records):
            it.verdict, it.returned_us = verdict, self.now_us()
            it.offset = base_offset + index if base_offset >= 0 else -1


def _first_sequence(theme: str, seed: int, number: int) -> int:
    """The sequence with which a producer begins in each partition. A broker that does not know it takes any. In plain runs it is
    one of the last for a quarter of them, so that they come to where sequences begin anew, as a producer of years does."""
    rng = random.Random(f"client/sequences/{seed}/{number}")
    return MAX_SEQUENCE - rng.randrange(20) if theme == PLAIN and rng.randrange(4) == 0 else 0


class SimConsumer(SimClient):
    """Reads partitions from the earliest offset on, at the leader, up to the HW; begins anew where its position is gone."""

    async def run(self, partitions: Sequence[TopicPartition], gap_us: int) -> None:
        positions = dict.fromkeys(partitions, 0)
        while not self.stopping:
            tp = partitions[self.rng.randrange(len(partitions))]
            positions[tp] = await self._poll(tp, positions[tp])
            await self.pause(self.rng.randint(1, 2 * gap_us))

    async def _poll(self, tp: TopicPartition, position: int) -> int:
        leader = await self.leader(tp)
        if leader is None:
            await self.backoff()
            await self.refresh()
            return position
        try:
            ask = FetchAsk(tp, position, self.leader_epoch(tp), self.rng.choice((0, 100, 500)), self.rng.choice((300, 1 << 20)))
            result = await self.call(leader, FETCH, ask)
        except (TransportError, ApiError):
            await self.backoff()
            await self.refresh()
            return position
        code = ErrorCode(result.error)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            return await self._begin_anew(tp, leader, position)
        if code is not ErrorCode.NONE:
            await self.backoff()
            await self.refresh()
            return position
        found = records_of(bytes(result.records), position)
        if found:
            self.history.consumed.append(
                Consumed(
                    client=self.name,
                    tp=tp,
                    topic_id=self.topic_id(tp),
                    broker=leader,
                    at_us=self.now_us(),
                    hw=result.hw,
                    records=found,
                )
            )
        return found[-1][0] + 1 if found else position

    async def _begin_anew(self, tp: TopicPartition, leader: NodeId, position: int) -> int:
        try:
            result = await self.call(leader, OFFSETS, OffsetAsk(tp, -2))
        except (TransportError, ApiError):
            return position
        return result.offset if ErrorCode(result.error) is ErrorCode.NONE else position


class SimAdmin(SimClient):
    """Calls of the admin API, each sent once: what a lost answer means is for the history checks to find out."""

    async def do(self, kind: str, request: Any, facts: dict[str, Any], *, timeout_ms: int = 5_000) -> Admin:
        brokers = [node.node_id for node in self.cluster.brokers]
        op = Admin(client=self.name, kind=kind, facts=facts, invoked_us=self.now_us())
        self.history.admins.append(op)
        try:
            answer = await self.call(brokers[self.rng.randrange(len(brokers))], ADMIN, AdminAsk(kind, request), timeout_ms)
        except TransportError as error:
            op.verdict, op.error = Verdict.UNKNOWN, str(error)
        except ApiError as error:
            op.verdict, op.error = _refusal(error.code), error.code.name
        else:
            op.response = answer.response
            op.verdict, op.error = _outcome(answer.response)
        op.returned_us = self.now_us()
        return op


def _outcome(response: Any) -> tuple[Verdict, str | None]:
    """Return the outcome of a response with one result per resource; every call of this module names one."""
    for result in (it for name in ("topics", "resources", "results") for it in getattr(response, name, ())):
        code = ErrorCode(result.error)
        if code is not ErrorCode.NONE:
            return _refusal(code), code.name
    return Verdict.OK, None


def _refusal(code: ErrorCode) -> Verdict:
    unknown = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NETWORK_EXCEPTION)
    return Verdict.UNKNOWN if code in unknown else Verdict.FAILED


def records_of(data: bytes, from_offset: int = 0) -> tuple[tuple[int, str], ...]:
    """(offset, value) of all records from an offset on; a batch that was cut off at the end is left out."""
    found: list[tuple[int, str]] = []
    for header, raw in iter_batches(data):
        if header.is_control:
            continue
        for record in iter_records(raw):
            offset = header.base_offset + record.offset_delta
            if offset >= from_offset:
                found.append((offset, (record.value or b"").decode()))
    return tuple(found)
