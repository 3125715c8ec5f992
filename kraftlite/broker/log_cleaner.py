"""The task that compacts the logs of a broker, one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from kraftlite.broker.config import CleanerConfig
from kraftlite.log.cleaner import Cleaning, LogToClean, look
from kraftlite.log.log import Log
from kraftlite.model.errors import ApiError
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.ports import Ports
from kraftlite.runtime.trace.log import LogCleaned, LogCleaningAborted, LogUncleanable


class CleanableLogs(Protocol):
    """The part of `LogDirs` that compaction needs."""

    def logs(self) -> Sequence[Log]: ...

    def get(self, tp: TopicPartition) -> Log | None: ...

    def is_moving(self, tp: TopicPartition) -> bool: ...

    def handle_failure(self, error: OSError, tp: TopicPartition) -> None: ...

    def purge_soon(self, log: Log) -> None: ...

    def write_recovery_point_of(self, tp: TopicPartition) -> None:
        """Called before a segment is replaced: the next start must not take its holes for damage. Raises OSError."""
        ...

    def write_clean_offset_of(self, tp: TopicPartition) -> None:
        """Write `cleaner-offset-checkpoint`. Raises OSError."""
        ...


class LogCleaner:
    """Compacts the dirtiest log that is due, again and again, and pauses when none is.

    Reading and writing is done off the loop in steps of a few milliseconds. A log that cannot be read is left alone until the
    node starts again; one that changes under the cleaner is given up and looked at again; an I/O error takes its directory
    offline.
    Departs: one log at a time, whatever `log.cleaner.threads` says: a node has one interpreter.
    Source: LG-42 to LG-48.
    """

    def __init__(self, ports: Ports, config: CleanerConfig, logs: CleanableLogs) -> None:
        self._ports = ports
        self._config = config
        self._logs = logs
        self._uncleanable: dict[TopicPartition, Log] = {}

    async def run(self) -> None:
        while True:
            if not await self.clean_dirtiest():
                await self._ports.clock.sleep(self._config.backoff_ms)

    async def clean_dirtiest(self) -> bool:
        """Compact one log; False when none was due, or that came to nothing."""
        found = await self._dirtiest()
        if found is None:
            return False
        return await self._clean(found)

    async def _dirtiest(self) -> LogToClean | None:
        best: LogToClean | None = None
        compacted = [log for log in self._logs.logs() if log.config.compacted]
        for count, log in enumerate(compacted, start=1):
            if count % self._ports.tuning.logs_per_turn == 0:
                await self._ports.clock.sleep(0)
            if not self._current(log) or self._uncleanable.get(log.tp) is log:
                continue
            try:
                found = look(log, self._ports.clock.wall_ms())
            except (OSError, ApiError) as error:
                self._failed(log, error)
                continue
            if found.due and (best is None or found.dirty_ratio > best.dirty_ratio):
                best = found
        return best if best is None or self._current(best.log) else None

    def _current(self, log: Log) -> bool:
        return self._logs.get(log.tp) is log and not self._logs.is_moving(log.tp)

    async def _clean(self, todo: LogToClean) -> bool:
        log = todo.log
        try:
            await log.flush(log.active_base_offset)
        except OSError as error:
            self._failed(log, error)
            return False
        cleaning = Cleaning(todo, self._ports.disk, map_bytes=self._config.map_bytes, wall_ms=self._ports.clock.wall_ms())
        try:
            if not self._current(log) or not cleaning.intact():
                self._aborted(log, "it changed before the pass")
                return False
            self._logs.write_recovery_point_of(log.tp)
            await self._run(cleaning.index())
            for group in cleaning.groups():
                await self._run(cleaning.rewrite(group))
                if not self._current(log) or not cleaning.intact():
                    cleaning.give_up()
                    self._aborted(log, "it changed during the pass")
                    return False
                if cleaning.swap(group):
                    self._logs.purge_soon(log)
            log.clean_offset = cleaning.end_offset
            self._logs.write_clean_offset_of(log.tp)
        except (OSError, ApiError) as error:
            self._failed(log, error, cleaning)
            return False
        self._ports.tracer.emit(
            LogCleaned(
                tp=log.tp,
                first_dirty=todo.first_dirty,
                up_to=cleaning.end_offset,
                keys=len(cleaning.offsets),
                bytes_before=cleaning.bytes_before,
                bytes_after=cleaning.bytes_after,
                segments_before=cleaning.segments_before,
                segments_after=cleaning.segments_after,
            )
        )
        return True

    async def _run(self, steps: Iterator[int]) -> None:
        """Run the pass to its end. When this is cancelled a step may still be running elsewhere: its files are closed when it
        ends."""
        while (read := await self._ports.tasks.run_blocking(lambda: next(steps, None))) is not None:
            pause_ms = int(1_000 * read / max(self._config.max_bytes_per_s, 1))
            if pause_ms:
                await self._ports.clock.sleep(pause_ms)

    def _failed(self, log: Log, error: OSError | ApiError, cleaning: Cleaning | None = None) -> None:
        """A log that is gone or was cut may fail in any way: that is nobody's fault (LG-47)."""
        if not self._current(log) or (cleaning is not None and cleaning.disturbed()):
            self._aborted(log, str(error))
        elif isinstance(error, OSError):
            self._logs.handle_failure(error, log.tp)
        else:
            self._uncleanable[log.tp] = log
            self._ports.tracer.emit(LogUncleanable(tp=log.tp, reason=str(error)))

    def _aborted(self, log: Log, reason: str) -> None:
        self._ports.tracer.emit(LogCleaningAborted(tp=log.tp, reason=reason))
