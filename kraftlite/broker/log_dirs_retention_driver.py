"""Retention, applied to every log of a broker again and again. Source: LG-36 to LG-39."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kraftlite.log.log import Log
from kraftlite.log.retention import apply_retention
from kraftlite.model.errors import ApiError
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.ports import Ports
from kraftlite.runtime.trace.log import RetentionFailed


class Retention:
    """One task for all logs. `logs()`: those that are open; `find(tp)`: the one that is open now. `purge(log)` unlinks the files
    of deleted segments later, and an OSError is told to `failed(error, tp)`."""

    def __init__(
        self,
        ports: Ports,
        logs: Callable[[], Sequence[Log]],
        find: Callable[[TopicPartition], Log | None],
        purge: Callable[[Log], None],
        failed: Callable[[OSError, TopicPartition], None],
    ) -> None:
        self._ports = ports
        self._logs = logs
        self._find = find
        self._purge = purge
        self._failed = failed
        self.on_log_start: Callable[[TopicPartition], None] | None = None
        """Told of every log that begins later than before; set before the task begins."""

    async def run(self, interval_ms: int) -> None:
        clock, tuning = self._ports.clock, self._ports.tuning
        await clock.sleep(tuning.first_retention_ms)
        while True:
            for count, log in enumerate(self._logs(), start=1):
                if self._find(log.tp) is log:
                    self._apply(log)
                if count % tuning.logs_per_turn == 0:
                    await clock.sleep(0)
            await clock.sleep(interval_ms)

    def _apply(self, log: Log) -> None:
        old = log.log_start_offset
        try:
            if apply_retention(log, self._ports.clock.wall_ms()):
                self._purge(log)
        except OSError as error:
            self._failed(error, log.tp)
        except ApiError as error:
            self._ports.tracer.emit(RetentionFailed(tp=log.tp, reason=str(error)))
        if log.log_start_offset != old and self.on_log_start is not None:
            self.on_log_start(log.tp)
