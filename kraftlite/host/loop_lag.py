"""Measures how late the loop of a node is: a tick that is due every 100 ms says by how much it came too late."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from typing import Final

EVERY_S: Final = 0.1
BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""The upper bounds of the counts; what is later than the last one has a count of its own."""


class LoopLag:
    """Counts of how late its ticks came. A loop that was held for seconds has one late tick, and not many."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.total_s = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._next: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """On the loop that is measured."""
        self._loop = asyncio.get_running_loop()
        self._schedule()

    def stop(self) -> None:
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def note(self, late_s: float) -> None:
        self.counts[bisect_left(BOUNDS_S, late_s)] += 1
        self.total_s += late_s

    def _schedule(self) -> None:
        assert self._loop is not None
        # Not the time of the loop, which stands still while its callbacks run.
        self._next = self._loop.call_later(EVERY_S, self._tick, time.monotonic() + EVERY_S)

    def _tick(self, due: float) -> None:
        self.note(max(0.0, time.monotonic() - due))
        self._schedule()
