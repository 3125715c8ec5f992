"""An event loop on real time, with real sockets: many nodes in one thread, each of whose processes can be paused alone.

Its time stands still while it does not get to run. A test process is starved now and then (a busy machine, a long import, a
collection of garbage); to nodes that share a loop it must look as if nothing had happened, not as if everybody had been silent.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import math
import os
import selectors
import time
from asyncio import events
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from kraftlite.simhost.process import OUTSIDE, PID

MAX_TURN_S: Final = 0.01
"""The time by which the loop's time may advance while one turn of callbacks runs, or beyond what a wait was meant to take."""


class _Selector(selectors.DefaultSelector):
    """Tells the loop how long each wait may take."""

    rebase: Callable[[float], None]

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.rebase(math.inf if timeout is None else max(0.0, timeout) + MAX_TURN_S)
        try:
            return super().select(timeout)
        finally:
            self.rebase(MAX_TURN_S)


class _Ready(deque[events.Handle]):
    """asyncio's queue of what runs next, which every callback, timer and socket event passes; those of paused processes wait."""

    def __init__(self, held: dict[int, list[events.Handle]]) -> None:
        super().__init__()
        self._held = held

    def append(self, handle: events.Handle) -> None:
        if self._held and (waiting := self._held.get(_pid_of(handle))) is not None:
            waiting.append(handle)
        else:
            super().append(handle)


class RealTimeLoop(asyncio.SelectorEventLoop):
    """Implements `ProcessLoop` beside asyncio. Its time starts at 0. All methods but `call_soon_threadsafe` run on its thread.

    A paused process is as SIGSTOP leaves it: the kernel still accepts connections and bytes for it, its timers fall due,
    and nothing runs; afterwards what was ready runs first, then its sockets, then its timers.
    """

    def __init__(self) -> None:
        selector = _Selector()
        selector.rebase = self._rebase
        self._base_s, self._since_s, self._limit_s = 0.0, time.monotonic(), MAX_TURN_S
        super().__init__(selector)
        self._selector: selectors.BaseSelector = selector
        self._held: dict[int, list[events.Handle]] = {}
        self._parked: dict[int, list[selectors.SelectorKey]] = {}
        self._ready = _Ready(self._held)
        self._nothing = events.Handle(lambda: None, (), self)
        self._nothing.cancel()

    # --- time

    def time(self) -> float:
        return self._base_s + min(time.monotonic() - self._since_s, self._limit_s)

    def now_us(self) -> int:
        return int(self.time() * 1e6 + 0.01)  # a timer must not find that it came a rounding error too early

    def _rebase(self, limit_s: float) -> None:
        self._base_s, self._since_s, self._limit_s = self.time(), time.monotonic(), limit_s

    def at_us(self, when_us: int, callback: Callable[[], object], context: contextvars.Context) -> events.Handle:
        """Schedule a callback. One that is due already keeps its order; a timer would not, and would wait for a tick of the
        selector's clock."""
        if when_us <= self.now_us():
            return self.call_soon(callback, context=context)
        return self.call_at(when_us / 1e6, callback, context=context)

    # --- processes

    def pause(self, pid: int) -> None:
        """Takes effect at once, for what is ready to run in this very turn too. Its sockets are not polled meanwhile: they
        would be found readable for ever. Nothing else may close them before `resume`."""
        if pid in self._held:
            return
        held, ready = [], self._ready
        for at in range(len(ready)):
            if not ready[at].cancelled() and _pid_of(ready[at]) == pid:
                held.append(ready[at])
                ready[at] = self._nothing  # in place: the turn under way counts how many it has
        self._held[pid] = held
        self._parked[pid] = [
            key
            for key in list(self._selector.get_map().values())
            if any(handle is not None and _pid_of(handle) == pid for handle in key.data)
        ]
        for key in self._parked[pid]:
            self._selector.unregister(key.fileobj)

    def resume(self, pid: int) -> None:
        for handle in self._held.pop(pid, ()):
            if handle.cancelled():
                continue
            if isinstance(handle, events.TimerHandle):
                handle._scheduled = True  # type: ignore[attr-defined]
                heapq.heappush(self._scheduled, handle)  # type: ignore[attr-defined]
            else:
                self._ready.append(handle)
        for key in self._parked.pop(pid, ()):
            self._selector.register(key.fileobj, key.events, key.data)

    # --- forks

    def let_go(self) -> None:
        """In a child process that was forked: give up its copies of all sockets, by which they would stay open when this
        process closes them. The numbers stay taken, so that nobody closes what comes under them later. Nothing is told to the
        selector, which both processes share."""
        if self.is_closed():
            return
        known = self._selector.get_map()
        held = {key.fd for key in (*known.values(), *(it for parked in self._parked.values() for it in parked))}
        transports: dict[int, asyncio.BaseTransport] = dict(self._transports)  # type: ignore[attr-defined]
        held |= {fd for fd, it in transports.items() if it.get_extra_info("socket").fileno() == fd}  # nobody reads it now
        if held:
            nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
            for fd in held:
                os.dup2(nothing, fd, inheritable=False)
            os.close(nothing)


def _pid_of(handle: events.Handle) -> int:
    context: contextvars.Context = handle._context  # type: ignore[attr-defined]
    pid: Any = context.get(PID, OUTSIDE)
    return int(pid)
