"""The traces of several nodes as one sequence, by time and by cause.

A node's own lines stay in their order. An event that a metadata record caused (`record@1841`) comes behind the controller's line
of that record also where the clocks of the two nodes say otherwise, or say the same millisecond. That is so as long as the
record is within the lines that `Tail` has ahead; a trace that was rotated away may lack it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from kraftlite.obs.tail import Line, Tail

_REMEMBERED: Final = 1 << 16
"""Records, the newest."""


class Merged:
    """`settled` may be called again and again, and goes on where it was."""

    def __init__(self, tails: Sequence[Tail]) -> None:
        self.tails = list(tails)
        self._told: dict[int, None] = {}
        """The offsets of records that were told of one by one, the oldest first."""

    def look(self) -> None:
        for tail in self.tails:
            tail.look()

    def settled(self) -> Iterator[Line]:
        """The lines whose causes can be known by now: those that were there at the look before the last one."""
        while True:
            ready = [(line.event.ms, at) for at, tail in enumerate(self.tails) if (line := _settled(tail)) is not None]
            if not ready:
                return
            yield from self._behind_causes(self.tails[min(ready)[1]])

    def _behind_causes(self, tail: Tail) -> Iterator[Line]:
        """The next line of a tail, behind the lines of others that must be before it. Each tail is in `open` at most once, so
        that causes which contradict each other end."""
        head = tail.head
        assert head is not None
        opened = [(tail, head.number)]
        while opened:
            tail, until = opened[-1]
            head = tail.head
            assert head is not None
            first = self._first(head, [it for it, _ in opened])
            if first is not None:
                opened.append(first)
                continue
            yield self._take(tail)
            if head.number == until:
                opened.pop()

    def _first(self, line: Line, opened: Sequence[Tail]) -> tuple[Tail, int] | None:
        """The tail that must be told before `line`, and up to which of its lines."""
        offset = line.event.caused_by_record
        if offset is None:
            return None
        for tail in self.tails:
            cause = None if tail in opened else tail.ahead(offset)
            # A controller that was cut off writes records that are lost, under the offsets of others.
            if cause is not None and (offset not in self._told or cause.event.ms <= line.event.ms):
                return tail, cause.number
        return None

    def _take(self, tail: Tail) -> Line:
        line = tail.take()
        if line.writes is not None and line.writes[0] == line.writes[1]:
            self._told.pop(line.writes[0], None)
            self._told[line.writes[0]] = None
            if len(self._told) > _REMEMBERED:
                del self._told[next(iter(self._told))]
        return line


def _settled(tail: Tail) -> Line | None:
    line = tail.head
    return line if line is not None and line.round <= tail.round else None
