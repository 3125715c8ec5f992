"""An asyncio event loop on virtual time whose scheduling is decided by a seed.

Time stands still while anything can run and then jumps to the next timer. Within the process of a node callbacks run first in,
first out, as asyncio promises; which process runs next is drawn from the seed. No file descriptors, no threads, no signals.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import random
from asyncio import events
from collections import deque
from collections.abc import Callable
from typing import Any

from kraftlite.simhost.process import OUTSIDE, PID, context_of


class SimulationIdle(Exception):
    """Nothing is scheduled any more, yet the loop was told to run on: every task waits for something that cannot happen."""


class _Timer(events.TimerHandle):
    """asyncio's own handle; ordering is that of the heap entry around it."""


class VirtualLoop(asyncio.BaseEventLoop):
    """`random.Random(seed)` decides the order of processes. `steps` counts the callbacks that ran."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._random = random.Random(seed)
        self._now_us = 0
        self._timers: list[tuple[int, int, events.Handle]] = []
        self._made = 0
        self._queues: dict[int, deque[events.Handle]] = {}
        self._runnable: list[int] = []
        """Processes with something to run that are not paused, in order of becoming so."""
        self._paused: set[int] = set()
        self._cost_us: dict[int, int] = {}
        """The virtual time that each callback of a slow process takes."""
        self._busy: set[int] = set()
        self._outside = context_of(OUTSIDE)
        self.steps = 0
        self.pid_now = OUTSIDE
        self.after_step: Callable[[int], None] | None = None
        """Called with the process id after each callback."""

    # --- time

    def now_us(self) -> int:
        return self._now_us

    def time(self) -> float:
        return self._now_us / 1_000_000

    # --- scheduling

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> events.Handle:
        handle = events.Handle(callback, args, self, context)
        self._enqueue(handle)
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> events.Handle:
        raise RuntimeError("a simulation has one thread")

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> events.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> events.TimerHandle:
        handle = _Timer(when, callback, args, self, context)
        self._push(round(when * 1_000_000), handle)
        return handle

    def at_us(self, when_us: int, callback: Callable[[], object], context: contextvars.Context) -> events.Handle:
        """Schedule a callback as `call_at` does, in integer microseconds."""
        handle = events.Handle(callback, (), self, context)
        self._push(when_us, handle)
        return handle

    def _push(self, when_us: int, handle: events.Handle) -> None:
        self._made += 1
        heapq.heappush(self._timers, (max(when_us, self._now_us), self._made, handle))

    def _timer_handle_cancelled(self, handle: events.TimerHandle) -> None:
        return None

    def _enqueue(self, handle: events.Handle) -> None:
        pid = handle._context.get(PID, OUTSIDE)  # type: ignore[attr-defined]
        queue = self._queues.get(pid)
        if queue is None:
            queue = self._queues[pid] = deque()
        if not queue and pid not in self._paused and pid not in self._busy:
            self._runnable.append(pid)
        queue.append(handle)

    # --- processes

    def pause(self, pid: int) -> None:
        self._paused.add(pid)
        if pid in self._runnable:
            self._runnable.remove(pid)

    def resume(self, pid: int) -> None:
        self._paused.discard(pid)
        self._may_run(pid)

    def _may_run(self, pid: int) -> None:
        if self._queues.get(pid) and pid not in self._runnable and pid not in self._paused and pid not in self._busy:
            self._runnable.append(pid)

    def slow_down(self, pid: int, cost_us: int) -> None:
        """Each callback of this process takes so long from now on; 0: no time, as usual. Other processes go on meanwhile."""
        if cost_us:
            self._cost_us[pid] = cost_us
        else:
            self._cost_us.pop(pid, None)

    def _charge(self, pid: int) -> None:
        self._busy.add(pid)
        if pid in self._runnable:
            self._runnable.remove(pid)

        def free() -> None:
            self._busy.discard(pid)
            self._may_run(pid)

        self.at_us(self._now_us + self._cost_us[pid], free, self._outside)

    # --- running

    def _run_once(self) -> None:
        """One callback: asyncio's `run_forever` calls this until the loop is told to stop."""
        timers = self._timers
        while timers and (timers[0][0] <= self._now_us or timers[0][2]._cancelled):
            handle = heapq.heappop(timers)[2]
            if not handle._cancelled:
                self._enqueue(handle)
        runnable = self._runnable
        if not runnable:
            if not timers:
                raise SimulationIdle(f"nothing is scheduled at {self._now_us // 1000} ms")
            self._now_us = timers[0][0]
            return
        at = self._random.randrange(len(runnable)) if len(runnable) > 1 else 0
        pid = runnable[at]
        queue = self._queues[pid]
        handle = queue.popleft()
        if not queue:
            del runnable[at]
        if handle._cancelled:
            return
        self.steps += 1
        self.pid_now = pid
        handle._run()
        if self._cost_us and pid in self._cost_us:
            self._charge(pid)
        if self.after_step is not None:
            self.after_step(pid)

    def _process_events(self, event_list: object) -> None:
        return None

    def _write_to_self(self) -> None:
        return None

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:  # type: ignore[override]
        raise RuntimeError("a simulation has one thread: use Tasks.run_blocking")
