"""Answers that wait for their records to become stable. Source: Kafka's DeferredEventQueue; TL-12, CE-06."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Protocol


class Parked(Protocol):
    """An answer that waits. `complete` is called exactly once."""

    def complete(self, error: BaseException | None) -> None:
        """Answer with success, or with `error`."""
        ...


class DeferredQueue:
    """Parked answers in the order of the offset that each waits for (inclusive)."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, Parked]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def waiting(self) -> Iterable[tuple[int, Parked]]:
        """(offset, answer) in order; read at once, it changes."""
        return self._waiting

    @property
    def highest_pending_offset(self) -> int | None:
        return self._waiting[-1][0] if self._waiting else None

    def add(self, offset: int, parked: Parked) -> None:
        """Raises ValueError when `offset` is below one that is already waiting."""
        if self._waiting and offset < self._waiting[-1][0]:
            raise ValueError(f"offset {offset} is lower than the highest pending offset {self._waiting[-1][0]}")
        self._waiting.append((offset, parked))

    def complete_up_to(self, offset: int) -> int:
        """Answer all that wait for `offset` or less, in order, and return how many."""
        count = 0
        while self._waiting and self._waiting[0][0] <= offset:
            _, parked = self._waiting.popleft()
            parked.complete(None)
            count += 1
        return count

    def fail_all(self, error: BaseException) -> int:
        count = len(self._waiting)
        while self._waiting:
            _, parked = self._waiting.popleft()
            parked.complete(error)
        return count
