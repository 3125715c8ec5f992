"""The simulated process that a callback belongs to, when many nodes share one event loop.

A node's process id is in the context of everything that the node started, because asyncio hands the context of whoever schedules
on to what is scheduled. A loop that reads it can stop one process (a pause) without the others. A host that starts its node again
gets a new process id.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from types import CodeType
from typing import Any, Final, Protocol, TypeVar

OUTSIDE: Final = 0
"""The process id of everything that belongs to no node: network, workloads, checks."""

PID: contextvars.ContextVar[int] = contextvars.ContextVar("kraftlite_pid", default=OUTSIDE)


def context_of(pid: int) -> contextvars.Context:
    """A context whose callbacks and tasks belong to the process `pid`."""
    context = contextvars.Context()
    context.run(PID.set, pid)
    return context


F = TypeVar("F", bound=Callable[..., Any])
_ASYNCIO: Final = (asyncio.futures.__file__, asyncio.tasks.__file__)
_inert: Final[dict[CodeType | None, bool]] = {None: False}


def inert(function: F) -> F:
    """Mark a callback that only keeps the books of a host: no state that a check could look at changes in it."""
    _inert[function.__code__] = True
    return function


def is_inert(callback: Callable[..., object]) -> bool:
    """Return whether nothing of a node can have changed in a callback: it is marked, or asyncio's own, which wakes tasks up."""
    code: CodeType | None = getattr(callback, "__code__", None)
    known = _inert.get(code)
    if known is None:
        assert code is not None
        known = _inert[code] = code.co_filename in _ASYNCIO
    return known


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
