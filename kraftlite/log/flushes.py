"""Bookkeeping of flushes that are under way while the log goes on."""

from __future__ import annotations

from kraftlite.log.segment import Segment


class Flight:
    """One flush under way: everything below `target` will be durable. A truncation meanwhile lowers the target."""

    __slots__ = ("target",)

    def __init__(self, target: int) -> None:
        self.target = target


class Flights:
    """The flushes of one log that are under way, and the segments that must stay open until they land."""

    def __init__(self) -> None:
        self._flights: list[Flight] = []
        self._retired: list[Segment] = []

    def begin(self, target: int) -> Flight:
        flight = Flight(target)
        self._flights.append(flight)
        return flight

    def end(self, flight: Flight) -> None:
        self._flights.remove(flight)
        if not self._flights:
            for segment in self._retired:
                segment.close()
            self._retired.clear()

    def lower(self, offset: int) -> None:
        """What lies at or beyond `offset` is no longer what was there when they began."""
        for flight in self._flights:
            flight.target = min(flight.target, offset)

    def retire(self, segment: Segment) -> None:
        """Close it as soon as no flush can be using its file."""
        segment.retired = True
        if self._flights:
            self._retired.append(segment)
        else:
            segment.close()
