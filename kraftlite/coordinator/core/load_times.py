"""The time that the loads of partitions took, as Kafka's gauges tell it: of the last minute."""

from __future__ import annotations

from collections import deque
from typing import Final

from kraftlite.runtime.ports import Clock

WINDOW_MS: Final = 60_000
"""Two samples of 30 s (`metrics.num.samples`, `metrics.sample.window.ms`)."""


class LoadTimes:
    """Loads of the partitions of one coordinator: at most as many as it leads in a minute are kept."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._loads: deque[tuple[int, int]] = deque()

    def took(self, elapsed_ms: int) -> None:
        self._forget()
        self._loads.append((self._clock.now_ms(), elapsed_ms))

    def max_ms(self) -> float | None:
        """The longest load; None when there was none."""
        self._forget()
        return max((elapsed for _, elapsed in self._loads), default=None)

    def avg_ms(self) -> float | None:
        self._forget()
        return sum(elapsed for _, elapsed in self._loads) / len(self._loads) if self._loads else None

    def _forget(self) -> None:
        since = self._clock.now_ms() - WINDOW_MS
        while self._loads and self._loads[0][0] <= since:
            self._loads.popleft()
