"""Tells how long the events of the controller take: a sentence a minute, and one for each event that is far too slow.

Source: Kafka's EventPerformanceMonitor; CE-33.
"""

from __future__ import annotations

from kraftlite.runtime.trace.controller import ControllerPerformance, SlowEvent


class EventPerformance:
    """The events since the last sentence. `period_ms`, `slow_ms`: as configured."""

    def __init__(self, period_ms: int = 60_000, slow_ms: int = 2_000) -> None:
        self.period_ms = period_ms
        self.slow_ms = slow_ms
        self._count = self._total_us = self._slowest_us = 0
        self._slowest = ""

    def observe(self, name: str, took_us: int) -> SlowEvent | None:
        """Note an event; what to tell of it when it was exceptionally slow."""
        if self._count == 0 or took_us > self._slowest_us:
            self._slowest, self._slowest_us = name, took_us
        self._count += 1
        self._total_us += took_us
        took_ms = took_us // 1000
        if took_ms < self.slow_ms:
            return None
        return SlowEvent(
            operation=name, took_ms=took_ms, message=f"Exceptionally slow controller event {name} took {took_ms} ms."
        )

    def report(self) -> ControllerPerformance:
        """Tell what was noted since the last report, and begin anew."""
        start = f"In the last {self.period_ms} ms period, "
        if self._count == 0:
            told = ControllerPerformance(message=f"{start}there were no controller events completed.", events=0)
        else:
            average_us = self._total_us // self._count
            told = ControllerPerformance(
                message=(
                    f"{start}{self._count} controller events were completed, which took an average of {average_us / 1000:.2f} ms "
                    f"each. The slowest event was {self._slowest}, which took {self._slowest_us / 1000:.2f} ms."
                ),
                events=self._count,
                average_us=average_us,
                slowest=self._slowest,
                slowest_us=self._slowest_us,
            )
        self._count = self._total_us = self._slowest_us = 0
        return told
