"""Durations that a node has measured, for its metrics page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

RECENT: Final = 1_024
"""Durations that quantiles are made of: the latest ones."""


@dataclass(slots=True)
class DurationSummary:
    """Durations in microseconds: how many, their sum, the longest, and the latest ones."""

    count: int = 0
    total_us: int = 0
    max_us: int = 0
    recent: list[int] = field(default_factory=list, compare=False, repr=False)

    def note(self, took_us: int) -> None:
        if self.count < RECENT:
            self.recent.append(took_us)
        else:
            self.recent[self.count % RECENT] = took_us
        self.count += 1
        self.total_us += took_us
        self.max_us = max(self.max_us, took_us)

    def note_all(self, took_us: Sequence[int]) -> None:
        """Note several, which is cheaper than one by one."""
        if took_us:
            self.recent = [*self.recent, *took_us][-RECENT:]
            self.count += len(took_us)
            self.total_us += sum(took_us)
            self.max_us = max(self.max_us, *took_us)

    def quantiles(self, wanted: Sequence[float]) -> list[int]:
        """The durations that these shares of the latest ones do not exceed; nothing when there are none."""
        found = sorted(self.recent)
        return [found[min(len(found) - 1, int(share * len(found)))] for share in wanted] if found else []
