"""How long a loop is busy at a time, in CPU time of its thread: what other processes take from this machine does not count."""

from __future__ import annotations

import asyncio
import gc
import time


class LongestTurn:
    """Notes the longest pass of the running loop between `start` and `stop`; the loop never sleeps meanwhile."""

    def __init__(self) -> None:
        self.longest_ms = 0.0
        self._last = 0.0
        self._running = False

    def start(self) -> None:
        self._running = True
        gc.collect()
        gc.freeze()  # as a node does: what is imported and what other tests have left is not looked at in a turn
        self._last = time.thread_time()
        asyncio.get_running_loop().call_soon(self._beat)

    def stop(self) -> None:
        self._running = False
        gc.unfreeze()

    def take(self) -> float:
        """Milliseconds of the longest pass since the last `take`."""
        found, self.longest_ms = self.longest_ms, 0.0
        return found

    def _beat(self) -> None:
        now = time.thread_time()
        self.longest_ms = max(self.longest_ms, (now - self._last) * 1000)
        self._last = now
        if self._running:
            asyncio.get_running_loop().call_soon(self._beat)
