"""Long work shares the loop of a node: in turns of a few milliseconds, off the loop, and only so much at a time.

What one request may ask for has no natural end (an array of a hundred thousand topics), and the loop is also where heartbeats are
sent and followers are answered. So whoever walks over something that a client chose the size of takes turns.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Final, Generic, NamedTuple, TypeVar, cast

from kraftlite.runtime.ports import Clock, Tasks

T = TypeVar("T")

TURN_MS: Final = 5
"""The time for which the loop is worked on before everybody else on it is let in."""


class Turns:
    """The turns of one node's loop. At most one turn of `TURN_MS`, and the item at hand, per pass of the loop for all that share
    it; who waits is served in rotation."""

    def __init__(self, clock: Clock, turn_ms: int = TURN_MS) -> None:
        self._now_ms = clock.now_ms
        self._turn_ms = turn_ms
        self._ends_ms: int | None = None  # of the turn in this pass of the loop, if there was one
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def next(self) -> None:
        """Between two pieces of work: returns at once while the turn lasts, and else when it is this one's turn again."""
        if self._ends_ms is None:
            self._begin()
        elif self._now_ms() >= self._ends_ms:
            mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(mine)
            await mine

    def each(self, items: Iterable[T]) -> AsyncIterator[T]:
        """The items, with a `next` before each."""
        return _Each(self, items)

    @property
    def over(self) -> bool:
        """True when `next` has something to do."""
        return self._ends_ms is None or self._now_ms() >= self._ends_ms

    def _begin(self) -> None:
        self._ends_ms = self._now_ms() + self._turn_ms
        asyncio.get_running_loop().call_soon(self._pass_ended)

    def _pass_ended(self) -> None:
        self._ends_ms = None
        while self._waiting:
            first = self._waiting.popleft()
            if not first.done():
                first.set_result(None)
                self._begin()
                return


class _Each(AsyncIterator[T]):
    """No generator: one that is left half-way is closed by the loop, some time later."""

    __slots__ = ("_items", "_turns")

    def __init__(self, turns: Turns, items: Iterable[T]) -> None:
        self._turns = turns
        self._items = iter(items)

    async def __anext__(self) -> T:
        for item in self._items:
            if self._turns.over:
                await self._turns.next()
            return item
        raise StopAsyncIteration


class _Outcome(NamedTuple, Generic[T]):
    value: T | None
    error: Exception | None


class OffLoop:
    """Long pieces of work off the loop, `at_once` at a time: a thread of Python slows the loop down, and several would stop it.
    The cheapest goes first, so that what is modest need not wait for what is huge; of equal cost, the one that came first."""

    def __init__(self, tasks: Tasks, *, at_once: int = 1) -> None:
        self._tasks = tasks
        self._free = at_once
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._asked = 0

    async def run(self, cost: int, work: Callable[[], T]) -> T:
        """`cost`: of any unit that all callers share, as the bytes that are read or written."""
        if self._free:
            self._free -= 1
        else:
            mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._asked += 1
            heapq.heappush(self._waiting, (cost, self._asked, mine))
            try:
                await mine
            except asyncio.CancelledError:
                if mine.done() and not mine.cancelled():
                    self._ended()
                raise
        # Whoever asked may go; the thread goes on, and nobody else may begin before it has ended.
        found = await asyncio.shield(cast("asyncio.Future[_Outcome[T]]", self._tasks.spawn(self._perform(work), name="off-loop")))
        if found.error is not None:
            raise found.error
        return cast(T, found.value)

    async def _perform(self, work: Callable[[], T]) -> _Outcome[T]:
        try:
            return _Outcome(await self._tasks.run_blocking(work), None)
        except Exception as error:  # noqa: BLE001 - raised again for who asked, if it is still there
            return _Outcome(None, error)
        finally:
            self._ended()

    def _ended(self) -> None:
        """The next one may begin."""
        while self._waiting:
            _cost, _asked, following = heapq.heappop(self._waiting)
            if not following.done():
                following.set_result(None)
                return
        self._free += 1


class Admission:
    """A bound on the size of what is worked on at a time. What is larger than the bound is let in alone. First come, first in."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def enter(self, size: int) -> Admitted:
        """Returns when there is room; `leave` the result."""
        if self._waiting or not self._fits(size):
            mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((size, mine))
            try:
                await mine
            except asyncio.CancelledError:
                if mine.done() and not mine.cancelled():
                    self._leave(size)
                raise
        else:
            self._used += size
        return Admitted(self, size)

    def _fits(self, size: int) -> bool:
        return not self._used or self._used + size <= self._limit

    def _leave(self, size: int) -> None:
        self._used -= size
        while self._waiting:
            following, future = self._waiting[0]
            if not future.done():
                if not self._fits(following):
                    return
                self._used += following
                future.set_result(None)
            self._waiting.popleft()


class Admitted:
    """A place that `Admission` gave; leaving twice is harmless."""

    def __init__(self, admission: Admission, size: int) -> None:
        self._admission = admission
        self._size = size

    def leave(self) -> None:
        size, self._size = self._size, 0
        if size:
            self._admission._leave(size)
