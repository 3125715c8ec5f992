"""Work on many keys in a core whose steps are short: a piece in each step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

K = TypeVar("K")

AT_ONCE: Final = 100
"""The keys that one piece is about."""
_ENDED: Final = object()


class Walks:
    """The walks of one core that are under way, by name: generators that yield behind each piece. A core says `Output.more` while
    there are any, and calls `go_on` when it is told `GoOn`. Keys may come and go between two pieces."""

    def __init__(self) -> None:
        self._walks: dict[str, Iterator[None]] = {}

    def __bool__(self) -> bool:
        return bool(self._walks)

    def __contains__(self, name: str) -> bool:
        return name in self._walks

    def begin(self, name: str, walk: Iterator[None]) -> None:
        """Do the first piece, unless a walk of this name is under way still."""
        if name not in self._walks:
            self._walks[name] = walk
            self._piece(name)

    def go_on(self) -> None:
        """The next piece of the walk that has waited longest."""
        name = next(iter(self._walks), None)
        if name is not None:
            self._piece(name)

    def clear(self) -> None:
        self._walks.clear()

    def _piece(self, name: str) -> None:
        walk = self._walks[name]
        ended = next(walk, _ENDED) is _ENDED
        del self._walks[name]
        if not ended:
            self._walks[name] = walk  # behind the others


def by_pieces(keys: Sequence[K], work: Callable[[Sequence[K]], None]) -> Iterator[None]:
    """Do the work for the keys, so many at a time, and yield between two pieces: for a few keys not at all."""
    for number, some in enumerate(pieces(keys)):
        if number:
            yield
        work(some)


def pieces(keys: Sequence[K]) -> Iterator[Sequence[K]]:
    """The keys, so many at a time."""
    return (keys[start : start + AT_ONCE] for start in range(0, len(keys), AT_ONCE))
