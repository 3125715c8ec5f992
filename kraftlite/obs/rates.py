"""Rates of counts, for series that Kafka tells so."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

WINDOW_MS: Final = 30_000
"""Kafka's rates look back as far by default: metrics.sample.window.ms, and the windows of metrics.num.samples."""
_MOST_LOOKS: Final = 128


class Rate:
    """The rise of a count in a second, since the first look within the last 30 seconds, or since the last look where that is
    longer ago."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._looks: deque[tuple[int, int]] = deque(maxlen=_MOST_LOOKS)

    def of(self, count: int) -> float | None:
        """None at the first look: nobody knows yet. A count that has fallen begins anew."""
        now_ms = self._now_ms()
        looks = self._looks
        if looks and count < looks[-1][1]:
            looks.clear()
        while len(looks) > 1 and now_ms - looks[0][0] > WINDOW_MS:
            looks.popleft()
        looks.append((now_ms, count))
        then_ms, before = looks[0]
        return None if now_ms <= then_ms else (count - before) * 1000 / (now_ms - then_ms)
