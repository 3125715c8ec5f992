"""Taking segments out of a log: below its start, or because a compacted one takes their place.

Source: LG-36 to LG-38, LG-46; KIP-107.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kraftlite.log.cleaned import CLEANED_SUFFIX, CleanedSegment
from kraftlite.log.context import LogContext
from kraftlite.log.epoch_file import EpochFile
from kraftlite.log.rolling import Roller
from kraftlite.log.segment import Segment
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.runtime.trace.log import LogStartAdvanced, SegmentDeleted


class DeletedSegment(NamedTuple):
    """Renamed files that wait to be unlinked."""

    paths: tuple[str, ...]
    due_ms: int | None
    """None until the owner's first `stamp`, `take` or `purge`."""


class DeletedFiles:
    """The files of segments that are no longer in the list, until somebody unlinks them (LG-38). Its length: so many segments."""

    __slots__ = ("_ctx", "_waiting")

    def __init__(self, ctx: LogContext, found: tuple[str, ...]) -> None:
        self._ctx = ctx
        self._waiting = [DeletedSegment(found, None)] if found else []

    def __len__(self) -> int:
        return len(self._waiting)

    def set_aside(self, segment: Segment) -> None:
        """Rename the files of a segment that is no longer in the list; a reader of it is not disturbed (LG-38)."""
        paths = tuple(segment.rename_deleted())
        # A compacted segment has the name of one that it replaced: what still waits under it is gone now.
        waiting = (
            deleted._replace(paths=tuple(path for path in deleted.paths if path not in paths)) for deleted in self._waiting
        )
        self._waiting = [*(deleted for deleted in waiting if deleted.paths), DeletedSegment(paths, None)]
        self._ctx.in_flight.retire(segment)

    def take(self, now_ms: int, *, force: bool = False) -> list[str]:
        """The files whose delay is over: the caller unlinks them, elsewhere if it takes long."""
        self.stamp(now_ms)
        due = [deleted for deleted in self._waiting if force or (deleted.due_ms or 0) <= now_ms]
        self._waiting = [deleted for deleted in self._waiting if deleted not in due]
        return [path for deleted in due for path in deleted.paths]

    def stamp(self, now_ms: int) -> None:
        """The delay of what was deleted since the last call begins now."""
        due_ms = now_ms + self._ctx.config.file_delete_delay_ms
        self._waiting = [deleted if deleted.due_ms is not None else deleted._replace(due_ms=due_ms) for deleted in self._waiting]

    def purge(self, now_ms: int, *, force: bool = False) -> int:
        """Unlink the files `file.delete.delay.ms` after the first call that saw them, and return how many segments still wait."""
        for path in self.take(now_ms, force=force):
            self._ctx.disk.unlink(path)
        return len(self)

    @property
    def next_ms(self) -> int | None:
        """Return when `take` has something to take; None when nothing waits, or what waits has no stamp yet."""
        return min((deleted.due_ms for deleted in self._waiting if deleted.due_ms is not None), default=None)

    def move(self, directory: str) -> None:
        """The log's directory has another name now."""
        self._waiting = [
            DeletedSegment(tuple(f"{directory}/{path.rpartition('/')[2]}" for path in deleted.paths), deleted.due_ms)
            for deleted in self._waiting
        ]


class Deletion:
    """Moves the log's start, drops the segments below it, and lets a compacted segment replace others."""

    __slots__ = ("_ctx", "_epochs", "_files", "_roller")

    def __init__(self, ctx: LogContext, epochs: EpochFile, roller: Roller, files: DeletedFiles) -> None:
        self._ctx = ctx
        self._epochs = epochs
        self._roller = roller
        self._files = files

    def increment_log_start(self, offset: int, reason: str) -> bool:
        """Move the log start up to `offset`, and return whether it moved. ApiError(OFFSET_OUT_OF_RANGE) above the HW.

        Segments below it stay until `delete_segments_before`.
        """
        ctx = self._ctx
        if offset > ctx.hw:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{ctx.tp}: log start {offset} would pass the high watermark {ctx.hw}")
        if offset <= ctx.log_start_offset:
            return False
        old, ctx.log_start_offset = ctx.log_start_offset, offset
        ctx.settled = False
        ctx.epochs.truncate_from_start(offset)
        self._epochs.write_if_dirty()
        ctx.tracer.emit(LogStartAdvanced(tp=ctx.tp, old=old, new=offset, reason=reason))
        return True

    def delete_segments_before(self, offset: int, *, reason: str) -> int:
        """Delete the segments that lie wholly below `offset`, never the active one, and return how many.

        Their files are renamed to `.deleted` now and wait in `DeletedFiles`. The log start follows.
        """
        ctx = self._ctx
        count = 0
        while len(ctx.segments) > 1 and ctx.segments[1].base_offset <= offset:
            segment = ctx.segments.drop_first()
            self._files.set_aside(segment)
            count += 1
            ctx.tracer.emit(SegmentDeleted(tp=ctx.tp, base_offset=segment.base_offset, size_bytes=segment.size, reason=reason))
        if count:
            ctx.settled = False
            self._roller.prune_snapshots(ctx.leo)
            first = ctx.segments.first.base_offset
            if first > ctx.log_start_offset:
                ctx.hw = max(ctx.hw, first)
                self.increment_log_start(first, reason)
        return count

    def replace_segments(self, new: CleanedSegment, old: Sequence[Segment]) -> None:
        """Put a compacted segment, which is durable under its `.cleaned` name, in the place of closed ones below the recovery
        point.

        Whatever of this a crash leaves, the next start finds the old segments or the new one, whole (LG-46). OSError: some of it
        has happened, so the log must not be used any more.
        """
        ctx = self._ctx
        end = ctx.segments.end_of(ctx.segments.index_of(old[-1].base_offset), ctx.leo)
        assert end <= ctx.recovery_point, (end, ctx.recovery_point)
        ctx.settled = False
        for name in ctx.disk.listdir(ctx.directory):
            # One that was given up: beside it, a start would take what is complete for unfinished.
            if name.endswith(CLEANED_SUFFIX) and int(name.partition(".")[0]) != new.base_offset:
                ctx.disk.unlink(f"{ctx.directory}/{name}")
        new.announce()
        ctx.disk.sync_dir(ctx.directory)
        ctx.segments.replace(old, new)
        for segment in old:
            self._files.set_aside(segment)
        ctx.disk.sync_dir(ctx.directory)  # else an old segment could come back beside the new one
        new.install()
        ctx.sync_dir_due = True
