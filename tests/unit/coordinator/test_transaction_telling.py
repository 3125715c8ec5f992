"""What a coordinator tells of its ids is bounded, and what is not ordinary is told in any case but the worst."""

from __future__ import annotations

from kraftlite.coordinator.transactions.states import Transaction, TransactionState
from kraftlite.coordinator.transactions.telling import BURST, EVENTS_A_SECOND, SLOW_MS, Budget, TransactionStory
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.trace import ListTracer
from kraftlite.runtime.trace.transaction import TransactionEnded

TP = TopicPartition("orders", 0)


def taken(budget: Budget, now_ms: int, *, ordinary: bool) -> int:
    return sum(budget.take(now_ms, ordinary=ordinary) for _ in range(3 * BURST))


def test_so_many_in_a_burst_and_so_many_in_a_second() -> None:
    budget = Budget()
    assert taken(budget, 1_000, ordinary=True) == BURST // 2 + 1
    assert taken(budget, 1_000, ordinary=False) == BURST // 2 - 1, "that half is kept"
    assert taken(budget, 2_000, ordinary=False) == EVENTS_A_SECOND
    assert taken(budget, 10_000_000, ordinary=False) == BURST


def test_what_is_not_told_is_counted() -> None:
    tracer = ListTracer()
    story = TransactionStory(tracer, Budget(), TopicPartition("__transaction_state", 0), 0)

    def end(marking_ms: int) -> None:
        decided = Transaction(
            producer_id=1,
            producer_epoch=0,
            timeout_ms=1,
            state=TransactionState.PREPARE_COMMIT,
            partitions=frozenset({TP}),
            start_ms=100,
            updated_ms=150,
        )
        done = Transaction(
            producer_id=1, producer_epoch=0, timeout_ms=1, state=TransactionState.COMPLETE_COMMIT, updated_ms=150 + marking_ms
        )
        story.changed("payments", decided, done, 0, 150 + marking_ms)

    for _ in range(BURST):
        end(1)
    end(SLOW_MS)
    told = [event for event in tracer.events if isinstance(event, TransactionEnded)]
    assert len(told) == BURST // 2 + 2
    assert (told[0].open_ms, told[0].marking_ms, told[0].partitions, told[0].untold) == (50, 1, ("orders-0",), 0)
    assert told[-1].marking_ms == SLOW_MS and told[-1].untold == BURST - BURST // 2 - 1
