"""The turns in which a node's connections use the loop, so that none holds up the others, however much it asks for.

A connection that asks for one thing at a time is served where its bytes come in, or first of all in the loop's next turn. One
that asks for more before it has its answers, or that has used more than its share, waits in a queue as soon as there are others:
of it no more than a few milliseconds are worked off in a turn of the loop, in rounds, so that sockets, timers, the calls of other
nodes and those who ask for one thing at a time come in between.

Kafka takes one request of a connection at a time and one of each connection in turn; here the time that they take counts (CP-68).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import perf_counter_ns
from typing import Final, Protocol

MS: Final = 1_000_000
TURN_NS: Final = 10 * MS
"""The time that connections use of one turn of the loop where their bytes come in, and again the time for what is worked off
of the queues."""
SLICE_NS: Final = 1 * MS
"""The time that one connection uses before the next has its turn."""
WINDOW_NS: Final = 100 * MS
SHARE_NS: Final = 25 * MS
"""A connection that has used more within a window is not served before the others any more, when there are others. Time goes
by for a process that is not running, too: a few requests must not use it up."""
HEAVY_NS: Final = 3 * MS
"""The part of a turn, at least, for those that want much: they are slowed down, not stopped."""
NEWCOMER_TURN_NS: Final = 1 * MS
"""The length of a turn in which a connection was accepted. uvloop accepts one connection in a turn, so that the last of some
hundred that come at once would wait for seconds with long turns."""


class Worker(Protocol):
    """A connection. `work` does what is due until it is done or `until_ns` has come, and returns whether it has more to do."""

    used_ns: int
    window_ns: int
    """The beginning of the window in which it has used so much."""
    queued: bool
    queued_ns: int
    waited_ns: int
    """The time for which it waited for the turn that it has now."""

    def work(self, until_ns: int) -> bool: ...

    def wants_much(self) -> bool:
        """Return whether the connection has more before it than one request and its answer."""
        ...


class Turns:
    """One per node, on its loop. `deferred` counts the connections that wait for their turn."""

    def __init__(self, now_ns: Callable[[], int] = perf_counter_ns) -> None:
        self._now_ns = now_ns
        self._light: deque[Worker] = deque()
        self._heavy: deque[Worker] = deque()
        self._used_ns = 0
        """The time used in this turn of the loop, and a little before: a turn in which little is used is not worth a callback."""
        self._turning = False
        self._turn_ns = TURN_NS
        self.turns = 0

    @property
    def deferred(self) -> int:
        return len(self._light) + len(self._heavy)

    def welcome(self) -> None:
        """Note that a connection was accepted: others may wait behind it."""
        self._turn_ns = NEWCOMER_TURN_NS

    def serve(self, worker: Worker) -> None:
        """Something has come for it to do: now if there is room in this turn of the loop, else when it is its turn."""
        if worker.queued:
            return
        now = self._now_ns()
        is_over = self._used_ns >= self._turn_ns
        if is_over or self._light or self._heavy:
            much = self._is_heavy(worker, now) or worker.wants_much()
            if much or is_over:
                self._defer(worker, much)
                return
        worker.waited_ns = 0
        more = worker.work(now + SLICE_NS)
        self._charge(worker, now)
        if more:
            self._defer(worker, True)
        elif self._used_ns > SLICE_NS and not self._turning:
            self._begin_turn()

    def later(self, worker: Worker) -> None:
        """Something is due that need not be done in this very call: behind what waits already."""
        if not worker.queued:
            self._defer(worker, self._is_heavy(worker, self._now_ns()) or worker.wants_much())

    def used(self, worker: Worker, spent_ns: int) -> None:
        """Note that a connection has used the loop elsewhere, or will."""
        worker.used_ns += spent_ns
        self._used_ns += spent_ns
        if not self._turning:
            self._begin_turn()

    def _is_heavy(self, worker: Worker, now: int) -> bool:
        return worker.used_ns > SHARE_NS and now - worker.window_ns < WINDOW_NS

    def _charge(self, worker: Worker, began_ns: int) -> None:
        spent = self._now_ns() - began_ns
        self._used_ns += spent
        if began_ns - worker.window_ns < WINDOW_NS:
            worker.used_ns += spent
        else:
            worker.used_ns, worker.window_ns = spent, began_ns

    def _defer(self, worker: Worker, heavy: bool) -> None:
        worker.queued, worker.queued_ns = True, self._now_ns()
        (self._heavy if heavy else self._light).append(worker)
        if not self._turning:
            self._begin_turn()

    def _begin_turn(self) -> None:
        self._turning = True
        asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        """Start the loop's next turn: what was used is forgotten, and the queues get their share."""
        self._turning = False
        self._used_ns = 0
        if not self._light and not self._heavy:
            return
        self.turns += 1
        self._begin_turn()
        began = self._now_ns()
        turn_ns, self._turn_ns = self._turn_ns, TURN_NS
        reserve = turn_ns * HEAVY_NS // TURN_NS if self._heavy else 0
        self._work_off(self._light, began + turn_ns - reserve)
        self._work_off(self._heavy, max(began + turn_ns, self._now_ns() + reserve))
        self._used_ns = 0

    def _work_off(self, queue: deque[Worker], until_ns: int) -> None:
        for _ in range(len(queue)):
            now = self._now_ns()
            if now >= until_ns:
                return
            worker = queue.popleft()
            worker.queued, worker.waited_ns = False, now - worker.queued_ns
            more = worker.work(min(now + SLICE_NS, until_ns))
            self._charge(worker, now)
            if more:
                self._defer(worker, True)
