"""A clock that stands still until a test moves it."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable

from kraftlite.runtime.ports import TimerHandle


class _Timer:
    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class FakeClock:
    """The `Clock` port, moved by hand. `advance` fires what falls due, in order of deadline, ties in order of creation.

    Monotonic and wall time move together; `jump_wall` moves the wall alone, as an operator or NTP does.
    """

    def __init__(self, *, now_ms: int = 0, wall_ms: int = 1_700_000_000_000) -> None:
        self._now = now_ms
        self._wall_offset = wall_ms - now_ms
        self._timers: list[tuple[int, int, _Timer]] = []
        self._created = 0

    def now_ms(self) -> int:
        return self._now

    def now_us(self) -> int:
        return self._now * 1000

    def wall_ms(self) -> int:
        return self._now + self._wall_offset

    def jump_wall(self, delta_ms: int) -> None:
        self._wall_offset += delta_ms

    def stall(self, delta_ms: int) -> None:
        """Time passes and nothing runs, as for a process that is stopped; what fell due fires late."""
        self._now += delta_ms

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> TimerHandle:
        timer = _Timer(callback)
        self._created += 1
        heapq.heappush(self._timers, (self._now + max(0, delay_ms), self._created, timer))
        return timer

    async def sleep(self, delay_ms: int) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self.call_later(delay_ms, lambda: None if future.done() else future.set_result(None))
        try:
            await future
        finally:
            timer.cancel()

    @property
    def next_deadline_ms(self) -> int | None:
        """When the earliest live timer fires; None when nothing waits."""
        while self._timers and self._timers[0][2].callback is None:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def advance(self, delta_ms: int) -> None:
        """Move time and run what falls due, including timers that those callbacks set. Tasks woken by it run later."""
        end = self._now + delta_ms
        while (deadline := self.next_deadline_ms) is not None and deadline <= end:
            self._fire(deadline)
        self._now = end

    async def run_for(self, delta_ms: int, *, settle: int = 20) -> None:
        """`advance`, giving the loop's tasks `settle` turns before, between and after the timers."""
        end = self._now + delta_ms
        await self.settle(settle)
        while (deadline := self.next_deadline_ms) is not None and deadline <= end:
            self._fire(deadline)
            await self.settle(settle)
        self._now = end
        await self.settle(settle)

    @staticmethod
    async def settle(turns: int = 20) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)

    def _fire(self, deadline: int) -> None:
        self._now = max(self._now, deadline)
        timer = heapq.heappop(self._timers)[2]
        callback, timer.callback = timer.callback, None
        if callback is not None:
            callback()
