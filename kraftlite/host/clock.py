"""The real clock, on the running asyncio loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from kraftlite.runtime.ports import Clock, TimerHandle


class HostClock(Clock):
    """Monotonic and wall time of this machine. `call_later` and `sleep` need a running loop and never fire early."""

    def now_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def now_us(self) -> int:
        return time.monotonic_ns() // 1_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> TimerHandle:
        return _Timer(asyncio.get_running_loop(), self.now_ms() + max(0, delay_ms), callback)

    async def sleep(self, delay_ms: int) -> None:
        done = asyncio.Event()
        timer = self.call_later(delay_ms, done.set)
        try:
            await done.wait()
        finally:
            timer.cancel()


class _Timer:
    """A timer that arms itself again when the loop fires early: uvloop rounds to milliseconds of a cached time."""

    __slots__ = ("_callback", "_due_ms", "_handle", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop, due_ms: int, callback: Callable[[], None]) -> None:
        self._loop = loop
        self._due_ms = due_ms
        self._callback: Callable[[], None] | None = callback
        self._handle: asyncio.Handle | None = None
        self._arm()

    def _arm(self) -> None:
        delay_ms = self._due_ms - time.monotonic_ns() // 1_000_000
        if delay_ms <= 0:
            self._handle = self._loop.call_soon(self._fire)
        else:
            self._handle = self._loop.call_later(delay_ms / 1000, self._fire)

    def _fire(self) -> None:
        callback = self._callback
        if callback is None:
            return
        if time.monotonic_ns() // 1_000_000 < self._due_ms:
            self._arm()
            return
        self._callback = None
        callback()

    def cancel(self) -> None:
        self._callback = None
        if self._handle is not None:
            self._handle.cancel()
