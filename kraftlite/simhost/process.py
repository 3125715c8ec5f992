"""The simulated process that a callback belongs to, when many nodes share one event loop.

A node's process id is in the context of everything that the node started, because asyncio hands the context of whoever schedules
on to what is scheduled. A loop that reads it can stop one process (a pause) without the others. A host that starts its node again
gets a new process id.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from typing import Final, Protocol

OUTSIDE: Final = 0
"""The process id of everything that belongs to no node: network, workloads, checks."""

PID: contextvars.ContextVar[int] = contextvars.ContextVar("kraftlite_pid", default=OUTSIDE)


def context_of(pid: int) -> contextvars.Context:
    """A context whose callbacks and tasks belong to the process `pid`."""
    context = contextvars.Context()
    context.run(PID.set, pid)
    return context


class ProcessLoop(Protocol):
    """An event loop that can hold one process. Times in integer microseconds of the loop's time."""

    def now_us(self) -> int: ...

    def at_us(self, when_us: int, callback: Callable[[], object], context: contextvars.Context) -> Cancellable:
        """Run `callback` in `context` at `when_us`, not before; later while its process is paused."""
        ...

    def pause(self, pid: int) -> None:
        """Nothing of the process runs until `resume`; what falls due meanwhile runs then, late and in order."""
        ...

    def resume(self, pid: int) -> None: ...


class Cancellable(Protocol):
    """A callback that was scheduled. Cancelling it twice or too late is harmless."""

    def cancel(self) -> None: ...
