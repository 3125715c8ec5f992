"""Owned asyncio tasks on the real loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from kraftlite.runtime.ports import TaskHandle, Tasks

T = TypeVar("T")
_BLOCKING_THREADS = 4


class HostTasks(Tasks):
    """The tasks of one node. One that ends with an exception calls `fault(error, name)`; `cancel_all` ends the rest.

    `cancel_all` may be called from one of the tasks itself: that one is left alone.
    """

    def __init__(self, fault: Callable[[BaseException, str], None]) -> None:
        self._fault = fault
        self._tasks: set[asyncio.Task[object]] = set()
        self._threads: ThreadPoolExecutor | None = None

    def spawn(self, coro: Coroutine[Any, Any, Any], *, name: str) -> TaskHandle:
        task = asyncio.get_running_loop().create_task(coro, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            self._fault(error, task.get_name())

    async def run_blocking(self, function: Callable[[], T]) -> T:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_BLOCKING_THREADS, thread_name_prefix="blocking")
        return await asyncio.get_running_loop().run_in_executor(self._threads, function)

    async def cancel_all(self) -> None:
        current = asyncio.current_task()
        while pending := [task for task in self._tasks if task is not current and not task.done()]:
            for task in pending:
                task.cancel()
            await asyncio.wait(pending)
        if self._threads is not None:
            self._threads.shutdown(wait=False)
            self._threads = None
