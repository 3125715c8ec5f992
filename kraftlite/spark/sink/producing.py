"""Arrow rows into topics: what one task of a sink does, without Spark.

Columns as in Spark's Kafka sink: `key` and `value` (string or binary; a null value is a tombstone), `topic`, `partition`,
`headers`; others are not looked at. Rows are gathered, assigned to partitions, sorted by them in their order, encoded, and sent
while the next ones are gathered. What is gathered, and what is on its way, are at most `GATHERED_BYTES` of rows each, or one row.

A key decides the partition as in Kafka's producers; rows without one go to one partition as long as they arrive together, and to
the next one then. Batches carry a producer id and sequences, so that a broker writes each once, however often it is sent: a
task that runs again is another producer, and writes again what the earlier attempt has written. A task that stages writes in a
transaction of its own, which stays open for its driver to end.

Source: Spark's KafkaWriter and KafkaRowWriter (columns, types, errors); KIP-98; KIP-480 (records without a key); SX-01.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kraftlite.client.errors import ClientError, UnknownTopic
from kraftlite.client.kafka_client import KafkaClient
from kraftlite.client.settings import ClientSettings
from kraftlite.client.transactional import ENDED_OTHERWISE
from kraftlite.columns.encode import EncodedBatch, encode_records
from kraftlite.columns.fingerprint import Fingerprint
from kraftlite.exactly_once.protocol_core import Staging
from kraftlite.exactly_once.records import DEFAULT_PREFIX, STATE_TOPIC, Entry
from kraftlite.log import codecs
from kraftlite.log.batch import MAX_SEQUENCE, NO_SEQUENCE
from kraftlite.model.errors import ApiError, ErrorCode, error_code
from kraftlite.model.limits import MIB
from kraftlite.model.producer import Producer
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.spark.sink.partitioner import murmur2_partition

log = logging.getLogger("kraftlite.spark")

GATHERED_BYTES: Final = 8 * MIB
"""Rows, in memory, that are encoded and sent together; as much is on its way meanwhile."""
BATCH_HEADER: Final = "kraftlite.batch"
"""<query id>/<batch id>/<partition id>/<index in the task>: the same in every attempt, for readers that drop duplicates."""
TRANSACTION_ENDED: Final = (
    ". The task's transaction has ended: it was open for longer than kafka.transaction.timeout.ms, or another attempt of the "
    "task has begun since"
)
HEADERS_TYPE: Final = "array<struct<key:string,value:binary>>"
COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "topic": ("string",),
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "headers": (HEADERS_TYPE,),
    "partition": ("int",),
}
"""Each column of a sink, and its types as Spark writes them."""

Indexes = npt.NDArray[np.int64]


class SinkError(Exception):
    """Rows that cannot be written; the text names the topic and partition, and Kafka's error where there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactlyOnce:
    """The options of a sink that stages and decides. `timeout_ms`: how long a task's transaction may be open. `job`: the name of
    what a batch writes; None: the streaming query is the name."""

    prefix: str = DEFAULT_PREFIX
    state_topic: str = STATE_TOPIC
    timeout_ms: int = 900_000
    job: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSettings:
    """`topic` None: every row names its own. `stamped`: records carry `BATCH_HEADER`, where they are of a streaming query or
    written exactly once. `exactly_once` None: at least once. Picklable."""

    client: ClientSettings
    topic: str | None = None
    stamped: bool = True
    exactly_once: ExactlyOnce | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The amount that a task wrote: rows, and bytes of encoded batches. `entry`: of its transaction; None: it has none."""

    rows: int
    bytes: int
    entry: Entry | None = None


def check_columns(columns: Sequence[tuple[str, str]], topic: str | None) -> None:
    """(name, type as Spark writes it) of all columns of a query. Raises ValueError in the words of Spark's Kafka sink."""
    found: dict[str, str] = {}
    for name, kind in columns:
        found.setdefault(name, kind)
    if topic is None and "topic" not in found:
        raise ValueError("topic option required when no 'topic' attribute is present. Use the topic option for setting a topic.")
    if "value" not in found:
        raise ValueError(f"Required attribute 'value' not found; the attributes are {', '.join(found) or 'none'}")
    for name, allowed in COLUMNS.items():
        if name in found and found[name] not in allowed and not (name == "topic" and topic is not None):
            raise ValueError(f"{name} attribute unsupported type {found[name]}. {name} must be a(n) {' or '.join(allowed)}")


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows in the order in which they came, with the partition of each as an index into the writer's list."""

    batch: Any
    places: Indexes
    first: int


class KraftliteWriter:
    """For one task, in one thread: `add` every batch of rows, then `finish`; as a context manager, for its own thread to end.

    `turn`: by which tasks and micro-batches begin with different partitions for rows without a key. `stamp`: what stands before
    the index in `BATCH_HEADER`; None: no such header. `staging`: of a task whose driver makes the rows visible. Raises SinkError,
    ClientError and UnknownTopic; then some of the rows are written, and there is no going on.
    """

    def __init__(
        self,
        client: KafkaClient,
        settings: SinkSettings,
        *,
        turn: int = 0,
        stamp: str | None = None,
        staging: Staging | None = None,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        self._client = client
        self._settings = settings
        self._turn = turn
        self._stamp = stamp
        self._staging = staging
        self._fingerprint = Fingerprint()
        self._in_transaction: set[TopicPartition] = set()
        self._clock = clock
        self._codec = codecs.CODECS_BY_NAME[settings.client.compression]
        self._counts: dict[str, int] = {}
        self._turns: dict[str, int] = {}
        self._targets: list[TopicPartition] = []
        self._index: dict[TopicPartition, int] = {}
        self._gathered: list[_Rows] = []
        self._gathered_bytes = 0
        self._rows = 0
        self._bytes = 0
        self._producer: Producer | None = None
        self._sequences: dict[TopicPartition, int] = {}
        self._sender = ThreadPoolExecutor(1, thread_name_prefix="kraftlite-sink")
        self._sending: Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._sender.shutdown(wait=True)
        if self._staging is not None and isinstance(error, Exception) and not _is_silence(error):
            self._abort(self._staging)

    def _abort(self, staging: Staging) -> None:
        """Nobody will commit what a task that fails has written, and until it is aborted it holds the readers there."""
        try:
            staging.abort()
        except ClientError as error:
            log.warning("%s failed, and what it wrote could not be aborted yet: %s", staging.transactional_id, error)

    def add(self, batch: Any) -> None:
        """A pa.RecordBatch with the columns that `check_columns` was asked about."""
        for part in _parts(batch):
            if self._gathered_bytes + part.nbytes > GATHERED_BYTES:
                self._flush()
            kept = part.select([name for name in ("key", "value", "headers") if name in part.schema.names])
            self._gathered.append(_Rows(kept, self._assign(part), self._rows))
            self._gathered_bytes += part.nbytes
            self._rows += part.num_rows

    def finish(self) -> Written:
        """Everything is acknowledged when it returns."""
        self._flush()
        self._collect()
        entry = None
        if self._staging is not None and self._rows:
            with _in_transaction():
                entry = self._staging.mark(self._rows, self._fingerprint.text)
        return Written(rows=self._rows, bytes=self._bytes, entry=entry)

    # --- partitions

    def _assign(self, batch: Any) -> Indexes:
        """The partition of each row."""
        places: Indexes = np.empty(batch.num_rows, np.int64)
        chosen = _column(batch, "partition")
        key = _column(batch, "key")
        topics = list(self._by_topic(batch))
        if self._staging is not None:
            self._fingerprint.add(batch, topics)
        for topic, rows in topics:
            count = self._partitions(topic)
            numbers = self._by_key(topic, None if key is None else _take(key, rows), rows.size, count)
            if chosen is not None:
                wanted = _take(chosen, rows)
                given = wanted.is_valid().to_numpy(zero_copy_only=False)
                told = wanted.fill_null(0).to_numpy(zero_copy_only=False)
                wrong = told[given & ((told < 0) | (told >= count))]
                if wrong.size:
                    raise SinkError(f"partition {int(wrong[0])} of topic {topic}: allowed is 0 to {count - 1}, or null")
                numbers[given] = told[given]
            places[rows] = self._places(topic, numbers, count)
        return places

    def _by_topic(self, batch: Any) -> Iterable[tuple[str, Indexes]]:
        """Each topic with its rows."""
        if self._settings.topic is not None:
            return [(self._settings.topic, np.arange(batch.num_rows, dtype=np.int64))]
        topics = _column(batch, "topic")
        if topics is None or topics.null_count:
            raise SinkError("null topic present in the data. Use the topic option for setting a topic.")
        coded = topics.dictionary_encode()
        codes = coded.indices.to_numpy(zero_copy_only=False)
        return [(name, np.flatnonzero(codes == code)) for code, name in enumerate(coded.dictionary.to_pylist())]

    def _by_key(self, topic: str, keys: Any, rows: int, count: int) -> Indexes:
        numbers: Indexes = np.full(rows, -1, np.int64) if keys is None else murmur2_partition(keys, count).astype(np.int64)
        keyless = numbers < 0
        if keyless.any():
            turn = self._turns.get(topic, self._turn)
            self._turns[topic] = turn + 1
            numbers[keyless] = turn % count
        return numbers

    def _places(self, topic: str, numbers: Indexes, count: int) -> Indexes:
        known: Indexes = np.full(count, -1, np.int64)
        for number in np.unique(numbers).tolist():
            tp = TopicPartition(topic, number)
            if tp not in self._index:
                self._index[tp] = len(self._targets)
                self._targets.append(tp)
            known[number] = self._index[tp]
        found: Indexes = known[numbers]
        return found

    def _partitions(self, topic: str) -> int:
        if topic not in self._counts:
            settings = self._settings.exactly_once
            if settings is not None and topic == settings.state_topic:
                raise SinkError(f"topic {topic} is the sink's own state: rows cannot be written there")
            self._collect()  # the client is for one thread at a time
            self._counts[topic] = len(self._client.partitions_for(topic, create=True))
        return self._counts[topic]

    # --- encoding and sending

    def _flush(self) -> None:
        """Encode what is gathered while what was gathered before is sent; then send it."""
        if not self._gathered:
            return
        if self._producer is None and self._staging is not None:
            self._producer = self._staging.begin()
        elif self._producer is None and self._settings.client.idempotent:
            self._producer = Producer(*self._client.init_producer_id())
        encoded = self._encode()
        self._gathered, self._gathered_bytes = [], 0
        self._bytes += sum(len(one.data) for batches in encoded.values() for one in batches)
        self._collect()
        if self._staging is not None and self._producer is not None and not encoded.keys() <= self._in_transaction:
            with _in_transaction():
                self._client.add_partitions(self._staging.transactional_id, self._producer, encoded.keys() - self._in_transaction)
            self._in_transaction |= encoded.keys()
        self._sending = self._sender.submit(self._send, encoded)

    def _collect(self) -> None:
        sending, self._sending = self._sending, None
        if sending is not None:
            sending.result()

    def _encode(self) -> dict[TopicPartition, list[EncodedBatch]]:
        table = pa.concat_batches([it.batch for it in self._gathered]) if len(self._gathered) > 1 else self._gathered[0].batch
        places = np.concatenate([it.places for it in self._gathered])
        numbers = np.arange(self._gathered[0].first, self._gathered[0].first + places.size, dtype=np.int64)
        order = np.argsort(places, kind="stable")
        if places.size and int(places.min()) != int(places.max()):
            table, places, numbers = table.take(pa.array(order)), places[order], numbers[order]
        edges = [0, *(np.flatnonzero(np.diff(places)) + 1).tolist(), places.size]
        stamped_ms = self._clock()
        return {
            self._targets[int(places[low])]: self._encode_one(
                self._targets[int(places[low])], table.slice(low, high - low), numbers[low:high], stamped_ms
            )
            for low, high in pairwise(edges)
        }

    def _encode_one(self, tp: TopicPartition, rows: Any, numbers: Indexes, stamped_ms: int) -> list[EncodedBatch]:
        stamp = None
        if self._stamp is not None:
            stamp = (BATCH_HEADER, f"{self._stamp}/", pa.array(numbers).cast(pa.string()))
        producer_id, epoch = self._producer or (-1, -1)
        sequence = NO_SEQUENCE if self._producer is None else self._sequences.get(tp, 0)
        try:
            found = encode_records(
                rows,
                timestamp_ms=stamped_ms,
                max_batch_bytes=self._settings.client.max_request_bytes,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
                codec=self._codec,
                transactional=self._staging is not None,
                stamp=stamp,
            )
        except ApiError as error:
            hint = "; kafka.max.request.size is the limit" if error.code is ErrorCode.MESSAGE_TOO_LARGE else ""
            raise SinkError(f"{tp}: {error.code.name}: {error.message}{hint}") from error
        if self._producer is not None:
            self._sequences[tp] = (sequence + rows.num_rows) & MAX_SEQUENCE
        return found

    def _send(self, encoded: Mapping[TopicPartition, list[EncodedBatch]]) -> None:
        """In the writer's thread. One batch of each partition at a time: that is what keeps their order."""
        acks = self._settings.client.acks
        name = None if self._staging is None else self._staging.transactional_id
        for turn in range(max(map(len, encoded.values()))):
            batches = [(tp, them[turn].data) for tp, them in encoded.items() if turn < len(them)]
            results = self._client.produce(batches, acks=acks, transactional_id=name)
            for tp, result in results.items():
                if result.error_code != ErrorCode.NONE:
                    why = f"{result.message}; " if result.message else ""
                    hint = TRANSACTION_ENDED if result.error_code in ENDED_OTHERWISE else ""
                    if result.error_code == ErrorCode.MESSAGE_TOO_LARGE:
                        size = self._settings.client.max_request_bytes
                        hint = f"; kafka.max.request.size={size} is more than the topic's max.message.bytes"
                    raise SinkError(f"{tp}: {error_code(result.error_code).name}: {why}the records were not written{hint}")


def _is_silence(error: Exception) -> bool:
    """Return whether a call was given up because brokers could not be reached, or did not get on: they are not asked again."""
    if not isinstance(error, ClientError) or isinstance(error, UnknownTopic):
        return False
    return error.code is None or error.code.retriable


@contextmanager
def _in_transaction() -> Iterator[None]:
    """Raises SinkError that says why a transaction may have ended, for the error of one that has."""
    try:
        yield
    except ClientError as error:
        if error.code not in ENDED_OTHERWISE:
            raise
        raise SinkError(f"{error}: the records were not written{TRANSACTION_ENDED}") from error


def _column(batch: Any, name: str) -> Any:
    """The first column of that name; None when there is none."""
    names = batch.schema.names
    return batch.column(names.index(name)) if name in names else None


def _take(column: Any, rows: Indexes) -> Any:
    return column if rows.size == len(column) else column.take(pa.array(rows))


def _parts(batch: Any) -> Iterable[Any]:
    """The rows with the columns that count, in pieces of at most `GATHERED_BYTES`, or of one row."""
    fields = {name: _column(batch, name) for name in COLUMNS}
    present = {name: column for name, column in fields.items() if column is not None}
    pending = [pa.RecordBatch.from_arrays(list(present.values()), list(present))]
    while pending:
        part = pending.pop()
        if part.num_rows > 1 and part.nbytes > GATHERED_BYTES:
            half = part.num_rows // 2
            pending += [part.slice(half), part.slice(0, half)]
        elif part.num_rows:
            yield part
