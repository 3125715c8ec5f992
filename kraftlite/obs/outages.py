"""Counts how long partitions that a broker leads could not be written to with acks=all, from its trace.

A partition counts while its ISR is below `min.insync.replicas`, and while its high watermark has stood still for longer than a
node takes for normal (`partition.hw_stalled`). A partition that nobody leads has nobody here who counts: the controllers tell how
many these are. Events come when something changes, so nothing is done for a record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.trace import TraceEvent
from kraftlite.runtime.trace.partition import (
    FollowerStarted,
    HwResumed,
    HwStalled,
    IsrCommitted,
    LeaderStarted,
    PartitionOffline,
    PartitionRemoved,
)

FEW, STALLED = "few", "stalled"
_MS: Final = 1_000


class Led(Protocol):
    """A replica of this broker."""

    @property
    def tp(self) -> TopicPartition: ...
    @property
    def under_min_isr(self) -> bool: ...


@dataclass(slots=True)
class _Outage:
    """The time of one partition. `why`: the reasons that hold now; `since_ms`: when the first of them began."""

    ms: int = 0
    since_ms: int = 0
    why: set[str] = field(default_factory=set)

    def begin(self, why: str, since_ms: int) -> None:
        if not self.why:
            self.since_ms = since_ms
        self.why.add(why)

    def end(self, why: set[str], now_ms: int) -> None:
        if self.why and not self.why - why:
            self.ms += max(0, now_ms - self.since_ms)
        self.why -= why

    def total_ms(self, now_ms: int) -> int:
        return self.ms + (max(0, now_ms - self.since_ms) if self.why else 0)


class Outages:
    """All of them, since the start. What is known of a partition ends with its replica here."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._found: dict[TopicPartition, _Outage] = {}
        self._handlers: Mapping[type[TraceEvent], Callable[..., object]] = {
            LeaderStarted: self._leads,
            IsrCommitted: self._isr,
            HwStalled: lambda it: self._at(it.tp).begin(STALLED, self._now_ms() - it.stalled_ms),
            HwResumed: lambda it: self._end(it.tp, {STALLED}),
            FollowerStarted: lambda it: self._end(it.tp, {FEW, STALLED}),
            PartitionOffline: lambda it: self._end(it.tp, {FEW, STALLED}),
            PartitionRemoved: lambda it: self._found.pop(it.tp, None),
        }

    def __call__(self, event: TraceEvent) -> None:
        handler = self._handlers.get(type(event))
        if handler is not None:
            handler(event)

    def look(self, led: Iterable[Led]) -> None:
        """Take note of what no event tells: another `min.insync.replicas`."""
        for partition in led:
            self._few(partition.tp, partition.under_min_isr)

    def seconds(self, tp: TopicPartition) -> float:
        found = self._found.get(tp)
        return 0.0 if found is None else found.total_ms(self._now_ms()) / _MS

    def stalled(self) -> int:
        """Count the partitions whose high watermark stands still now."""
        return sum(STALLED in it.why for it in self._found.values())

    def _leads(self, event: LeaderStarted) -> None:
        self._end(event.tp, {STALLED})
        self._few(event.tp, len(event.isr) < event.min_isr)

    def _isr(self, event: IsrCommitted) -> None:
        self._few(event.tp, len(event.isr) < event.min_isr)

    def _few(self, tp: TopicPartition, few: bool) -> None:
        if few:
            self._at(tp).begin(FEW, self._now_ms())
        else:
            self._end(tp, {FEW})

    def _at(self, tp: TopicPartition) -> _Outage:
        return self._found.setdefault(tp, _Outage())

    def _end(self, tp: TopicPartition, why: set[str]) -> None:
        if (found := self._found.get(tp)) is not None:
            found.end(why, self._now_ms())
