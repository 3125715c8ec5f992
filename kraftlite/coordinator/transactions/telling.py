"""Tells what becomes of transactional ids, as far as somebody will want to know it later: bounded, however busy they are.

`explain transaction` reads it. Every change of a state is an event of level debug beside that.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kraftlite.coordinator.transactions.states import PREPARED, Transaction, TransactionState
from kraftlite.model.producer import Producer
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.ports import Tracer
from kraftlite.runtime.trace import TraceEvent, is_heard
from kraftlite.runtime.trace.transaction import (
    TransactionEnded,
    TransactionFenced,
    TransactionProducerRefused,
    TransactionProducerStarted,
    TransactionStateChanged,
    TransactionTakenOver,
)

_S: Final = TransactionState
PARTITIONS_TOLD: Final = 20
BURST: Final = 200
EVENTS_A_SECOND: Final = 10
SLOW_MS: Final = 100
"""Markers that take longer have waited for something."""


class Budget:
    """So many events in a burst, and so many in a second. The last half is kept for what is not ordinary."""

    def __init__(self) -> None:
        self._left_ms = BURST * 1000 // EVENTS_A_SECOND
        self._at_ms = 0

    def take(self, now_ms: int, *, ordinary: bool) -> bool:
        """Return whether the event may be told. `now_ms` is monotonic."""
        full, cost = BURST * 1000 // EVENTS_A_SECOND, 1000 // EVENTS_A_SECOND
        self._left_ms = min(full, self._left_ms + max(0, now_ms - self._at_ms))
        self._at_ms = now_ms
        if self._left_ms < (full // 2 if ordinary else cost):
            return False
        self._left_ms -= cost
        return True


class TransactionStory:
    """Tells of the ids of one shard."""

    def __init__(self, tracer: Tracer, budget: Budget, tp: TopicPartition, leader_epoch: int) -> None:
        self._tracer = tracer
        self._budget = budget
        self._tp = tp
        self._leader_epoch = leader_epoch
        self._untold: dict[str, int] = {}

    def taken_over(self, transactional_id: str, found: Transaction, now_ms: int, wall_ms: int) -> None:
        """Tell of an id that was in a transaction when the shard was loaded."""
        decided = found.state in PREPARED
        if (not decided and found.state is not _S.ONGOING) or not self._budget.take(now_ms, ordinary=not decided):
            return
        self._tracer.emit(
            TransactionTakenOver(
                tp=self._tp,
                leader_epoch=self._leader_epoch,
                transactional_id=transactional_id,
                producer_id=found.producer_id,
                producer_epoch=found.producer_epoch,
                state=found.state.title,
                open_ms=_open_ms(found, found.updated_ms if decided else wall_ms),
                marking_ms=max(0, wall_ms - found.updated_ms) if decided else None,
                partitions=_first(found.partitions),
                count=len(found.partitions),
            )
        )

    def changed(self, transactional_id: str, before: Transaction, now: Transaction, now_ms: int, wall_ms: int) -> None:
        if is_heard(self._tracer, TransactionStateChanged):
            self._tracer.emit(
                TransactionStateChanged(
                    transactional_id=transactional_id,
                    producer_id=now.producer_id,
                    producer_epoch=now.producer_epoch,
                    previous=before.state.title,
                    state=now.state.title,
                    partitions=len(now.partitions),
                )
            )
        if now.state is _S.EMPTY:
            self._producer_started(transactional_id, before, now, now_ms)
        elif now.state in (_S.COMPLETE_COMMIT, _S.COMPLETE_ABORT):
            self._ended(transactional_id, before, now, now_ms, wall_ms)

    def _producer_started(self, transactional_id: str, before: Transaction, now: Transaction, now_ms: int) -> None:
        new = before.producer_epoch < 0
        started = TransactionProducerStarted(
            transactional_id=transactional_id,
            producer_id=now.producer_id,
            producer_epoch=now.producer_epoch,
            previous_producer_id=None if new else before.producer_id,
            previous_epoch=None if new else before.producer_epoch,
        )
        self._tell(started, now_ms, ordinary=new)

    def _ended(self, transactional_id: str, before: Transaction, now: Transaction, now_ms: int, wall_ms: int) -> None:
        marking_ms, untold = max(0, wall_ms - before.updated_ms), self._untold.pop(transactional_id, 0)
        if not self._budget.take(now_ms, ordinary=marking_ms < SLOW_MS):
            self._untold[transactional_id] = untold + 1
            return
        self._tracer.emit(
            TransactionEnded(
                transactional_id=transactional_id,
                producer_id=before.producer_id,
                producer_epoch=before.producer_epoch,
                outcome="committed" if now.state is _S.COMPLETE_COMMIT else "aborted",
                open_ms=_open_ms(before, before.updated_ms),
                marking_ms=marking_ms,
                partitions=_first(before.partitions),
                count=len(before.partitions),
                untold=untold,
            )
        )

    def fenced(self, transactional_id: str, by: Transaction, reason: str) -> None:
        self._tracer.emit(
            TransactionFenced(
                transactional_id=transactional_id, producer_id=by.producer_id, producer_epoch=by.producer_epoch, reason=reason
            )
        )

    def refused(self, transactional_id: str, asked: Producer, current: Transaction, now_ms: int) -> None:
        """Tell that a producer with another epoch than the current one has asked for something."""
        event = TransactionProducerRefused(
            transactional_id=transactional_id,
            producer_id=asked.producer_id,
            producer_epoch=asked.producer_epoch,
            current_epoch=current.producer_epoch,
        )
        self._tell(event, now_ms, ordinary=True)

    def forget(self, transactional_id: str) -> None:
        self._untold.pop(transactional_id, None)

    def _tell(self, event: TraceEvent, now_ms: int, *, ordinary: bool) -> bool:
        if not self._budget.take(now_ms, ordinary=ordinary):
            return False
        self._tracer.emit(event)
        return True


def _open_ms(found: Transaction, until_ms: int) -> int:
    return max(0, until_ms - found.start_ms) if found.start_ms >= 0 else 0


def _first(partitions: Iterable[TopicPartition]) -> tuple[str, ...]:
    return tuple(f"{tp.topic}-{tp.partition}" for tp in sorted(partitions)[:PARTITIONS_TOLD])
