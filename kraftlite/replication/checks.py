"""Work of requests that is too long for the loop: done on other threads, a few at a time, in the order in which it came.

Source: docs/ROBUSTNESS.md (no request holds the loop).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from kraftlite.runtime.ports import Tasks

AT_ONCE: Final = 2
"""Each may hold a codec's window (128 MiB at most) and a batch that is packed anew."""


class OffLoop:
    """A queue without a bound of its own: each request waits in it once, and keeps its connection from sending more."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self._waiting: deque[tuple[Callable[[], None], Callable[[], None], Callable[[Exception], None]]] = deque()
        self._running = 0

    def run(self, work: Callable[[], None], then: Callable[[], None], failed: Callable[[Exception], None]) -> None:
        """`work` on a thread, and `then` on the loop; `failed` is told of a bug in either. `work` must be about bytes alone."""
        self._waiting.append((work, then, failed))
        if self._running < AT_ONCE:
            self._running += 1
            self._tasks.spawn(self._serve(), name="off-loop")

    async def _serve(self) -> None:
        try:
            while self._waiting:
                work, then, failed = self._waiting.popleft()
                try:
                    await self._tasks.run_blocking(work)
                    then()
                except Exception as error:  # noqa: BLE001 - the request's, or the node's if it is a fault: see docs/adr/0005
                    failed(error)
        finally:
            self._running -= 1
