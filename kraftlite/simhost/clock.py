"""The clock of one node among several that share a loop: its own monotonic rate, its own wall time."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable

from kraftlite.simhost.process import Cancellable, ProcessLoop

PARTS_PER_MILLION = 1_000_000


class SimHostClock:
    """The `Clock` port. `rate_ppm` is how much faster (or slower) than the loop's time this node's monotonic clock runs;
    `jump_wall` moves the wall time, as an operator or NTP does. A restarted node gets a new one: monotonic time starts at 0.
    Nothing of a dead node comes due any more (`stop`).
    """

    def __init__(self, loop: ProcessLoop, context: contextvars.Context, *, wall_ms: int, rate_ppm: int = 0) -> None:
        self._loop = loop
        self._context = context
        self._born_us = loop.now_us()
        self._shown_us = 0
        """The time that the clock showed at `_born_us`, when its rate was last set."""
        self._rate = PARTS_PER_MILLION + rate_ppm
        self._wall_at_birth_ms = wall_ms
        self.stopped = False

    def now_ms(self) -> int:
        return self.now_us() // 1000

    def now_us(self) -> int:
        return self._shown_us + (self._loop.now_us() - self._born_us) * self._rate // PARTS_PER_MILLION

    def wall_ms(self) -> int:
        return self._wall_at_birth_ms + self.now_ms()

    def jump_wall(self, delta_ms: int) -> None:
        self._wall_at_birth_ms += delta_ms

    def set_rate(self, rate_ppm: int) -> None:
        """Run faster or slower from now on; what the clock shows goes on from where it is."""
        if self._rate == PARTS_PER_MILLION + rate_ppm:
            return
        now_us = self._loop.now_us()
        self._shown_us, self._born_us = self.now_us(), now_us
        self._rate = PARTS_PER_MILLION + rate_ppm

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Cancellable:
        timer = _Timer(self, self.now_ms() + max(0, delay_ms), callback)
        timer.arm()
        return timer

    def at_ms(self, due_ms: int, callback: Callable[[], None]) -> Cancellable:
        """Call when this clock, going on as it does now, shows `due_ms`."""
        left_us = due_ms * 1000 - self._shown_us
        when_us = self._born_us - (-left_us * PARTS_PER_MILLION // self._rate)  # rounded up: never early
        return self._loop.at_us(when_us, callback, self._context)

    def stop(self) -> None:
        """The node is dead: its timers do not fire, and whoever still wants to sleep is cancelled."""
        self.stopped = True

    async def sleep(self, delay_ms: int) -> None:
        if self.stopped:
            raise asyncio.CancelledError
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self.call_later(delay_ms, lambda: None if done.done() else done.set_result(None))
        try:
            await done
        finally:
            timer.cancel()


class _Timer:
    """A callback at a time of a clock whose rate may change meanwhile."""

    __slots__ = ("_callback", "_clock", "_due_ms", "_handle")

    def __init__(self, clock: SimHostClock, due_ms: int, callback: Callable[[], None]) -> None:
        self._clock = clock
        self._due_ms = due_ms
        self._callback = callback
        self._handle: Cancellable | None = None

    def arm(self) -> None:
        self._handle = self._clock.at_ms(self._due_ms, self._fire)

    def _fire(self) -> None:
        if self._clock.stopped:
            return
        if self._clock.now_ms() < self._due_ms:
            self.arm()  # the clock has become slower
        else:
            self._callback()

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
