"""Measures of one node's part in the quorum: elections, commits, records. Read after each step of the core; decides nothing.

Source: Kafka's KafkaRaftMetrics, KIP-595.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from kraftlite.runtime.durations import DurationSummary

_MOST_UNCOMMITTED: Final = 1_000
"""Appends whose commits are waited for; of more at a time the oldest are not measured."""
_STANDING: Final = frozenset({"prospective", "candidate"})
"""The states of a node that stands for election."""
_LEADING: Final = "leader"
_SETTLED: Final = frozenset({_LEADING, "follower", "observer"})


class RaftMeasures:
    """Durations in microseconds. An election lasts from the time at which this node begins to stand until it leads or follows."""

    def __init__(self) -> None:
        self.commits, self.elections = DurationSummary(), DurationSummary()
        self.appended = self.fetched = 0
        """Records that this node has appended as the leader, and taken over from one, since it started."""
        self.requests = self.responses = 0
        """Those that this node has sent to others of the quorum, and those of them that were answered."""
        self._leo = 0
        self._uncommitted: deque[tuple[int, int]] = deque(maxlen=_MOST_UNCOMMITTED)
        self._stood_at_us: int | None = None

    def begin(self, leo: int) -> None:
        """Start with the log as it is found."""
        self._leo = leo

    def look(self, now_us: int, state: str, leo: int, high_watermark: int | None) -> None:
        if state in _STANDING:
            self._stood_at_us = now_us if self._stood_at_us is None else self._stood_at_us
        elif self._stood_at_us is not None and state in _SETTLED:
            self.elections.note(now_us - self._stood_at_us)
            self._stood_at_us = None
        if state != _LEADING:
            self._uncommitted.clear()
        more, self._leo = leo - self._leo, leo
        if more > 0 and state == _LEADING:
            self.appended += more
            self._uncommitted.append((leo, now_us))
        elif more > 0:
            self.fetched += more
        while self._uncommitted and high_watermark is not None and self._uncommitted[0][0] <= high_watermark:
            self.commits.note(now_us - self._uncommitted.popleft()[1])
