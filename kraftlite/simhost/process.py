"""Which node a callback belongs to, when many nodes share one event loop.

A *room* is what an operating system process is elsewhere: everything that a node started runs in its room, because asyncio hands
the context of whoever schedules on to what is scheduled. A loop that knows rooms can stop one (a pause) without the others.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from typing import Final, Protocol

OUTSIDE: Final = 0
"""The room of everything that belongs to no node: network, workloads, checks."""

ROOM: contextvars.ContextVar[int] = contextvars.ContextVar("kraftlite_room", default=OUTSIDE)


def context_of(room: int) -> contextvars.Context:
    """A context whose callbacks and tasks run in `room`."""
    context = contextvars.Context()
    context.run(ROOM.set, room)
    return context


class RoomLoop(Protocol):
    """What a loop with rooms offers beside asyncio. Times in integer microseconds of the loop's own time."""

    def now_us(self) -> int: ...

    def at_us(self, when_us: int, callback: Callable[[], object], context: contextvars.Context) -> Cancellable:
        """Run `callback` in `context` at `when_us`, not before; later while its room is paused."""
        ...

    def pause(self, room: int) -> None:
        """Nothing of the room runs until `resume`; what falls due meanwhile runs then, late and in order."""
        ...

    def resume(self, room: int) -> None: ...


class Cancellable(Protocol):
    """A callback that was scheduled. Cancelling it twice or too late is harmless."""

    def cancel(self) -> None: ...
