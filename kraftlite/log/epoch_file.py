"""The leader epochs of one log, and the file that holds them: `leader-epoch-checkpoint`. Source: KIP-101; RP-28."""

from __future__ import annotations

from kraftlite.log import checkpoints
from kraftlite.log.context import LogContext
from kraftlite.runtime.trace import is_heard
from kraftlite.runtime.trace.log import LogEpochAssigned


class EpochFile:
    """Writes the entries of the epoch cache: at once to the page cache, durably when the recovery point leaves a segment."""

    __slots__ = ("_ctx", "_durable", "_filed")

    def __init__(self, ctx: LogContext, *, clean: bool, filed: bool) -> None:
        self._ctx = ctx
        self._durable = clean and not ctx.epochs.dirty
        self._filed = filed
        """There is a file that holds epochs."""

    def assign_start(self, epoch: int, offset: int) -> None:
        """Leader epoch `epoch` starts at `offset`. A new leader says so at its LEO, before its first append (RP-28)."""
        ctx = self._ctx
        if ctx.epochs.assign(epoch, offset):
            self.write()
            if is_heard(ctx.tracer, LogEpochAssigned):
                ctx.tracer.emit(LogEpochAssigned(tp=ctx.tp, leader_epoch=epoch, start_offset=offset))

    def write(self) -> None:
        """Bring the file up to date in the page cache; `persist` makes it durable.

        A crash may tear what is only in the page cache; an unclean start then collects the epochs from the batches. A log that
        was never written to gets the file with its first batch: without one its epochs say nothing.
        """
        ctx = self._ctx
        ctx.settled = self._durable = False
        if not ctx.claimed and not self._filed:
            return
        checkpoints.replace_file(ctx.disk, self._path, checkpoints.format_epochs(ctx.epochs.entries))
        ctx.epochs.dirty, self._filed = False, True

    def write_if_dirty(self) -> None:
        if self._ctx.epochs.dirty:
            self.write()

    def persist(self) -> None:
        """Make the entries durable."""
        ctx = self._ctx
        if not self._durable or ctx.epochs.dirty:
            ctx.disk.write_file_atomically(self._path, checkpoints.format_epochs(ctx.epochs.entries))
            self._durable, ctx.epochs.dirty = True, False

    @property
    def _path(self) -> str:
        return f"{self._ctx.directory}/{checkpoints.LEADER_EPOCH_CHECKPOINT}"
