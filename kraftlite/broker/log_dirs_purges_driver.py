"""Unlinking the files of segments that were deleted, a while after that. Source: LG-38."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from kraftlite.log.log import Log
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.ports import Ports


class Purges:
    """One task for each log that has such files. `find(tp)`: the log that is open now; `state(log)` notes durably where a log
    begins; an OSError is told to `failed(error, tp)`."""

    def __init__(
        self,
        ports: Ports,
        find: Callable[[TopicPartition], Log | None],
        state: Callable[[Log], None],
        failed: Callable[[OSError, TopicPartition], None],
    ) -> None:
        self._ports = ports
        self._find = find
        self._state = state
        self._failed = failed
        self._purging: dict[TopicPartition, Log] = {}

    def soon(self, log: Log) -> None:
        """Segments of `log` were deleted: unlink their files `file.delete.delay.ms` from now."""
        log.deleted.stamp(self._ports.clock.now_ms())
        if self._purging.get(log.tp) is not log:
            self._purging[log.tp] = log
            self._ports.tasks.spawn(self._purge(log), name=f"purge-{log.tp}")

    async def _purge(self, log: Log) -> None:
        clock = self._ports.clock
        try:
            while self._find(log.tp) is log and (due_ms := log.deleted.next_ms) is not None:
                await clock.sleep(max(due_ms - clock.now_ms(), 0))
                self._state(log)  # durably, before what it speaks of is gone
                paths = log.deleted.take(clock.now_ms())
                await self._ports.tasks.run_blocking(lambda paths=paths: self._unlink(paths))  # type: ignore[misc]
        except OSError as error:
            self._failed(error, log.tp)
        finally:
            if self._purging.get(log.tp) is log:
                del self._purging[log.tp]

    def _unlink(self, paths: list[str]) -> None:
        for path in paths:
            # Meanwhile the topic may have been deleted, and its directory have another name.
            with contextlib.suppress(FileNotFoundError):
                self._ports.disk.unlink(path)
