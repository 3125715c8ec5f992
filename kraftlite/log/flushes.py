"""Bookkeeping of flushes that are under way while the log goes on."""

from __future__ import annotations

from kraftlite.log.segment import Segment


class InFlightFlush:
    """One flush under way: everything below `target` will be durable. A truncation meanwhile lowers the target."""

    __slots__ = ("target",)

    def __init__(self, target: int) -> None:
        self.target = target


class InFlightFlushes:
    """The flushes of one log that are under way, and the segments that must stay open until they land."""

    __slots__ = ("_in_flight", "_retired")

    def __init__(self) -> None:
        self._in_flight: list[InFlightFlush] = []
        self._retired: list[Segment] = []

    def begin(self, target: int) -> InFlightFlush:
        flush = InFlightFlush(target)
        self._in_flight.append(flush)
        return flush

    def end(self, flush: InFlightFlush) -> None:
        self._in_flight.remove(flush)
        if not self._in_flight:
            for segment in self._retired:
                segment.close()
            self._retired.clear()

    def lower(self, offset: int) -> None:
        """Note that the bytes at or beyond `offset` are no longer those that were there when the flushes began."""
        for flush in self._in_flight:
            flush.target = min(flush.target, offset)

    def retire(self, segment: Segment) -> None:
        """Close it as soon as no flush can be using its file."""
        segment.retired = True
        if self._in_flight:
            self._retired.append(segment)
        else:
            segment.close()
