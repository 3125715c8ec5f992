"""Deadlines by name, in a core that is told the time."""

from __future__ import annotations

import heapq
from typing import Generic, TypeVar

K = TypeVar("K")


class Deadlines(Generic[K]):
    """The deadline of each key, in milliseconds of the monotonic clock. Those that are due come by time, ties by which was set
    first.

    Moving a deadline later, as every heartbeat does, costs a dict write: the heap learns of it when the old time has come.
    """

    def __init__(self) -> None:
        self._due: dict[K, int] = {}
        self._queued: dict[K, int] = {}
        self._heap: list[tuple[int, int, K]] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._due)

    def set(self, key: K, at_ms: int) -> None:
        self._due[key] = at_ms
        queued = self._queued.get(key)
        if queued is None or queued > at_ms:
            self._push(key, at_ms)

    def get(self, key: K) -> int | None:
        return self._due.get(key)

    def cancel(self, key: K) -> None:
        """Remove a deadline; harmless when there is none."""
        self._due.pop(key, None)

    def next_ms(self) -> int | None:
        """Never later than the earliest deadline; may be earlier than it when that one was moved."""
        self._drop_stale()
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now_ms: int) -> K | None:
        """One key that is due, forgotten by this; None when nothing is."""
        self._drop_stale()
        while self._heap and self._heap[0][0] <= now_ms:
            at_ms, _, key = heapq.heappop(self._heap)
            if self._queued.get(key) == at_ms:
                del self._queued[key]
            due = self._due.get(key)
            if due is None:
                continue
            if due <= now_ms:
                del self._due[key]
                return key
            if key not in self._queued:
                self._push(key, due)
        return None

    def _push(self, key: K, at_ms: int) -> None:
        self._count += 1
        self._queued[key] = at_ms
        heapq.heappush(self._heap, (at_ms, self._count, key))

    def _drop_stale(self) -> None:
        while self._heap and self._heap[0][2] not in self._due:
            at_ms, _, key = heapq.heappop(self._heap)
            if self._queued.get(key) == at_ms:
                del self._queued[key]
