"""Gathers what the active controller appends into batches before they are written.

Source: KIP-595 (linger), Kafka's BatchAccumulator contract; RF-35, RF-36.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kraftlite.log.batch import Record
from kraftlite.log.control import ControlRecord, encode_control
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.limits import RAFT_MAX_BATCH_BYTES, RAFT_MAX_WAITING_BATCHES
from kraftlite.raft.client import RecordSerde

BATCH_OVERHEAD_BYTES = 61
RECORD_OVERHEAD_BYTES = 21
"""Attributes, varints for lengths, offset and timestamp deltas, header count: never more than this for a record without key."""


@dataclass(slots=True, kw_only=True)
class PreparedBatch:
    """Records that go into the log as one batch. `decoded` is kept so that commit delivery need not decode them again."""

    base_offset: int
    timestamp_ms: int
    decoded: list[Any] = field(default_factory=list)
    encoded: list[Record] = field(default_factory=list)
    size_bytes: int = BATCH_OVERHEAD_BYTES
    scheduled: int = 0
    """The number of the records that may leave."""
    is_control: bool = False


class BatchAccumulator:
    """One leader epoch's appends. Every `prepare` is atomic: its records share a batch.

    Limits: a batch is at most `max_batch_bytes` (8 MiB, or a segment if that is smaller);
    at most 10 full batches wait. Times are monotonic milliseconds but for `wall_ms`.
    """

    def __init__(
        self, *, epoch: int, next_offset: int, serde: RecordSerde, linger_ms: int, max_batch_bytes: int = RAFT_MAX_BATCH_BYTES
    ) -> None:
        self.epoch = epoch
        self.next_offset = next_offset
        self._serde = serde
        self._linger_ms = linger_ms
        self._max_batch_bytes = min(max_batch_bytes, RAFT_MAX_BATCH_BYTES)
        self._batches: list[PreparedBatch] = []
        self._linger_deadline_ms: int | None = None

    def prepare(self, records: Sequence[Any], wall_ms: int, encoded: Sequence[bytes] | None = None) -> int:
        """Stage `records`; returns the offset of the last one. Raises ApiError and leaves nothing behind when they do not fit."""
        if not records:
            raise ValueError("an append needs at least one record")
        values = [self._serde.encode(record) for record in records] if encoded is None else encoded
        assert len(values) == len(records), f"{len(values)} values of {len(records)} records"
        size = sum(map(len, values)) + RECORD_OVERHEAD_BYTES * len(values)
        if size + BATCH_OVERHEAD_BYTES > self._max_batch_bytes:
            message = f"{len(values)} records need {size} bytes; one atomic append holds at most {self._max_batch_bytes}"
            raise ApiError(ErrorCode.RECORD_LIST_TOO_LARGE, message)
        batch = self._batch_with_room_for(size, wall_ms)
        first_delta = len(batch.encoded)
        batch.encoded.extend(
            Record(key=None, value=value, offset_delta=delta) for delta, value in enumerate(values, start=first_delta)
        )
        batch.decoded.extend(records)
        batch.size_bytes += size
        self.next_offset += len(values)
        return self.next_offset - 1

    def prepare_control(self, controls: Sequence[ControlRecord], wall_ms: int, now_ms: int) -> int:
        """Let control records leave as a batch of their own, behind everything that was prepared before; returns the offset of
        the last one. They do not linger, but wait until what is before them is scheduled."""
        encoded = [encode_control(control)._replace(offset_delta=delta) for delta, control in enumerate(controls)]
        batch = PreparedBatch(base_offset=self.next_offset, timestamp_ms=wall_ms, encoded=encoded, is_control=True)
        batch.scheduled = len(encoded)
        self._batches.append(batch)
        self._linger_deadline_ms = now_ms
        self.next_offset += len(encoded)
        return self.next_offset - 1

    def _batch_with_room_for(self, size: int, wall_ms: int) -> PreparedBatch:
        last = self._batches[-1] if self._batches else None
        if last is not None and not last.is_control and last.size_bytes + size <= self._max_batch_bytes:
            return last
        if len(self._batches) > RAFT_MAX_WAITING_BATCHES:
            message = f"{len(self._batches)} batches wait to be written; at most {RAFT_MAX_WAITING_BATCHES} full ones may"
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, message)
        self._batches.append(PreparedBatch(base_offset=self.next_offset, timestamp_ms=wall_ms))
        return self._batches[-1]

    def schedule(self, now_ms: int) -> None:
        """Everything prepared so far may leave: when the linger time is over, or at once when a batch is full."""
        for batch in self._batches:
            batch.scheduled = len(batch.encoded)
        if self._batches and self._linger_deadline_ms is None:
            self._linger_deadline_ms = now_ms + self._linger_ms

    @property
    def drain_deadline_ms(self) -> int | None:
        return self._linger_deadline_ms

    def is_due(self, now_ms: int) -> bool:
        if self._linger_deadline_ms is None:
            return False
        return self._linger_deadline_ms <= now_ms or (len(self._batches) > 1 and self._batches[1].scheduled > 0)

    def drain(self) -> list[PreparedBatch]:
        """Take everything that was scheduled, in offset order."""
        drained: list[PreparedBatch] = []
        while self._batches and self._batches[0].scheduled > 0:
            batch = self._batches[0]
            if batch.scheduled == len(batch.encoded):
                drained.append(self._batches.pop(0))
            else:
                head, self._batches[0] = _split(batch)
                drained.append(head)
        self._linger_deadline_ms = None
        return drained

    @property
    def waiting_records(self) -> int:
        return sum(len(batch.encoded) for batch in self._batches)


def _split(batch: PreparedBatch) -> tuple[PreparedBatch, PreparedBatch]:
    """The scheduled records and the rest, as two batches."""
    cut = batch.scheduled
    head = PreparedBatch(
        base_offset=batch.base_offset,
        timestamp_ms=batch.timestamp_ms,
        decoded=batch.decoded[:cut],
        encoded=batch.encoded[:cut],
        scheduled=cut,
    )
    rest = PreparedBatch(
        base_offset=batch.base_offset + cut,
        timestamp_ms=batch.timestamp_ms,
        decoded=batch.decoded[cut:],
        encoded=[Record(key=None, value=record.value, offset_delta=i) for i, record in enumerate(batch.encoded[cut:])],
        size_bytes=batch.size_bytes,
    )
    return head, rest
