"""Rolling: when a log begins a new segment, and how. Source: LG-04, LG-20."""

from __future__ import annotations

from kraftlite.log import producer_snapshots
from kraftlite.log.batch import MAX_RELATIVE_OFFSET
from kraftlite.log.context import LogContext
from kraftlite.log.segment import Segment
from kraftlite.runtime.trace.log import LogRolled


class Roller:
    """Starts segments; keeps the producer snapshots that go with them."""

    __slots__ = ("_ctx",)

    def __init__(self, ctx: LogContext) -> None:
        self._ctx = ctx

    def reason(self, size: int, last_offset: int, timestamp: int) -> str | None:
        """Say why the next `size` bytes do not belong into the active segment (LG-04)."""
        ctx = self._ctx
        segment = ctx.segments.active
        if last_offset - segment.base_offset > MAX_RELATIVE_OFFSET:
            return "offset range"
        if segment.size == 0:
            return None
        if segment.size + size > ctx.config.segment_bytes:
            return "size"
        if segment.indexes_full:
            return "index full"
        return "time" if self._age(segment, timestamp) > ctx.max_segment_ms - segment.jitter_ms else None

    def _age(self, segment: Segment, timestamp: int) -> int:
        """Return how long the segment has been written to: by the batches' timestamps if they have them."""
        first = segment.rolling_timestamp
        if first is not None and first >= 0 and timestamp >= 0:
            return timestamp - first
        return self._ctx.wall_ms - segment.created_ms

    def maybe_roll(self, wall_ms: int) -> bool:
        """Roll if the active segment is not empty and older than `segment.ms` (or `max.compaction.lag.ms`) by now."""
        ctx = self._ctx
        ctx.wall_ms = wall_ms
        segment = ctx.segments.active
        if segment.size == 0 or self._age(segment, wall_ms) <= ctx.max_segment_ms - segment.jitter_ms:
            return False
        self.roll_at(ctx.leo, "time")
        return True

    def roll(self) -> bool:
        """Start a new segment now; False when the active one is empty."""
        if self._ctx.segments.active.size == 0:
            return False
        self.roll_at(self._ctx.leo, "asked")
        return True

    def roll_at(self, base_offset: int, reason: str) -> None:
        """An empty active segment is replaced; another one is closed, and the producers are remembered as of its end."""
        ctx = self._ctx
        old = ctx.segments.active
        ctx.settled = False
        if old.size == 0:
            ctx.in_flight.retire(old)
            old.unlink()
            ctx.segments.replace_active(self.new_segment(base_offset))
            return
        old.seal()
        producer_snapshots.write_snapshot(ctx.disk, ctx.directory, base_offset, ctx.producers.items())
        ctx.segments.add(self.new_segment(base_offset))
        self.prune_snapshots(base_offset)
        ctx.tracer.emit(LogRolled(tp=ctx.tp, base_offset=base_offset, reason=reason))
        ctx.tell_roll()

    def new_segment(self, base_offset: int) -> Segment:
        ctx = self._ctx
        ctx.sync_dir_due = True
        return Segment.create(
            ctx.disk, ctx.directory, base_offset, ctx.config, created_ms=ctx.wall_ms, jitter_ms=ctx.draw_jitter()
        )

    def prune_snapshots(self, newest: int) -> None:
        """Keep the snapshots of live segments and the newest (LG-20)."""
        ctx = self._ctx
        keep = {*ctx.segment_base_offsets, newest}
        known = producer_snapshots.list_snapshots(ctx.disk, ctx.directory)
        producer_snapshots.delete_snapshots(ctx.disk, ctx.directory, [offset for offset in known if offset not in keep])
