"""Reads partitions of the state topic: decisions, and the outcomes of transactions by their markers.

Records are read whether they are committed or not, and the control batches behind them tell. A reader of what is committed would
stop at the first transaction that is open, and tasks of any query keep theirs open for as long as they stage.

Source: SX-01; KIP-98 (control batches); KIP-207 (a new leader tells an end only when it is not behind what was acknowledged).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from kraftlite.client.errors import ClientError
from kraftlite.client.kafka_client import KafkaClient
from kraftlite.exactly_once.protocol_core import Fate
from kraftlite.exactly_once.records import DECISIONS_PARTITION, Decision, Entry, Marker, decode, encode
from kraftlite.log.batch import BatchHeader, Record, check_crc, iter_batches, iter_records
from kraftlite.log.control import ControlType, control_type
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.protocol.record_requests import EARLIEST, LATEST

_WAIT_MS = 100


class StateLost(ClientError):
    """The state topic does not have what must be there, or has what must not: it was deleted, cut, or written by others."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A batch of a partition. `ends`: whether a transaction of its producer is committed (True) or aborted by it; None: `records`
    gives what it has, with their offsets. Compaction leaves nothing in a control batch that ended what is gone, and keeps the
    batch if it is its producer's last one."""

    header: BatchHeader
    ends: bool | None
    batch: memoryview

    def records(self) -> Iterator[tuple[int, Record]]:
        for record in iter_records(self.batch):
            yield self.header.base_offset + record.offset_delta, record


def bounds(client: KafkaClient, tp: TopicPartition) -> tuple[int, int]:
    """(start, end) of a partition's log: everything that was acknowledged is in front of the end."""
    start = client.list_offsets({tp: EARLIEST}, read_committed=False)[tp].offset
    end = client.list_offsets({tp: LATEST}, read_committed=False)[tp].offset
    return start, end


def scan(client: KafkaClient, tp: TopicPartition, start: int, end: int) -> Iterator[Stored]:
    """The batches from the one that holds `start` to the last one that begins before `end`, committed or not; each is to be
    looked at before the next one is asked for. Raises ClientError when the partition does not give them."""
    at = start
    patience_s = client.settings.retry_timeout_ms / 1000
    moved = time.monotonic()
    while at < end:
        before = at
        try:
            for header, batch in iter_batches(client.fetch(tp, at, read_committed=False, max_wait_ms=_WAIT_MS).records):
                if header.last_offset < at:
                    continue
                if header.base_offset >= end:
                    return
                if not check_crc(batch, header):
                    raise ApiError(ErrorCode.CORRUPT_MESSAGE, "its CRC is wrong")
                yield Stored(header, _ends(header, batch), batch)
                at = header.next_offset
        except ApiError as error:
            raise StateLost(f"{tp} at {at}: {error.code.name}: {error.message}", error.code) from error
        if at > before:
            moved = time.monotonic()
        elif time.monotonic() - moved > patience_s:
            raise ClientError(f"{tp}: nothing came from {at} on for {patience_s:.0f} s, and its end is {end}")


def _ends(header: BatchHeader, batch: memoryview) -> bool | None:
    if not header.is_control:
        return None
    if not header.count:
        return None
    for record in iter_records(batch):
        kind = control_type(record.key)
        if kind in (ControlType.COMMIT, ControlType.ABORT):
            return kind == ControlType.COMMIT
    raise ApiError(ErrorCode.CORRUPT_MESSAGE, "a control batch that ends no transaction")


def fate_of(client: KafkaClient, topic: str, query: str, batch: int, entry: Entry) -> Fate:
    """The outcome of a task's transaction. A marker that the cleaner has removed was aborted: a committed one is the newest of
    its task until a later batch is committed. Raises StateLost when something else is in its place."""
    tp = TopicPartition(topic, entry.marker_partition)
    start, end = bounds(client, tp)
    if not start <= entry.marker_offset < end:
        raise StateLost(
            f"{tp}: the marker of {entry.transactional_id} was written at {entry.marker_offset}, and the log is "
            f"[{start}, {end}): records of the state topic were lost, or it was made anew"
        )
    found = False
    for stored in scan(client, tp, entry.marker_offset, end):
        header = stored.header
        if stored.ends is None and header.base_offset <= entry.marker_offset:
            found = any(offset == entry.marker_offset for offset, _record in stored.records())
            if found:
                _check_marker(tp, stored, query, batch, entry)
        if not found:
            return Fate.ABORTED
        if stored.ends is not None and header.producer_id == entry.producer_id:
            return Fate.COMMITTED if stored.ends else Fate.ABORTED
    return Fate.OPEN


def _check_marker(tp: TopicPartition, stored: Stored, query: str, batch: int, entry: Entry) -> None:
    record = next(record for offset, record in stored.records() if offset == entry.marker_offset)
    header = stored.header
    try:
        found = decode(record.key, record.value)
    except ValueError as error:
        raise StateLost(f"{tp} at {entry.marker_offset}: {error}") from error
    ours = isinstance(found, Marker) and (found.query, found.task, found.batch) == (query, entry.task, batch)
    same = ours and isinstance(found, Marker) and (found.rows, found.fingerprint) == (entry.rows, entry.fingerprint)
    if not same or not header.is_transactional or (header.producer_id, header.producer_epoch) != entry.producer:
        raise StateLost(f"{tp} at {entry.marker_offset}: this is not the marker that {entry.transactional_id} wrote there")


def is_decided(client: KafkaClient, topic: str, query: str, batch: int, since: int) -> bool:
    """Return whether a decision about the batch, or a later one, was written at offset `since` or behind it, be it committed or
    under way. Raises StateLost for one that cannot be read."""
    tp = TopicPartition(topic, DECISIONS_PARTITION)
    start, end = bounds(client, tp)
    pending = set()
    for stored in scan(client, tp, max(start, since), end):
        producer_id = stored.header.producer_id
        if stored.ends is not None:
            if stored.ends and producer_id in pending:
                return True
            pending.discard(producer_id)
        elif any(it is not None and it.batch >= batch for it in _decisions(tp, query, stored)):
            pending.add(producer_id)
    return bool(pending)


def _decisions(tp: TopicPartition, query: str, stored: Stored) -> Iterator[Decision | None]:
    """The decisions about a query in a batch, None for a tombstone. They are written in transactions only. Raises StateLost."""
    if stored.ends is not None or not stored.header.is_transactional:
        return
    key = query.encode()
    for offset, record in stored.records():
        if record.key != key:
            continue
        try:
            found = decode(record.key, record.value)
        except ValueError as error:
            raise StateLost(f"{tp} at {offset}: {error}") from error
        if isinstance(found, Marker):
            raise StateLost(f"{tp} at {offset}: a marker among the decisions")
        yield found


@dataclass(slots=True)
class DecisionReader:
    """The newest committed decision of one query. Reads what has come since it was last asked."""

    query: str
    last: Decision | None = None
    _at: int = 0
    _pending: dict[int, Decision | None] = field(default_factory=dict)
    """By producer id: decisions (None: a tombstone) of transactions that have not ended in what was read."""

    def read(self, client: KafkaClient, topic: str) -> Decision | None:
        """Every transaction of the query's drivers has ended. Raises StateLost for a decision that cannot be read."""
        tp = TopicPartition(topic, DECISIONS_PARTITION)
        start, end = bounds(client, tp)
        if self._at > end:
            raise StateLost(f"{tp}: it has been read up to {self._at}, and its end is {end}: it was made anew, or cut")
        for stored in scan(client, tp, max(start, self._at), end):
            self._take(tp, stored)
            self._at = stored.header.next_offset
        self._at = max(self._at, end)
        if self._pending:
            raise ClientError(f"{tp}: a decision about {self.query} is under way in a transaction that is still open")
        return self.last

    def _take(self, tp: TopicPartition, stored: Stored) -> None:
        producer_id = stored.header.producer_id
        if stored.ends is not None and producer_id in self._pending:
            decision = self._pending.pop(producer_id)
            self.last = decision if stored.ends else self.last
        for decision in _decisions(tp, self.query, stored):
            self._pending[producer_id] = decision


def as_record(record: Decision | Marker) -> Record:
    key, value = encode(record)
    return Record(key, value)
