"""Appending and rolling. `log.Log` is the whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kraftlite.log import checkpoints, producer_snapshots
from kraftlite.log.batch import (
    MAX_RELATIVE_OFFSET,
    NO_TIMESTAMP,
    BatchHeader,
    check_crc,
    iter_headers,
    parse_header,
    stamp,
    stamp_append_time,
    stamp_max_timestamp,
)
from kraftlite.log.control import EndTxnMarker
from kraftlite.log.segment import Appended, Segment
from kraftlite.log.state import LogState
from kraftlite.log.validation import AppendOrigin, Verdict, check_batch, check_leader_batch, check_size, marker_of
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.limits import MAX_INT64
from kraftlite.runtime.trace.log import LogEpochAssigned, LogRolled

_CLIENT = AppendOrigin.CLIENT
_RAFT_LEADER = AppendOrigin.RAFT_LEADER


class UnexpectedAppend(ApiError):
    """A follower was handed a batch that does not continue its log: wrong offset, or an epoch older than its last (RP-36)."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, message)


class AppendInfo(NamedTuple):
    """What an append did. Offsets inclusive, `leo` after it. A duplicate has the offsets and time of the original."""

    base_offset: int
    last_offset: int
    append_time_ms: int
    """-1 with CreateTime."""
    log_start_offset: int
    leo: int
    duplicate: bool
    batch_count: int


class AppendingLog(LogState):
    """The ways in which a log grows."""

    def flush_sync(self) -> int:
        raise NotImplementedError

    def truncate_fully_and_start_at(self, offset: int) -> None:
        raise NotImplementedError

    # appending

    def append_as_leader(
        self,
        batch: bytearray | memoryview,
        *,
        leader_epoch: int,
        wall_ms: int,
        origin: AppendOrigin,
        verdict: Verdict | None = None,
    ) -> AppendInfo:
        """Append exactly one v2 batch; its base offset and leader epoch are stamped in place.

        Refusals (ApiError): CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, INVALID_RECORD, INVALID_TIMESTAMP,
        and from the producer's state OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE,
        TRANSACTION_COORDINATOR_FENCED. CLIENT is checked in full; RAFT_LEADER may exceed max.message.bytes; COORDINATOR and
        RAFT_LEADER may write control batches. `verdict` of a CLIENT's batch, when it was checked before; the sizes that the
        config allows are those of now.
        """
        if origin is _CLIENT:
            verdict = verdict or check_batch(batch, self.config, wall_ms)
            if verdict.refusal is not None:
                raise verdict.refusal
            header = verdict.header
        else:
            header = check_leader_batch(batch, self.config, origin)
        marker: EndTxnMarker | None = None
        if header.producer_id >= 0:
            if header.is_control:
                marker = marker_of(batch)
                if marker is not None:
                    self._producers.check_marker(header, marker)
            elif origin is _CLIENT:
                original = self._producers.duplicate_of(header)
                if original is not None:
                    first, last, at = original.first_offset, original.last_offset, original.timestamp_ms
                    return AppendInfo(first, last, at, self.log_start_offset, self.leo, True, 1)
                self._producers.check_batch(header)
            else:
                self._producers.check_epoch(header)
        append_time = NO_TIMESTAMP
        timestamp = header.max_timestamp
        if verdict is not None:
            batch, header = self._admitted(batch, verdict)
            timestamp = verdict.max_timestamp
        if self._append_time and origin is not _RAFT_LEADER:
            stamp_append_time(batch, header.attributes, wall_ms)
            timestamp = append_time = wall_ms
        latest = self._epochs.latest_epoch
        assert latest is None or latest <= leader_epoch, f"{self.tp}: leader epoch {leader_epoch} behind {latest}"
        base_offset = self.leo
        last_offset = base_offset + header.last_offset_delta
        self._wall_ms = wall_ms
        reason = self._roll_reason(len(batch), last_offset, timestamp)
        if reason is not None:
            self._roll(base_offset, reason)
        if not self._claimed:
            self._claim()
        stamp(batch, base_offset, leader_epoch)
        self._settled = False
        segment = self._segments.active
        segment.append(batch, (Appended(last_offset, len(batch), timestamp),))
        if leader_epoch != latest:
            self.assign_epoch_start(leader_epoch, base_offset)
        if header.producer_id >= 0:
            self._note_producer(segment, header, marker, base_offset, timestamp)
        self.leo = last_offset + 1
        if self.leo - self.recovery_point >= self._flush_every:
            self.flush_sync()
        return AppendInfo(base_offset, last_offset, append_time, self.log_start_offset, self.leo, False, 1)

    def _admitted(self, batch: bytearray | memoryview, verdict: Verdict) -> tuple[bytearray | memoryview, BatchHeader]:
        """What of a checked batch goes into the log: in the topic's codec, its highest timestamp right."""
        header = verdict.header
        if verdict.recompressed is not None:
            batch, header = verdict.recompressed, parse_header(verdict.recompressed)
        check_size(len(batch), self.config, _CLIENT)
        if verdict.max_timestamp != header.max_timestamp and not self._append_time:
            stamp_max_timestamp(batch, verdict.max_timestamp)
        return batch, header

    def append_as_follower(
        self,
        data: bytes | memoryview,
        *,
        leader_epoch: int | None = None,
        allow_gaps: bool | None = None,
        gaps_below: int = 0,
        wall_ms: int | None = None,
    ) -> AppendInfo | None:
        """Append whole batches as they are; a partial one at the end is ignored. None when there is nothing to append.

        Batches of an epoch newer than `leader_epoch` (the one under which they were fetched) and all behind them are left
        out. Offsets must continue the log: gaps only when the topic is compacted (`allow_gaps` None) or they end at or below
        `gaps_below`, and on an empty log the first batch may begin below the log start. Refusals: CORRUPT_MESSAGE,
        `UnexpectedAppend`.
        """
        view = memoryview(data)
        if self.config.compacted if allow_gaps is None else allow_gaps:
            gaps_below = MAX_INT64
        batches = self._checked(view, leader_epoch, gaps_below)
        if not batches:
            return None
        if wall_ms is not None:
            self._wall_ms = wall_ms
        first = batches[0][1]
        if first.base_offset < self.leo:
            log_start_offset = self.log_start_offset
            self.truncate_fully_and_start_at(first.base_offset)
            self.log_start_offset = self.hw = log_start_offset
        chunk: list[BatchHeader] = []
        start = size = 0
        for position, header in batches:
            reason = self._roll_reason(size + header.size_bytes, header.last_offset, header.max_timestamp)
            if reason is not None:
                if chunk:
                    self._write(view[start:position], chunk)
                self._roll(header.base_offset, reason)
                chunk, start, size = [], position, 0
            chunk.append(header)
            size += header.size_bytes
        self._write(view[start : start + size], chunk)
        if self.leo - self.recovery_point >= self._flush_every:
            self.flush_sync()
        return AppendInfo(first.base_offset, self.leo - 1, NO_TIMESTAMP, self.log_start_offset, self.leo, False, len(batches))

    def _claim(self) -> None:
        """Before the first write: a topic of thousands of partitions must not cost thousands of files and syncs at once.

        The segment's name becomes durable with the directory's: from now on it must be there.
        """
        self._segments.active.file.size()  # there is a file now
        checkpoints.sync_partition_metadata(self._disk, self.directory)
        self._disk.sync_dir(self._parent)
        self._claimed = True
        self._named = self._segments.active.base_offset
        self._restated()
        if self._epochs.dirty:
            self._write_epochs()

    def _checked(self, view: memoryview, leader_epoch: int | None, gaps_below: int) -> list[tuple[int, BatchHeader]]:
        """The batches to append, after all checks."""
        batches: list[tuple[int, BatchHeader]] = []
        expected, latest = self.leo, self.latest_epoch
        for position, header in iter_headers(view):
            epoch = header.partition_leader_epoch
            if leader_epoch is not None and epoch > leader_epoch:
                break
            if not check_crc(view[position : position + header.size_bytes], header):
                raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{self.tp}: CRC of the batch at offset {header.base_offset}")
            gap = expected < header.base_offset <= gaps_below
            if header.base_offset != expected and not gap and (batches or not self._straddles(header)):
                raise UnexpectedAppend(f"{self.tp}: batch at offset {header.base_offset}, expected {expected}")
            if latest is not None and 0 <= epoch < latest:
                raise UnexpectedAppend(
                    f"{self.tp}: batch at offset {header.base_offset} of leader epoch {epoch}, the log is at {latest}"
                )
            latest = epoch if epoch >= 0 else latest
            expected = header.next_offset
            batches.append((position, header))
        return batches

    def _straddles(self, header: BatchHeader) -> bool:
        """Whether this batch holds the start of a log that is still empty."""
        return self._segments.size_bytes == 0 and header.base_offset < self.leo <= header.last_offset

    def _write(self, data: memoryview, headers: Sequence[BatchHeader]) -> None:
        if not self._claimed:
            self._claim()
        self._settled = False
        segment = self._segments.active
        segment.append(data, [Appended(header.last_offset, header.size_bytes, header.max_timestamp) for header in headers])
        position = 0
        for header in headers:
            epoch = header.partition_leader_epoch
            if epoch >= 0 and epoch != self._epochs.latest_epoch:
                self.assign_epoch_start(epoch, header.base_offset)
            if header.producer_id >= 0:
                marker = marker_of(data[position : position + header.size_bytes]) if header.is_control else None
                self._note_producer(segment, header, marker, header.base_offset, header.max_timestamp)
            position += header.size_bytes
        self.leo = headers[-1].next_offset

    def _note_producer(
        self, segment: Segment, header: BatchHeader, marker: EndTxnMarker | None, base_offset: int, timestamp: int
    ) -> None:
        if not header.is_control:
            self._producers.append_batch(header, base_offset, timestamp)
        elif marker is not None:
            done = self._producers.append_marker(header, marker, base_offset, timestamp)
            aborted = self._producers.complete(done) if done is not None else None
            if aborted is not None:
                segment.txn_index.append(aborted)

    # epochs

    def assign_epoch_start(self, epoch: int, offset: int) -> None:
        """Leader epoch `epoch` starts at `offset`. A new leader says so at its LEO, before its first append (RP-28)."""
        if self._epochs.assign(epoch, offset):
            self._write_epochs()
            self._tracer.emit(LogEpochAssigned(tp=self.tp, leader_epoch=epoch, start_offset=offset))

    def _write_epochs(self) -> None:
        """Bring the file up to date in the page cache; `_persist_epochs` makes it durable.

        A crash may tear what is only in the page cache; an unclean start then collects the epochs from the batches. A log that
        was never written to gets the file with its first batch: without one its epochs say nothing.
        """
        self._settled = self._epochs_durable = False
        if not self._claimed and not self._epochs_filed:
            return
        path = f"{self.directory}/{checkpoints.LEADER_EPOCH_CHECKPOINT}"
        checkpoints.replace_file(self._disk, path, checkpoints.format_epochs(self._epochs.entries))
        self._epochs.dirty, self._epochs_filed = False, True

    def _persist_epochs(self) -> None:
        if not self._epochs_durable or self._epochs.dirty:
            path = f"{self.directory}/{checkpoints.LEADER_EPOCH_CHECKPOINT}"
            self._disk.write_file_atomically(path, checkpoints.format_epochs(self._epochs.entries))
            self._epochs_durable, self._epochs.dirty = True, False

    # rolling

    def _roll_reason(self, size: int, last_offset: int, timestamp: int) -> str | None:
        """Why the next `size` bytes do not belong into the active segment (LG-04)."""
        segment, config = self._segments.active, self.config
        if last_offset - segment.base_offset > MAX_RELATIVE_OFFSET:
            return "offset range"
        if segment.size == 0:
            return None
        if segment.size + size > config.segment_bytes:
            return "size"
        if segment.indexes_full:
            return "index full"
        return "time" if self._age(segment, timestamp) > self._max_segment_ms - segment.jitter_ms else None

    def _age(self, segment: Segment, timestamp: int) -> int:
        """How long the segment has been written to: by the batches' timestamps if they have them."""
        first = segment.rolling_timestamp
        if first is not None and first >= 0 and timestamp >= 0:
            return timestamp - first
        return self._wall_ms - segment.created_ms

    def maybe_roll(self, wall_ms: int) -> bool:
        """Roll if the active segment is not empty and older than `segment.ms` (or `max.compaction.lag.ms`) by now."""
        self._wall_ms = wall_ms
        segment = self._segments.active
        if segment.size == 0 or self._age(segment, wall_ms) <= self._max_segment_ms - segment.jitter_ms:
            return False
        self._roll(self.leo, "time")
        return True

    def roll(self) -> bool:
        """Start a new segment now; False when the active one is empty."""
        if self._segments.active.size == 0:
            return False
        self._roll(self.leo, "asked")
        return True

    def _roll(self, base_offset: int, reason: str) -> None:
        old = self._segments.active
        self._settled = False
        if old.size == 0:
            self._in_flight.retire(old)
            old.unlink()
            self._segments.replace_active(self._new_segment(base_offset))
            return
        old.seal()
        producer_snapshots.write_snapshot(self._disk, self.directory, base_offset, self._producers.items())
        self._segments.add(self._new_segment(base_offset))
        self._prune_snapshots(base_offset)
        self._tracer.emit(LogRolled(tp=self.tp, base_offset=base_offset, reason=reason))
        if self.on_roll is not None:
            self.on_roll(self)

    def _new_segment(self, base_offset: int) -> Segment:
        self._sync_dir_due = True
        return Segment.create(
            self._disk, self.directory, base_offset, self.config, created_ms=self._wall_ms, jitter_ms=self._draw_jitter()
        )

    def _prune_snapshots(self, newest: int) -> None:
        """Keep the snapshots of live segments and the newest (LG-20)."""
        keep = {*self.segment_base_offsets, newest}
        known = producer_snapshots.list_snapshots(self._disk, self.directory)
        producer_snapshots.delete_snapshots(self._disk, self.directory, [offset for offset in known if offset not in keep])
