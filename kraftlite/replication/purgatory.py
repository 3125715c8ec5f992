"""The purgatory: produces wait here for the HW and client fetches for data, each with a deadline.

Source: RP-01, RP-03, RP-04, RP-09; CP-18.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Final, Protocol

from kraftlite.model.errors import ErrorCode
from kraftlite.model.tuning import Tuning
from kraftlite.replication.api import LeaderHint, ProduceResult
from kraftlite.replication.partition import Partition
from kraftlite.runtime.ports import Clock, TimerHandle, Tracer
from kraftlite.runtime.trace.partition import ProduceCompleted

UNDECIDED: Final = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND})
"""The verdicts behind which the record is in the log all the same, and may become committed at any time (RP-03, RP-04)."""
GRANULARITY_MS: Final = Tuning().deadline_granularity_ms
"""Deadlines are rounded up to a multiple of it: what expires together shares one bucket and one timer."""


class Expiring(Protocol):
    """The callback of `Deadlines` when the time is up; once, and never after `remove`."""

    def expire(self) -> None: ...


class Deadlines:
    """One timer for everything that waits. `add` and `remove` cost a dict operation; removed entries leave nothing behind."""

    def __init__(self, clock: Clock, granularity_ms: int = GRANULARITY_MS) -> None:
        self._granularity_ms = granularity_ms
        self._clock = clock
        self._buckets: dict[int, dict[Expiring, None]] = {}
        self._order: list[int] = []
        self._timer: TimerHandle | None = None
        self._armed_for = 0

    def add(self, item: Expiring, timeout_ms: int) -> int:
        """Call `item.expire()` in `timeout_ms` or a little later; returns what `remove` wants."""
        due = self._clock.now_ms() + max(timeout_ms, 0)
        due += -due % self._granularity_ms
        bucket = self._buckets.get(due)
        if bucket is None:
            bucket = self._buckets[due] = {}
            heapq.heappush(self._order, due)
            if self._timer is None or due < self._armed_for:
                self._arm()
        bucket[item] = None
        return due

    def remove(self, item: Expiring, due: int) -> None:
        bucket = self._buckets.get(due)
        if bucket is not None:
            bucket.pop(item, None)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._buckets.clear()
        self._order.clear()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._order:
            self._armed_for = self._order[0]
            self._timer = self._clock.call_later(self._armed_for - self._clock.now_ms(), self._fire)

    def _fire(self) -> None:
        self._timer = None
        now = self._clock.now_ms()
        while self._order and self._order[0] <= now:
            for item in self._buckets.pop(heapq.heappop(self._order)):
                item.expire()
        if self._timer is None:
            self._arm()


class ParkedProduce:
    """An acks=all request of which some entries wait for the HW. `on_done` is called once, when the last has its verdict.

    With `on_late` it waits for its fate, however long that takes: until the HW passes, or until nobody leads here any more. What
    is `UNDECIDED` is told to `on_late` then, the first of it, and ends nothing.
    """

    __slots__ = (
        "_deadlines",
        "_due",
        "_left",
        "_on_done",
        "_on_late",
        "_partitions",
        "_results",
        "_tracer",
        "_verdicts",
        "done",
        "name",
    )

    def __init__(
        self,
        results: list[ProduceResult],
        on_done: Callable[[list[ProduceResult]], None],
        deadlines: Deadlines,
        tracer: Tracer | None,
        name: str,
        on_late: Callable[[ErrorCode], None] | None = None,
    ) -> None:
        self._results = results
        self._on_done = on_done
        self._on_late = on_late
        self._deadlines = deadlines
        self._tracer = tracer
        self._partitions: list[tuple[Partition, int]] = []
        self._left = 1  # `start` takes this one away: nothing is done before every entry is known
        self._due = 0
        self.name = name
        self.done = False
        self._verdicts = 0
        """Bit set of the entries that have theirs."""

    def wait_for(self, partition: Partition, required_hw: int, index: int) -> None:
        self._partitions.append((partition, index))
        self._left += 1
        partition.waiting.park(required_hw, self, index)

    def start(self, timeout_ms: int) -> None:
        """Begin to wait, after all `wait_for`s."""
        if self._left > 1:
            self._due = self._deadlines.add(self, timeout_ms)
        self._finish_one()

    def complete(self, index: int, error: ErrorCode) -> None:
        """A partition's verdict on entry `index`. The append itself stands, whatever the verdict (RP-03, RP-04)."""
        if self.done or self._verdicts >> index & 1:
            return
        if self.outlasts(error):
            self._tell_late(error)
            return
        self._verdicts |= 1 << index
        result = self._results[index]
        if error is not ErrorCode.NONE:
            hint = self._hint(index) if error is ErrorCode.NOT_LEADER_OR_FOLLOWER else None
            result = self._results[index] = ProduceResult(tp=result.tp, error=error, leader=hint)
        if self._tracer is not None:
            name = None if error is ErrorCode.NONE else error.name
            self._tracer.emit(ProduceCompleted(tp=result.tp, id=self.name, base=result.base_offset, error=name))
        self._finish_one()

    def outlasts(self, error: ErrorCode) -> bool:
        """Return whether it goes on waiting after such a verdict."""
        return self._on_late is not None and error in UNDECIDED and not self.done

    def _tell_late(self, error: ErrorCode) -> None:
        on_late, self._on_late = self._on_late, _known
        assert on_late is not None, "only what waits for its fate can be late"
        on_late(error)

    def _finish_one(self) -> None:
        self._left -= 1
        if not self._left:
            self.done = True
            self._deadlines.remove(self, self._due)
            self._on_done(self._results)

    def _hint(self, index: int) -> LeaderHint | None:
        return next((partition.hint() for partition, at in self._partitions if at == index), None)

    def expire(self) -> None:
        """The time is up: what has no verdict is answered with REQUEST_TIMED_OUT (RP-04)."""
        waiting = [(partition, index) for partition, index in self._partitions if not self._verdicts >> index & 1]
        for _, index in waiting:
            self.complete(index, ErrorCode.REQUEST_TIMED_OUT)
        for partition, _ in waiting:
            partition.waiting.forget_done()


def _known(error: ErrorCode) -> None:
    """It was told that it is late."""
