"""Coroutines that begin where they are made, and become tasks only if they have to wait.

A task costs its making and one or two passes of the loop, some 20 microseconds. Much of what might have to wait for the log, or
for another node, has its answer at hand: then it is done in the call, and who made it can go on at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any, Final

from kraftlite.runtime.ports import TaskHandle, Tasks

_TAKEN: Final = object()


def begin(tasks: Tasks, coro: Coroutine[Any, Any, Any], *, name: str) -> TaskHandle | None:
    """Run a coroutine up to its first wait, in this call. None: it has ended. Else the rest of it is a task of `tasks`.

    What it raises is the end of a task, whenever that is, and raised to nobody here. The first part runs in no task, whoever
    calls this: what needs one, as a timeout of asyncio does, has to wait for something before.
    """
    caller = asyncio.current_task()
    if caller is not None:
        asyncio.tasks._leave_task(caller.get_loop(), caller)
    try:
        waits_for = coro.send(None)
    except (StopIteration, asyncio.CancelledError):
        return None
    except Exception as error:  # noqa: BLE001 - the task raises it
        return tasks.spawn(_end_in_fault(error), name=name)
    finally:
        if caller is not None:
            asyncio.tasks._enter_task(caller.get_loop(), caller)
    return tasks.spawn(_Rest(coro, waits_for), name=name)


async def _end_in_fault(error: Exception) -> None:
    raise error


class _Rest(Coroutine[Any, Any, Any]):
    """A coroutine that waits for something already, as a task drives it: first that is handed over. A task that is cancelled
    before its first turn cancels the wait, as in any other: the coroutine gets to its `finally`."""

    __slots__ = ("_coro", "_waits_for")

    def __init__(self, coro: Coroutine[Any, Any, Any], waits_for: object) -> None:
        self._coro = coro
        self._waits_for = waits_for

    def send(self, value: Any) -> Any:
        waits_for = self._waits_for
        if waits_for is _TAKEN:
            return self._coro.send(value)
        self._waits_for = _TAKEN
        return waits_for

    def throw(self, *raised: Any) -> Any:
        waits_for, self._waits_for = self._waits_for, _TAKEN
        if isinstance(waits_for, asyncio.Future):
            waits_for.cancel()  # nobody looks at it any more
        return self._coro.throw(*raised)

    def close(self) -> None:
        self._coro.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        raise NotImplementedError("it is driven by its task")
