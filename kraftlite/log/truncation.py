"""Cutting the end off a log, or all of it, in an order that no crash can turn into a log that never was.

Source: LG-31, LG-35; RP-27, RP-32.
"""

from __future__ import annotations

from kraftlite.log import producer_snapshots
from kraftlite.log.batch import HEADER_BYTES, parse_header
from kraftlite.log.context import LogContext
from kraftlite.log.epoch_file import EpochFile
from kraftlite.log.producer_reload import reload_producers
from kraftlite.log.rolling import Roller
from kraftlite.log.segment import Segment
from kraftlite.model.errors import Fault
from kraftlite.runtime.trace.log import LogRestarted, LogTruncated


class Truncation:
    """Drops segments from the end, cuts the one that remains, and brings epochs and producers to the new end."""

    __slots__ = ("_ctx", "_epochs", "_roller")

    def __init__(self, ctx: LogContext, epochs: EpochFile, roller: Roller) -> None:
        self._ctx = ctx
        self._epochs = epochs
        self._roller = roller

    def truncate_to(self, offset: int, *, allow_below_hw: bool = False) -> bool:
        """Drop everything from `offset` on, and return whether there was anything. A batch that holds `offset` inside goes whole
        (LG-35).

        Fault below the HW unless `allow_below_hw`: a data follower may be forced to after an unclean election (RP-32), a raft
        log never.
        """
        ctx = self._ctx
        if offset >= ctx.leo:
            return False
        if offset < ctx.hw and not allow_below_hw:
            raise Fault(f"{ctx.tp}: truncation to {offset} would drop committed offsets, the high watermark is {ctx.hw}")
        if offset <= ctx.segments.first.base_offset:
            self.truncate_fully_and_start_at(max(0, offset))
            return True
        old_leo = ctx.leo
        ctx.settled = False
        ctx.in_flight.lower(offset)
        unlinked = False
        while ctx.segments.active.base_offset >= offset:
            self._drop(ctx.segments.drop_last())
            unlinked = True
        if unlinked:
            # A dropped segment must not come back behind what is appended next.
            ctx.disk.sync_dir(ctx.directory)
        leo = self._cut_active(offset)
        ctx.leo = leo
        ctx.log_start_offset = min(ctx.log_start_offset, leo)
        ctx.hw = min(ctx.hw, leo)
        if ctx.clean_offset is not None:
            ctx.clean_offset = min(ctx.clean_offset, leo)
        ctx.epochs.truncate_from_end(leo)
        self._epochs.write_if_dirty()
        self._reload_producers()
        ctx.tracer.emit(LogTruncated(tp=ctx.tp, offset=offset, old_leo=old_leo, leo=leo, hw=ctx.hw))
        if leo < ctx.recovery_point:
            ctx.recovery_point = leo
            ctx.tell_recovery_point_lowered()
        ctx.tell_restated()
        return True

    def _cut_active(self, offset: int) -> int:
        """Cut the active segment at `offset`, and return the LEO that remains."""
        ctx = self._ctx
        segment = ctx.segments.active
        position = segment.position_of(offset)
        if position is None:
            return offset
        header = parse_header(segment.file.pread(HEADER_BYTES, position))
        leo = min(offset, header.base_offset)
        ctx.in_flight.lower(leo)
        segment.truncate(position, leo)
        # Else a crash could keep the old tail here and what is appended next in a later segment: a log that never was.
        segment.file.sync()
        return leo

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop all data; the log is empty at `offset` then, with no epochs and no producers."""
        ctx = self._ctx
        old_start, old_leo = ctx.log_start_offset, ctx.leo
        ctx.settled = False
        ctx.in_flight.lower(-1)
        snapshots = producer_snapshots.list_snapshots(ctx.disk, ctx.directory)
        kept = not ctx.segments.size_bytes and ctx.segment_base_offsets == (offset,)
        if not kept:
            for segment in reversed(list(ctx.segments)):
                self._drop(segment)
        producer_snapshots.delete_snapshots(ctx.disk, ctx.directory, snapshots)
        if not kept:
            ctx.segments.restart(self._roller.new_segment(offset))
        if snapshots or not kept:
            ctx.disk.sync_dir(ctx.directory)
            ctx.named = offset
        ctx.epochs.clear()
        self._epochs.write()
        ctx.producers.clear()
        ctx.log_start_offset = ctx.leo = ctx.hw = offset
        if ctx.clean_offset is not None:
            ctx.clean_offset = offset
        lowered = offset < ctx.recovery_point
        ctx.recovery_point = offset
        ctx.tracer.emit(LogRestarted(tp=ctx.tp, offset=offset, old_log_start_offset=old_start, old_leo=old_leo))
        if lowered:
            ctx.tell_recovery_point_lowered()
        if ctx.claimed:
            ctx.tell_restated()

    def _drop(self, segment: Segment) -> None:
        self._ctx.in_flight.retire(segment)
        segment.unlink()

    def _reload_producers(self) -> None:
        ctx = self._ctx
        ctx.producers.forget_beyond(ctx.leo)
        known = producer_snapshots.list_snapshots(ctx.disk, ctx.directory)
        if len(ctx.producers) or ctx.producers.has_expired_some or (known and known[-1] > ctx.leo):
            reload_producers(
                ctx.disk,
                ctx.directory,
                ctx.segments,
                ctx.producers,
                known=known,
                leo=ctx.leo,
                trust_below=ctx.leo,
                index_from=None,
                expired_before_ms=ctx.wall_ms - ctx.config.producer_id_expiration_ms,
                tracer=ctx.tracer,
                tp=ctx.tp,
                remembered_to=ctx.hw,  # else what is decided in it would have to be found out
            )
        ctx.reloaded()
