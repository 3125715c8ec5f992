"""One log: the ordered record batches of one partition, or of the cluster metadata.

Source: LG-01 to LG-35, LG-41, LG-49 to LG-52; RP-27 to RP-29, RP-36.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from uuid import UUID

from kraftlite.log import producer_snapshots
from kraftlite.log.appends import AppendInfo, AppendingLog, UnexpectedAppend
from kraftlite.log.batch import HEADER_BYTES, parse_header
from kraftlite.log.cleaned import CLEANED_SUFFIX, CleanedSegment
from kraftlite.log.config import LogConfig
from kraftlite.log.producer_reload import reload_producers
from kraftlite.log.promises import Promise
from kraftlite.log.reads import TimestampOffset
from kraftlite.log.segment import Segment
from kraftlite.log.state import ActiveProducer, DeletedSegment
from kraftlite.log.validation import AppendOrigin, RecordsRejected
from kraftlite.model.errors import ApiError, ErrorCode, Fault
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.ports import Disk, Tracer
from kraftlite.runtime.trace import NullTracer
from kraftlite.runtime.trace.log import LogRestarted, LogStartAdvanced, LogTruncated, ProducersExpired, SegmentDeleted

__all__ = [
    "ActiveProducer",
    "AppendInfo",
    "AppendOrigin",
    "Log",
    "RecordsRejected",
    "TimestampOffset",
    "UnexpectedAppend",
]


class Log(AppendingLog):
    """Offsets [log_start_offset, leo). One owner, on one loop; every method but `flush` is synchronous and on the page cache.

    Invariants: log_start_offset <= last_stable_offset <= hw <= leo; recovery_point <= leo, and what is below it is durable.
    Raises ApiError for a refusal (nothing has changed then) and OSError when the disk fails; after an OSError from a write
    the owner must take the directory offline.

    Hooks for the owner, all called synchronously: `on_roll(log)` after a roll (flush up to `log.active_base_offset` soon);
    `on_recovery_point_lowered(log)` after a truncation below it (write the checkpoint before returning, LG-31);
    `on_restated(log)` when the log got its first record, and when what was stated of it (`statement`) may not hold any more.
    """

    @classmethod
    def open(
        cls,
        *,
        disk: Disk,
        directory: str,
        tp: TopicPartition,
        topic_id: UUID | None,
        config: LogConfig,
        log_start_offset: int = 0,
        recovery_point: int = 0,
        clean: bool = False,
        wall_ms: int,
        entropy: random.Random | None = None,
        tracer: Tracer | None = None,
        sibling: str | None = None,
        max_epoch: int | None = None,
        promise: Promise | None = None,
    ) -> Log:
        """Open or create a log. `clean`: the last owner closed it; else everything from `recovery_point` on is checked.

        `sibling`: the directory of another partition of that topic on the same disk, which makes a new one cheaper.
        `max_epoch`: no batch can be of a later leader epoch, where the owner knows that. `topic_id` None takes what
        `partition.metadata` says. ApiError(INCONSISTENT_TOPIC_ID) when the directory belongs to another topic of that name;
        OSError when the directory or a file in it is unusable.

        `promise`: what the log must hold. LogDamaged when its files contradict that; without one, the log ends where the damage
        begins.
        """
        return cls(
            disk=disk,
            directory=directory,
            tp=tp,
            topic_id=topic_id,
            config=config,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            clean=clean,
            wall_ms=wall_ms,
            entropy=entropy,
            tracer=tracer if tracer is not None else NullTracer(),
            sibling=sibling,
            max_epoch=max_epoch,
            promise=promise,
        )

    # truncation

    def truncate_to(self, offset: int, *, allow_below_hw: bool = False) -> bool:
        """Drop everything from `offset` on; whether anything was. A batch that holds `offset` inside goes whole (LG-35).

        Fault below the HW unless `allow_below_hw`: a data follower may be forced to after an unclean election (RP-32), a raft
        log never.
        """
        if offset >= self.leo:
            return False
        if offset < self.hw and not allow_below_hw:
            raise Fault(f"{self.tp}: truncation to {offset} would drop committed offsets, the high watermark is {self.hw}")
        if offset <= self._segments.first.base_offset:
            self.truncate_fully_and_start_at(max(0, offset))
            return True
        old_leo = self.leo
        self._settled = False
        self._in_flight.lower(offset)
        unlinked = False
        while self._segments.active.base_offset >= offset:
            self._drop(self._segments.drop_last())
            unlinked = True
        if unlinked:
            # A dropped segment must not come back behind what is appended next.
            self._disk.sync_dir(self.directory)
        leo = self._cut_active(offset)
        self.leo = leo
        self.log_start_offset = min(self.log_start_offset, leo)
        self.hw = min(self.hw, leo)
        if self.clean_offset is not None:
            self.clean_offset = min(self.clean_offset, leo)
        self._epochs.truncate_from_end(leo)
        if self._epochs.dirty:
            self._write_epochs()
        self._reload_producers()
        self._tracer.emit(LogTruncated(tp=self.tp, offset=offset, old_leo=old_leo, leo=leo, hw=self.hw))
        self._lower_recovery_point(leo)
        self._restated()
        return True

    def _cut_active(self, offset: int) -> int:
        """Cut the active segment at `offset`; the LEO that remains."""
        segment = self._segments.active
        position = segment.position_of(offset)
        if position is None:
            return offset
        header = parse_header(segment.file.pread(HEADER_BYTES, position))
        leo = min(offset, header.base_offset)
        self._in_flight.lower(leo)
        segment.truncate(position, leo)
        # Else a crash could keep the old tail here and what is appended next in a later segment: a log that never was.
        segment.file.sync()
        return leo

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop all data; the log is empty at `offset` then, with no epochs and no producers."""
        old_start, old_leo = self.log_start_offset, self.leo
        self._settled = False
        self._in_flight.lower(-1)
        snapshots = producer_snapshots.list_snapshots(self._disk, self.directory)
        kept = not self._segments.size_bytes and self.segment_base_offsets == (offset,)
        if not kept:
            for segment in reversed(list(self._segments)):
                self._drop(segment)
        producer_snapshots.delete_snapshots(self._disk, self.directory, snapshots)
        if not kept:
            self._segments.restart(self._new_segment(offset))
        if snapshots or not kept:
            self._disk.sync_dir(self.directory)
            self._named = offset
        self._epochs.clear()
        self._write_epochs()
        self._producers.clear()
        self.log_start_offset = self.leo = self.hw = offset
        if self.clean_offset is not None:
            self.clean_offset = offset
        lowered = offset < self.recovery_point
        self.recovery_point = offset
        self._tracer.emit(LogRestarted(tp=self.tp, offset=offset, old_log_start_offset=old_start, old_leo=old_leo))
        if lowered and self.on_recovery_point_lowered is not None:
            self.on_recovery_point_lowered(self)
        if self._claimed:
            self._restated()

    def _drop(self, segment: Segment) -> None:
        self._in_flight.retire(segment)
        segment.unlink()

    def _lower_recovery_point(self, offset: int) -> None:
        if offset < self.recovery_point:
            self.recovery_point = offset
            if self.on_recovery_point_lowered is not None:
                self.on_recovery_point_lowered(self)

    def _reload_producers(self) -> None:
        known = producer_snapshots.list_snapshots(self._disk, self.directory)
        if not len(self._producers) and (not known or known[-1] <= self.leo):
            return
        reload_producers(
            self._disk,
            self.directory,
            self._segments,
            self._producers,
            leo=self.leo,
            trust_below=self.leo,
            index_from=None,
            expired_before_ms=self._wall_ms - self.config.producer_id_expiration_ms,
            tracer=self._tracer,
            tp=self.tp,
        )
        self._producers.on_hw_advanced(self.hw)

    # the log's start

    def increment_log_start(self, offset: int, reason: str) -> bool:
        """Move the log start up to `offset`; whether it moved. ApiError(OFFSET_OUT_OF_RANGE) above the HW.

        Segments below it stay until `delete_segments_before`.
        """
        if offset > self.hw:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"{self.tp}: log start {offset} would pass the high watermark {self.hw}"
            )
        if offset <= self.log_start_offset:
            return False
        old, self.log_start_offset = self.log_start_offset, offset
        self._settled = False
        self._epochs.truncate_from_start(offset)
        if self._epochs.dirty:
            self._write_epochs()
        self._tracer.emit(LogStartAdvanced(tp=self.tp, old=old, new=offset, reason=reason))
        return True

    def delete_segments_before(self, offset: int, *, reason: str = "below log start") -> int:
        """Delete the segments that lie wholly below `offset`, never the active one; how many.

        Their files are renamed to `.deleted` now and unlinked by `purge_deleted`. The log start follows.
        """
        count = 0
        while len(self._segments) > 1 and self._segments[1].base_offset <= offset:
            segment = self._segments.drop_first()
            self._set_aside(segment)
            count += 1
            self._tracer.emit(SegmentDeleted(tp=self.tp, base_offset=segment.base_offset, size_bytes=segment.size, reason=reason))
        if count:
            self._settled = False
            self._prune_snapshots(self.leo)
            first = self._segments.first.base_offset
            if first > self.log_start_offset:
                self.hw = max(self.hw, first)
                self.increment_log_start(first, reason)
        return count

    def replace_segments(self, new: CleanedSegment, old: Sequence[Segment]) -> None:
        """Put a compacted segment, which is durable under its `.cleaned` name, in the place of closed ones below the recovery
        point.

        Whatever of this a crash leaves, the next start finds the old segments or the new one, whole (LG-46). OSError: some of it
        has happened, so the log must not be used any more.
        """
        end = self._segments.end_of(self._segments.index_of(old[-1].base_offset), self.leo)
        assert end <= self.recovery_point, (end, self.recovery_point)
        self._settled = False
        for name in self._disk.listdir(self.directory):
            # One that was given up: beside it, a start would take what is complete for unfinished.
            if name.endswith(CLEANED_SUFFIX) and int(name.partition(".")[0]) != new.base_offset:
                self._disk.unlink(f"{self.directory}/{name}")
        new.announce()
        self._disk.sync_dir(self.directory)
        self._segments.replace(old, new)
        for segment in old:
            self._set_aside(segment)
        self._disk.sync_dir(self.directory)  # else an old segment could come back beside the new one
        new.install()
        self._sync_dir_due = True

    def _set_aside(self, segment: Segment) -> None:
        """Rename the files of a segment that is no longer in the list; who reads it at the moment is not disturbed (LG-38)."""
        paths = tuple(segment.rename_deleted())
        # A compacted segment has the name of one that it replaced: what still waits under it is gone now.
        waiting = (
            deleted._replace(paths=tuple(path for path in deleted.paths if path not in paths)) for deleted in self._deleted
        )
        self._deleted = [*(deleted for deleted in waiting if deleted.paths), DeletedSegment(paths, None)]
        self._in_flight.retire(segment)

    def purge_deleted(self, now_ms: int, *, force: bool = False) -> int:
        """Unlink deleted files `file.delete.delay.ms` after the first call that saw them; how many segments still wait."""
        for path in self.take_deleted(now_ms, force=force):
            self._disk.unlink(path)
        return len(self._deleted)

    def take_deleted(self, now_ms: int, *, force: bool = False) -> list[str]:
        """The files that `purge_deleted` would unlink: the caller does it, elsewhere if it takes long."""
        self.stamp_deleted(now_ms)
        due = [deleted for deleted in self._deleted if force or (deleted.due_ms or 0) <= now_ms]
        self._deleted = [deleted for deleted in self._deleted if deleted not in due]
        return [path for deleted in due for path in deleted.paths]

    def stamp_deleted(self, now_ms: int) -> None:
        """The delay of what was deleted since the last call begins now."""
        due_ms = now_ms + self.config.file_delete_delay_ms
        self._deleted = [deleted if deleted.due_ms is not None else deleted._replace(due_ms=due_ms) for deleted in self._deleted]

    @property
    def next_purge_ms(self) -> int | None:
        """When `take_deleted` has something to take; None when nothing waits, or what waits has no stamp yet."""
        return min((deleted.due_ms for deleted in self._deleted if deleted.due_ms is not None), default=None)

    @property
    def deleted_waiting(self) -> int:
        """Deleted segments that are not unlinked yet."""
        return len(self._deleted)

    def remove_expired_producers(self, wall_ms: int) -> int:
        """Forget idle producers (LG-21); how many."""
        count = self._producers.remove_expired(wall_ms, self.config.producer_id_expiration_ms)
        if count:
            self._settled = False
            self._tracer.emit(ProducersExpired(tp=self.tp, count=count))
        return count

    # durability

    async def flush(self, up_to: int | None = None) -> int:
        """Make everything below `up_to` (default: the LEO of now) durable; returns the recovery point.

        Appends, rolls, truncations and deletions may happen meanwhile: what is appended during the flush is not counted, what
        is truncated during it neither. OSError: nothing may be assumed of what was to be flushed.
        """
        target = self.leo if up_to is None else min(up_to, self.leo)
        if target <= self.recovery_point:
            return self.recovery_point
        flush = self._in_flight.begin(target)
        try:
            crossed = False
            for segment, file in [(segment, segment.file) for segment in self._unflushed(target)]:
                segment.write_indexes()
                await file.flush()
                if segment is not self._segments.active and not segment.retired:
                    await segment.flush_indexes()
                    crossed = True
            self._sync_small_files(crossed)
        finally:
            self._in_flight.end(flush)
        self.recovery_point = max(self.recovery_point, flush.target)
        return self.recovery_point

    def flush_sync(self) -> int:
        """`flush` in place, blocking; for roll, shutdown and `flush.messages`."""
        target = self.leo
        if target > self.recovery_point:
            crossed = False
            for segment in self._unflushed(target):
                segment.write_indexes()
                segment.file.sync()
                if segment is not self._segments.active:
                    segment.sync_indexes()
                    crossed = True
            self._sync_small_files(crossed)
            self.recovery_point = target
        return self.recovery_point

    def _unflushed(self, target: int) -> list[Segment]:
        """The segments below `target` of which something may not be durable.

        When the recovery point is where the log has rolled since, the one before it is among them: it was the active one at
        the last flush, its indexes were not part of that.
        """
        first = max(self.recovery_point - 1, 0)
        return [segment for segment in self._segments.from_offset(first) if segment.base_offset < target]

    def _sync_small_files(self, crossed: bool) -> None:
        """Directory entries of new segments; epochs once the recovery point leaves a segment, which is then not read again."""
        if crossed:
            self._persist_epochs()
        if self._sync_dir_due:
            self._disk.sync_dir(self.directory)
            self._sync_dir_due = False

    def close(self) -> None:
        """Make everything durable, indexes and producer state included, so that the next start can be a clean one.

        A log that was never written to has nothing to lose, and thousands of them nothing to wait for.
        """
        if not self._settled and self._claimed:
            self.flush_sync()
            active = self._segments.active
            active.seal()
            active.start_tail(self.leo)
            active.sync_indexes()
            producer_snapshots.write_snapshot(self._disk, self.directory, self.leo, self._producers.items())
            producer_snapshots.sync_snapshot(self._disk, self.directory, self.leo)
            self._prune_snapshots(self.leo)
            self._persist_epochs()
            self._disk.sync_dir(self.directory)
            self._settled = True
        self.close_files()

    def close_files(self) -> None:
        """Let go of the open files without writing anything: the directory failed, or is about to be deleted."""
        for segment in self._segments:
            self._in_flight.retire(segment)

    def delete_files(self) -> None:
        """Remove the directory. The log is unusable afterwards."""
        self.close_files()
        self._disk.rmtree(self.directory)

    def rename_directory(self, new: str) -> None:
        """Move the log, for instance to `<name>.<uuid>-delete`. Open files follow."""
        self._disk.rename(self.directory, new)
        self._disk.sync_dir(new.rpartition("/")[0] or "/")
        self.directory = new
        self._deleted = [
            DeletedSegment(tuple(f"{new}/{path.rpartition('/')[2]}" for path in deleted.paths), deleted.due_ms)
            for deleted in self._deleted
        ]
        for segment in self._segments:
            segment.move(new)
