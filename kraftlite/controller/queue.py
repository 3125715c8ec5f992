"""The controller's event queue: one event at a time, in an order that is decided here.

Source: Kafka's KafkaEventQueue; CE-01 to CE-04.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

from kraftlite.model.limits import MAX_CONTROLLER_QUEUE


class QueueClosed(Exception):
    """The queue takes no more events: the controller is shutting down."""


class QueueTimeout(Exception):
    """The event waited longer than its deadline, and never ran (CE-03)."""


class QueueFull(Exception):
    """More events wait than the queue may hold."""


class Named(Protocol):
    """Something to run on the queue."""

    @property
    def name(self) -> str: ...


E = TypeVar("E", bound=Named)


class _Entry(Generic[E]):
    __slots__ = ("deadline_ms", "done", "due_ms", "enqueued_ms", "event", "tag")

    def __init__(self, event: E, enqueued_ms: int, *, deadline_ms: int | None = None, tag: str | None = None) -> None:
        self.event = event
        self.enqueued_ms = enqueued_ms
        self.deadline_ms = deadline_ms
        self.due_ms = -1
        self.tag = tag
        self.done = False


class EventQueue(Generic[E]):
    """Tail append, head prepend, and deferred-until-time with a tag. Sans I/O: `run_one` does one thing that is due.

    Order: expired events fail first, then due deferred events (by time, then by arrival) run, then the others (CE-02). Of each
    event exactly one of `run(event, now_ms)` and `failed(event, error, now_ms)` is called first: it runs, or it will not
    (timeout, shutdown). `run` does it, or returns it as an iterator, each step of which is the work of one turn; no other event
    runs in between. What `run` raises goes to `failed`, and what `failed` raises goes to the caller (CE-04).
    """

    def __init__(
        self,
        run: Callable[[E, int], Iterator[None] | None],
        failed: Callable[[E, BaseException, int], None],
        limit: int = MAX_CONTROLLER_QUEUE,
    ) -> None:
        self.run = run
        self.failed = failed
        self._ready: deque[_Entry[E]] = deque()
        self._deferred: list[tuple[int, int, _Entry[E]]] = []
        self._deadlines: list[tuple[int, int, _Entry[E]]] = []
        self._by_tag: dict[str, _Entry[E]] = {}
        self._sequence = 0
        self._limit = limit
        self._size = 0
        self._begun: tuple[E, Iterator[None]] | None = None
        self.closed = False
        self.last_queue_time_ms: int | None = None
        """The time that the event that ran last had waited; None: it was deferred, and waited on purpose, or did not run."""
        self.last_delay_ms: int | None = None
        """By how much the last event was late, if it was deferred."""
        self.last_name = ""
        self.last_expired = False
        """The last event did not run, because its time was over."""

    def __len__(self) -> int:
        """Events that wait to run as soon as possible; deferred ones are not counted."""
        return self._size

    def check(self) -> None:
        """Raise AssertionError when an event that waits is not counted, or one that has run or failed may run again."""
        waiting = sum(not entry.done for entry in self._ready)
        assert self._size == waiting, f"{waiting} controller events wait, {self._size} are counted"

    def append(self, event: E, now_ms: int, *, deadline_ms: int | None = None) -> None:
        entry = self._admit(event, now_ms, deadline_ms)
        if entry is not None:
            self._ready.append(entry)

    def prepend(self, event: E, now_ms: int, *, deadline_ms: int | None = None) -> None:
        """Put an event before everything that waits; for activation."""
        entry = self._admit(event, now_ms, deadline_ms)
        if entry is not None:
            self._ready.appendleft(entry)

    def _admit(self, event: E, now_ms: int, deadline_ms: int | None) -> _Entry[E] | None:
        if self.closed:
            self.failed(event, QueueClosed("the controller is shutting down"), now_ms)
            return None
        if self._size >= self._limit and deadline_ms is not None:
            full = QueueFull(f"{self._size} controller events are waiting, at most {self._limit} may")
            self.failed(event, full, now_ms)
            return None
        entry = _Entry(event, now_ms, deadline_ms=deadline_ms)
        if deadline_ms is not None:
            self._push(self._deadlines, deadline_ms, entry)
        self._size += 1
        return entry

    def schedule_deferred(self, tag: str, event: E, due_ms: int, now_ms: int, *, keep_earlier: bool = False) -> None:
        """Run `event` at `due_ms`. Replaces the deferred event of the same tag, unless `keep_earlier` and that one is sooner."""
        if self.closed:
            self.failed(event, QueueClosed("the controller is shutting down"), now_ms)
            return
        previous = self._by_tag.get(tag)
        if previous is not None:
            if keep_earlier and previous.due_ms <= due_ms:
                return
            previous.done = True
        entry = _Entry(event, now_ms, tag=tag)
        entry.due_ms = due_ms
        self._by_tag[tag] = entry
        self._push(self._deferred, due_ms, entry)

    def cancel_deferred(self, tag: str) -> bool:
        entry = self._by_tag.pop(tag, None)
        if entry is None:
            return False
        entry.done = True
        return True

    def _push(self, heap: list[tuple[int, int, _Entry[E]]], at_ms: int, entry: _Entry[E]) -> None:
        self._sequence += 1
        heapq.heappush(heap, (at_ms, self._sequence, entry))

    @staticmethod
    def _peek(heap: list[tuple[int, int, _Entry[E]]]) -> _Entry[E] | None:
        while heap and heap[0][2].done:
            heapq.heappop(heap)
        return heap[0][2] if heap else None

    def next_deadline_ms(self) -> int | None:
        """Return when the next deferred event or expiry is due. With events waiting, `run_one` has something to do at once."""
        found = [heap[0][0] for heap in (self._deferred, self._deadlines) if self._peek(heap) is not None]
        return min(found) if found else None

    def run_one(self, now_ms: int) -> bool:
        """Do the next due thing, or one more turn of the event that has begun; False when nothing is due."""
        if self._begun is not None:
            self._go_on(now_ms)
            return True
        self.last_queue_time_ms = self.last_delay_ms = None
        self.last_expired = False
        expiring = self._peek(self._deadlines)
        if expiring is not None and expiring.deadline_ms is not None and expiring.deadline_ms < now_ms:
            heapq.heappop(self._deadlines)
            expiring.done = True
            self._size -= 1
            self.last_name, self.last_expired = expiring.event.name, True
            waited = now_ms - expiring.enqueued_ms
            late = QueueTimeout(f"{expiring.event.name} waited {waited} ms in the controller's queue")
            self.failed(expiring.event, late, now_ms)
            return True
        deferred = self._peek(self._deferred)
        if deferred is not None and deferred.due_ms <= now_ms:
            heapq.heappop(self._deferred)
            deferred.done = True
            if deferred.tag is not None:
                self._by_tag.pop(deferred.tag, None)
            self.last_delay_ms = now_ms - deferred.due_ms
            self._run(deferred, now_ms)
            return True
        while self._ready:
            entry = self._ready.popleft()
            if entry.done:
                continue
            entry.done = True
            self._size -= 1
            self.last_queue_time_ms = now_ms - entry.enqueued_ms
            self._run(entry, now_ms)
            return True
        return False

    @property
    def has_begun(self) -> bool:
        """True when an event has begun and not ended: the next turn belongs to it."""
        return self._begun is not None

    def _run(self, entry: _Entry[E], now_ms: int) -> None:
        self.last_name = entry.event.name
        try:
            turns = self.run(entry.event, now_ms)
        except Exception as error:  # noqa: BLE001 - each error is answered and classified by `failed` (CE-04, CE-20)
            self.failed(entry.event, error, now_ms)
            return
        if turns is not None:
            self._begun = entry.event, turns
            self._go_on(now_ms)

    def _go_on(self, now_ms: int) -> None:
        assert self._begun is not None
        event, turns = self._begun
        try:
            next(turns)
        except StopIteration:
            self._begun = None
        except Exception as error:  # noqa: BLE001 - as in `_run`
            self._begun = None
            self.failed(event, error, now_ms)

    def close(self, now_ms: int) -> None:
        """No further event is taken. Deferred ones fail at once; those already waiting still run (CE-04)."""
        self.closed = True
        for _, _, entry in sorted(self._deferred, key=lambda item: item[:2]):
            if not entry.done:
                entry.done = True
                self.failed(entry.event, QueueClosed("the controller is shutting down"), now_ms)
        self._deferred.clear()
        self._by_tag.clear()

    def drain(self, now_ms: int) -> None:
        """Fail what has begun and what is still waiting: nothing will run it any more."""
        if self._begun is not None:
            (event, _turns), self._begun = self._begun, None
            self.failed(event, QueueClosed("the controller is shutting down"), now_ms)
        while self._ready:
            entry = self._ready.popleft()
            if not entry.done:
                entry.done = True
                self._size -= 1
                self.failed(entry.event, QueueClosed("the controller is shutting down"), now_ms)
