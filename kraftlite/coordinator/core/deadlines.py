"""Deadlines by name, in a core that is told the time."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Generic, TypeVar

from kraftlite.coordinator.core.walks import AT_ONCE

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
        """Never later than the earliest deadline; may be earlier than it when some were moved or cancelled."""
        self._drop_stale()
        return self._heap[0][0] if self._heap else None

    def due(self, now_ms: int) -> Iterator[K]:
        """The keys that are due, each forgotten by this; after `AT_ONCE` looks no more, though there may be (`is_due`): all
        sessions of a shard begin when it is loaded, and end together. Keys may be set and cancelled between two of them."""
        for _ in range(AT_ONCE):
            if not self.is_due(now_ms):
                return
            key = self._pop()
            at_ms = self._due.get(key)
            if at_ms is None:
                continue
            if at_ms <= now_ms:
                del self._due[key]
                yield key
            elif key not in self._queued:
                self._push(key, at_ms)

    def is_due(self, now_ms: int) -> bool:
        """Return whether `due` has something to look at."""
        return bool(self._heap) and self._heap[0][0] <= now_ms

    def _push(self, key: K, at_ms: int) -> None:
        self._count += 1
        self._queued[key] = at_ms
        heapq.heappush(self._heap, (at_ms, self._count, key))

    def _pop(self) -> K:
        at_ms, _, key = heapq.heappop(self._heap)
        if self._queued.get(key) == at_ms:
            del self._queued[key]
        return key

    def _drop_stale(self) -> None:
        for _ in range(AT_ONCE):
            if not self._heap or self._heap[0][2] in self._due:
                return
            self._pop()
