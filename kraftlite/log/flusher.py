"""Making a log durable: flushes while it goes on, flushes in place, and closing it. Source: LG-26, LG-31 to LG-34."""

from __future__ import annotations

from kraftlite.log import producer_snapshots
from kraftlite.log.context import LogContext
from kraftlite.log.epoch_file import EpochFile
from kraftlite.log.rolling import Roller
from kraftlite.log.segment import Segment
from kraftlite.log.statements import Statement


class Flusher:
    """Raises the recovery point: what is below it is durable."""

    __slots__ = ("_ctx", "_epochs", "_roller")

    def __init__(self, ctx: LogContext, epochs: EpochFile, roller: Roller) -> None:
        self._ctx = ctx
        self._epochs = epochs
        self._roller = roller

    async def flush(self, up_to: int | None = None) -> int:
        """Make everything below `up_to` (default: the LEO of now) durable; returns the recovery point.

        Appends, rolls, truncations and deletions may happen meanwhile: what is appended during the flush is not counted, what
        is truncated during it neither. OSError: nothing may be assumed of what was to be flushed.
        """
        ctx = self._ctx
        target = ctx.leo if up_to is None else min(up_to, ctx.leo)
        if target <= ctx.recovery_point:
            return ctx.recovery_point
        flush = ctx.in_flight.begin(target)
        try:
            crossed = False
            for segment, file in [(segment, segment.file) for segment in self._unflushed(target)]:
                segment.write_indexes()
                await file.flush()
                if segment is not ctx.segments.active and not segment.retired:
                    await segment.flush_indexes()
                    crossed = True
            self._sync_small_files(crossed)
        finally:
            ctx.in_flight.end(flush)
        ctx.recovery_point = max(ctx.recovery_point, flush.target)
        return ctx.recovery_point

    def flush_sync(self) -> int:
        """`flush` in place, blocking; for roll, shutdown and `flush.messages`."""
        ctx = self._ctx
        target = ctx.leo
        if target > ctx.recovery_point:
            crossed = False
            for segment in self._unflushed(target):
                segment.write_indexes()
                segment.file.sync()
                if segment is not ctx.segments.active:
                    segment.sync_indexes()
                    crossed = True
            self._sync_small_files(crossed)
            ctx.recovery_point = target
        return ctx.recovery_point

    def _unflushed(self, target: int) -> list[Segment]:
        """The segments below `target` of which something may not be durable.

        When the recovery point is where the log has rolled since, the one before it is among them: it was the active one at
        the last flush, its indexes were not part of that.
        """
        first = max(self._ctx.recovery_point - 1, 0)
        return [segment for segment in self._ctx.segments.from_offset(first) if segment.base_offset < target]

    def _sync_small_files(self, crossed: bool) -> None:
        """Directory entries of new segments; epochs once the recovery point leaves a segment, which is then not read again."""
        ctx = self._ctx
        if crossed:
            self._epochs.persist()
        if ctx.sync_dir_due:
            ctx.disk.sync_dir(ctx.directory)
            ctx.sync_dir_due = False

    def close(self) -> None:
        """Make everything durable, so that the next start can be a clean one, and let go of the files."""
        self._settle()
        self.close_files()

    def close_files(self) -> None:
        """Let go of the open files without writing anything: the directory failed, or is about to be deleted."""
        for segment in self._ctx.segments:
            self._ctx.in_flight.retire(segment)

    def _settle(self) -> None:
        """Make everything durable, indexes and producer state included, so that the next start can be a clean one.

        A log that was never written to has nothing to lose, and thousands of them nothing to wait for.
        """
        ctx = self._ctx
        if ctx.settled or not ctx.claimed:
            return
        self.flush_sync()
        active = ctx.segments.active
        active.seal()
        active.start_tail(ctx.leo)
        active.sync_indexes()
        producer_snapshots.write_snapshot(ctx.disk, ctx.directory, ctx.leo, ctx.producers.items())
        producer_snapshots.sync_snapshot(ctx.disk, ctx.directory, ctx.leo)
        self._roller.prune_snapshots(ctx.leo)
        self._epochs.persist()
        ctx.disk.sync_dir(ctx.directory)
        ctx.settled = True

    def statement(self, old: Statement | None, gaps_below: int) -> Statement:
        """Return the statement that may be made of the log for a start after a power cut: no more than is durable. `old`: what
        was stated last.

        A segment's name is durable when something in it was flushed, or the directory was since the segment came.
        """
        ctx = self._ctx
        bound = ctx.recovery_point - 1 if ctx.sync_dir_due else ctx.recovery_point
        bases = ctx.segment_base_offsets
        active = max((base for base in bases if base <= bound), default=-1)
        named = ctx.named if old is None else max(ctx.named, old.active)
        if active < named and named in bases:
            active = named
        if old is not None:
            gaps_below = max(gaps_below, old.gaps_below)
        return Statement(ctx.log_start_offset, ctx.recovery_point, active, max(gaps_below, ctx.clean_offset or 0))
