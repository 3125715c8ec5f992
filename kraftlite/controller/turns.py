"""Long work in turns: what an operation, a commit or a metadata snapshot does element by element, a thousand elements at a time.

The loop serves raft, heartbeats and fetches between two turns, and the controller's queue runs no other event: state is what it
would be if the work were done at once, and nothing that was staged leaves before all of it was replayed.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final, TypeVar

from kraftlite.model.tuning import Tuning

T = TypeVar("T")

Steps = Generator[None, None, T]
"""Work that has dealt with one more element (a record, a partition, a resource) at each `yield`, and returns its result."""

ELEMENTS_PER_TURN: Final = Tuning().elements_per_turn
"""The elements of all events that run in one turn together: at most about 20 ms, for elements cost one to twenty microseconds."""


class Pace:
    """Counts the elements of one turn of the controller's loop."""

    def __init__(self, limit: int = ELEMENTS_PER_TURN) -> None:
        self.limit = limit
        self._done = 0

    def begin(self) -> None:
        """A new turn."""
        self._done = 0

    @property
    def is_over(self) -> bool:
        return self._done >= self.limit

    def note(self, count: int) -> None:
        """Count so many elements more than the one of the next `yield`."""
        self._done += count

    def through(self, work: Steps[T]) -> Steps[T]:
        """Do `work`, and yield only where the turn is over."""
        try:
            while True:
                next(work)
                self._done += 1
                if self._done >= self.limit:
                    yield
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        finally:
            work.close()


def at_once(work: Steps[T]) -> T:
    """All of `work` in this turn."""
    try:
        while True:
            next(work)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
