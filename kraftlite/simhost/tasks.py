"""Owned tasks of one incarnation of a node that shares its loop with others."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from kraftlite.simhost.process import inert

T = TypeVar("T")


class SimHostTasks:
    """The `Tasks` port. Tasks run in the node's process, in the order of their making; `run_blocking` runs in line, after
    `blocking_wait`: as long as a thread would need, the loop goes on.

    After `abandon` nothing is reported any more: the process that they stand for is dead.
    """

    def __init__(
        self,
        context: contextvars.Context,
        fault: Callable[[BaseException, str], None],
        blocking_wait: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._context = context
        self._fault = fault
        self._blocking_wait = blocking_wait
        self._tasks: dict[asyncio.Task[object], None] = {}
        self._abandoned = False

    def spawn(self, coro: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[object]:
        task = asyncio.get_running_loop().create_task(coro, name=name, context=self._context)
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        return task

    @inert
    def _ended(self, task: asyncio.Task[object]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None and not self._abandoned:
            self._fault(error, task.get_name())

    async def run_blocking(self, function: Callable[[], T]) -> T:
        await (asyncio.sleep(0) if self._blocking_wait is None else self._blocking_wait())
        return function()

    def aside(self, work: Callable[[], Callable[[], None]]) -> None:
        """The port for foreign code, in line as `run_blocking` is."""

        async def run() -> None:
            finish = await self.run_blocking(work)
            finish()

        self.spawn(run(), name="aside")

    async def cancel_all(self) -> None:
        current = asyncio.current_task()
        while pending := [task for task in self._tasks if task is not current and not task.done()]:
            for task in pending:
                task.cancel()
            await asyncio.wait(pending)

    def abandon(self) -> None:
        """Cancel everything without waiting for it. What the tasks still do on their way out reaches nobody."""
        self._abandoned = True
        for task in list(self._tasks):
            task.cancel()
