"""An asyncio event loop on virtual time whose scheduling is decided by a seed.

Time stands still while anything can run and then jumps to the next timer. Within the process of a node callbacks run first in,
first out, as asyncio promises; which process runs next is drawn from the seed. No file descriptors, no threads, no signals.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from heapq import heappop, heappush
from typing import Any, TypeVar

from kraftlite.simhost.process import OUTSIDE, PID, Cancellable, context_of, is_inert

T = TypeVar("T")


class SimulationIdle(Exception):
    """Nothing is scheduled any more, yet the loop was told to run on: every task waits for something that cannot happen."""


class _Handle:
    """A callback that is scheduled: asyncio's `Handle` and `TimerHandle` without their debugging, and with the process that it
    belongs to. A timer knows its time in seconds; other order than that of the heap entry around it there is none."""

    __slots__ = ("args", "callback", "context", "pid", "when_s")

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context | None,
        when_s: float = 0.0,
    ) -> None:
        if context is None:
            context = contextvars.copy_context()
        self.callback: Callable[..., object] | None = callback
        """None once it is cancelled."""
        self.args = args
        self.context = context
        self.when_s = when_s
        self.pid: int = context.get(PID, OUTSIDE)

    def cancel(self) -> None:
        self.callback = None
        self.args = ()

    def cancelled(self) -> bool:
        return self.callback is None

    def when(self) -> float:
        return self.when_s


class VirtualLoop(asyncio.BaseEventLoop):
    """`random.Random(seed)` decides the order of processes. `steps` counts the callbacks that ran."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._draw_bits = random.Random(seed).getrandbits
        self._now_us = 0
        self._timers: list[tuple[int, int, _Handle]] = []
        self._made = 0
        self._queues: dict[int, deque[_Handle]] = {}
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
        """Called with the process id after each callback of a node but those that `skips`."""
        self.skips: Callable[[Callable[..., object]], bool] = is_inert

    # --- time

    def now_us(self) -> int:
        return self._now_us

    def time(self) -> float:
        return self._now_us / 1_000_000

    # --- scheduling

    get_debug: Any = bool
    """Never: asked at the birth of each future and task, so it has no frame of its own."""

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None, context: contextvars.Context | None = None
    ) -> asyncio.Task[T]:
        return asyncio.Task(coro, loop=self, name=name, context=context)

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> events.Handle:
        handle = _Handle(callback, args, context)
        queue = self._queues.get(handle.pid)
        if queue:
            queue.append(handle)
        else:
            self._enqueue(handle)
        return handle  # type: ignore[return-value]

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
        handle = _Handle(callback, args, context, when)
        self._push(round(when * 1_000_000), handle)
        return handle  # type: ignore[return-value]

    def at_us(self, when_us: int, callback: Callable[[], object], context: contextvars.Context) -> Cancellable:
        """Schedule a callback as `call_at` does, in integer microseconds."""
        handle = _Handle(callback, (), context)
        self._made += 1
        heappush(self._timers, (max(when_us, self._now_us), self._made, handle))
        return handle

    def _push(self, when_us: int, handle: _Handle) -> None:
        self._made += 1
        heappush(self._timers, (max(when_us, self._now_us), self._made, handle))

    def _enqueue(self, handle: _Handle) -> None:
        pid = handle.pid
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

    def is_slowed(self, pid: int) -> bool:
        return pid in self._cost_us

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
        """Callbacks, until the loop is told to stop. asyncio's `run_forever` calls this."""
        timers, runnable, queues, costs = self._timers, self._runnable, self._queues, self._cost_us
        draw_bits = self._draw_bits
        while True:
            now_us = self._now_us
            while timers and (timers[0][0] <= now_us or timers[0][2].callback is None):
                handle = heappop(timers)[2]
                if handle.callback is not None:
                    waiting = queues.get(handle.pid)
                    if waiting:
                        waiting.append(handle)
                    else:
                        self._enqueue(handle)
            count = len(runnable)
            if not count:
                if not timers:
                    raise SimulationIdle(f"nothing is scheduled at {now_us // 1000} ms")
                self._now_us = timers[0][0]
                continue
            at = 0
            if count > 1:  # as Random.randrange draws, without its checks of arguments
                bits = count.bit_length()
                at = draw_bits(bits)
                while at >= count:
                    at = draw_bits(bits)
            pid = runnable[at]
            queue = queues[pid]
            handle = queue.popleft()
            if not queue:
                del runnable[at]
            callback = handle.callback
            if callback is not None:
                self.steps += 1
                self.pid_now = pid
                try:
                    handle.context.run(callback, *handle.args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as fault:  # noqa: BLE001 as asyncio's own handles do
                    self._report(fault, handle, callback)
                if pid:
                    if costs and pid in costs:
                        self._charge(pid)
                    if self.after_step is not None and not self.skips(callback):
                        self.after_step(pid)
            if self._stopping:  # type: ignore[attr-defined]
                return

    def _report(self, fault: BaseException, handle: _Handle, callback: Callable[..., object]) -> None:
        self.call_exception_handler({"message": f"Exception in callback {callback}", "exception": fault, "handle": handle})

    def _process_events(self, event_list: object) -> None:
        return None

    def _write_to_self(self) -> None:
        return None

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:  # type: ignore[override]
        raise RuntimeError("a simulation has one thread: use Tasks.run_blocking")
