"""The ways in which a log grows: as a leader from producers, as a follower by copying. Source: LG-01 to LG-24, RP-36."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kraftlite.log.batch import (
    NO_TIMESTAMP,
    BatchHeader,
    check_crc,
    iter_headers,
    parse_header,
    stamp,
    stamp_append_time,
    stamp_max_timestamp,
)
from kraftlite.log.context import LogContext
from kraftlite.log.control import EndTxnMarker
from kraftlite.log.directory import DirectoryClaim
from kraftlite.log.epoch_file import EpochFile
from kraftlite.log.flusher import Flusher
from kraftlite.log.guards import TransactionTerms
from kraftlite.log.rolling import Roller
from kraftlite.log.segment import Appended, Segment
from kraftlite.log.truncation import Truncation
from kraftlite.log.validation import AppendOrigin, Verdict, check_batch, check_leader_batch, check_size, marker_of
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.limits import MAX_INT64

_CLIENT = AppendOrigin.CLIENT
_RAFT_LEADER = AppendOrigin.RAFT_LEADER


class UnexpectedAppend(ApiError):
    """A follower was handed a batch that does not continue its log: wrong offset, or an epoch older than its last (RP-36)."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, message)


class AppendInfo(NamedTuple):
    """The result of an append. Offsets inclusive, `leo` after it. A duplicate has the offsets and time of the original."""

    base_offset: int
    last_offset: int
    append_time_ms: int
    """-1 with CreateTime."""
    log_start_offset: int
    leo: int
    duplicate: bool
    batch_count: int


class Appender:
    """Checks, stamps and writes batches; rolls before and flushes after a write where the config asks for it."""

    __slots__ = ("_claim", "_ctx", "_epochs", "_flusher", "_roller", "_truncation")

    def __init__(
        self,
        ctx: LogContext,
        claim: DirectoryClaim,
        epochs: EpochFile,
        roller: Roller,
        truncation: Truncation,
        flusher: Flusher,
    ) -> None:
        self._ctx = ctx
        self._claim = claim
        self._epochs = epochs
        self._roller = roller
        self._truncation = truncation
        self._flusher = flusher

    def append_as_leader(
        self,
        batch: bytearray | memoryview,
        leader_epoch: int,
        wall_ms: int,
        origin: AppendOrigin,
        verdict: Verdict | None,
        terms: TransactionTerms | None,
    ) -> AppendInfo:
        """Append exactly one v2 batch; its base offset and leader epoch are stamped in place.

        Refusals (ApiError): CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, INVALID_RECORD, INVALID_TIMESTAMP,
        and from the producer's state OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE,
        TRANSACTION_COORDINATOR_FENCED. CLIENT is checked in full; RAFT_LEADER may exceed max.message.bytes; COORDINATOR and
        RAFT_LEADER may write control batches. `verdict` of a CLIENT's batch, when it was checked before; the sizes that the
        config allows are those of now. `terms`: of a batch of a transaction that must be open, and of a marker; None: nobody has
        to be asked for the transaction, and a marker is of transaction.version 0.
        """
        ctx = self._ctx
        if origin is _CLIENT:
            verdict = verdict or check_batch(batch, ctx.config, wall_ms)
            if verdict.refusal is not None:
                raise verdict.refusal
            header = verdict.header
        else:
            header = check_leader_batch(batch, ctx.config, origin)
        marker: EndTxnMarker | None = None
        if header.producer_id >= 0:
            if header.is_control:
                marker = marker_of(batch)
                if marker is not None:
                    ctx.producers.check_marker(header, marker, 0 if terms is None else terms.version)
            else:
                original = ctx.producers.duplicate_of(header) if origin is _CLIENT else None
                if original is not None:
                    first, last, at = original.first_offset, original.last_offset, original.timestamp_ms
                    return AppendInfo(first, last, at, ctx.log_start_offset, ctx.leo, True, 1)
                if terms is not None and header.is_transactional:
                    ctx.producers.check_terms(header, terms, leader_epoch)
                (ctx.producers.check_batch if origin is _CLIENT else ctx.producers.check_epoch)(header)
        append_time, timestamp = NO_TIMESTAMP, header.max_timestamp
        if verdict is not None:
            batch, header = self._admitted(batch, verdict)
            timestamp = verdict.max_timestamp
        if ctx.append_time and origin is not _RAFT_LEADER:
            stamp_append_time(batch, header.attributes, wall_ms)
            timestamp = append_time = wall_ms
        latest = ctx.epochs.latest_epoch
        assert latest is None or latest <= leader_epoch, f"{ctx.tp}: leader epoch {leader_epoch} behind {latest}"
        base_offset = ctx.leo
        last_offset = base_offset + header.last_offset_delta
        ctx.wall_ms = wall_ms
        reason = self._roller.reason(len(batch), last_offset, timestamp)
        if reason is not None:
            self._roller.roll_at(base_offset, reason)
        if not ctx.claimed:
            self._claim.make_durable()
        stamp(batch, base_offset, leader_epoch)
        ctx.settled = False
        segment = ctx.segments.active
        segment.append(batch, (Appended(last_offset, len(batch), timestamp),))
        if leader_epoch != latest:
            self._epochs.assign_start(leader_epoch, base_offset)
        if header.producer_id >= 0:
            self._note_producer(segment, header, marker, base_offset, timestamp)
        ctx.leo = last_offset + 1
        if ctx.leo - ctx.recovery_point >= ctx.flush_every:
            self._flusher.flush_sync()
        return AppendInfo(base_offset, last_offset, append_time, ctx.log_start_offset, ctx.leo, False, 1)

    def _admitted(self, batch: bytearray | memoryview, verdict: Verdict) -> tuple[bytearray | memoryview, BatchHeader]:
        """Return the form of a checked batch that goes into the log: in the topic's codec, its highest timestamp right."""
        ctx = self._ctx
        header = verdict.header
        if verdict.recompressed is not None:
            batch, header = verdict.recompressed, parse_header(verdict.recompressed)
        check_size(len(batch), ctx.config, _CLIENT)
        if verdict.max_timestamp != header.max_timestamp and not ctx.append_time:
            stamp_max_timestamp(batch, verdict.max_timestamp)
        return batch, header

    def append_as_follower(
        self,
        data: bytes | memoryview,
        leader_epoch: int | None,
        allow_gaps: bool | None,
        gaps_below: int,
        wall_ms: int | None,
    ) -> AppendInfo | None:
        """Append whole batches as they are; a partial one at the end is ignored. None when there is nothing to append.

        Batches of an epoch newer than `leader_epoch` (the one under which they were fetched) and all behind them are left
        out. Offsets must continue the log: gaps only when the topic is compacted (`allow_gaps` None) or they end at or below
        `gaps_below`, and on an empty log the first batch may begin below the log start. Refusals: CORRUPT_MESSAGE,
        `UnexpectedAppend`.
        """
        ctx = self._ctx
        view = memoryview(data)
        if ctx.config.compacted if allow_gaps is None else allow_gaps:
            gaps_below = MAX_INT64
        batches = self._checked(view, leader_epoch, gaps_below)
        if not batches:
            return None
        if wall_ms is not None:
            ctx.wall_ms = wall_ms
        first = batches[0][1]
        if first.base_offset < ctx.leo:
            log_start_offset = ctx.log_start_offset
            self._truncation.truncate_fully_and_start_at(first.base_offset)
            ctx.log_start_offset = ctx.hw = log_start_offset
        chunk: list[BatchHeader] = []
        start = size = 0
        for position, header in batches:
            reason = self._roller.reason(size + header.size_bytes, header.last_offset, header.max_timestamp)
            if reason is not None:
                if chunk:
                    self._write(view[start:position], chunk)
                self._roller.roll_at(header.base_offset, reason)
                chunk, start, size = [], position, 0
            chunk.append(header)
            size += header.size_bytes
        self._write(view[start : start + size], chunk)
        if ctx.leo - ctx.recovery_point >= ctx.flush_every:
            self._flusher.flush_sync()
        return AppendInfo(first.base_offset, ctx.leo - 1, NO_TIMESTAMP, ctx.log_start_offset, ctx.leo, False, len(batches))

    def _checked(self, view: memoryview, leader_epoch: int | None, gaps_below: int) -> list[tuple[int, BatchHeader]]:
        """The batches to append, after all checks."""
        ctx = self._ctx
        batches: list[tuple[int, BatchHeader]] = []
        expected, latest = ctx.leo, ctx.epochs.latest_epoch
        for position, header in iter_headers(view):
            epoch = header.partition_leader_epoch
            if leader_epoch is not None and epoch > leader_epoch:
                break
            if not check_crc(view[position : position + header.size_bytes], header):
                raise ApiError(
                    ErrorCode.CORRUPT_MESSAGE, f"{ctx.tp}: the CRC of the batch at offset {header.base_offset} does not match"
                )
            gap = expected < header.base_offset <= gaps_below
            if header.base_offset != expected and not gap and (batches or not self._straddles(header)):
                raise UnexpectedAppend(f"{ctx.tp}: the batch has offset {header.base_offset}, expected {expected}")
            if latest is not None and 0 <= epoch < latest:
                raise UnexpectedAppend(
                    f"{ctx.tp}: the batch at offset {header.base_offset} is of leader epoch {epoch}, the log is at {latest}"
                )
            latest = epoch if epoch >= 0 else latest
            expected = header.next_offset
            batches.append((position, header))
        return batches

    def _straddles(self, header: BatchHeader) -> bool:
        """Return whether this batch holds the start of a log that is still empty."""
        ctx = self._ctx
        return ctx.segments.size_bytes == 0 and header.base_offset < ctx.leo <= header.last_offset

    def _write(self, data: memoryview, headers: Sequence[BatchHeader]) -> None:
        ctx = self._ctx
        if not ctx.claimed:
            self._claim.make_durable()
        ctx.settled = False
        segment = ctx.segments.active
        segment.append(data, [Appended(header.last_offset, header.size_bytes, header.max_timestamp) for header in headers])
        position = 0
        for header in headers:
            epoch = header.partition_leader_epoch
            if epoch >= 0 and epoch != ctx.epochs.latest_epoch:
                self._epochs.assign_start(epoch, max(header.base_offset, ctx.log_start_offset))  # the first batch may straddle
            if header.producer_id >= 0:
                marker = marker_of(data[position : position + header.size_bytes]) if header.is_control else None
                self._note_producer(segment, header, marker, header.base_offset, header.max_timestamp)
            position += header.size_bytes
        ctx.leo = headers[-1].next_offset

    def _note_producer(
        self, segment: Segment, header: BatchHeader, marker: EndTxnMarker | None, base_offset: int, timestamp: int
    ) -> None:
        producers = self._ctx.producers
        if not header.is_control:
            producers.append_batch(header, base_offset, timestamp)
        elif marker is not None:
            done = producers.append_marker(header, marker, base_offset, timestamp)
            aborted = producers.complete(done) if done is not None else None
            if aborted is not None:
                segment.txn_index.append(aborted)
