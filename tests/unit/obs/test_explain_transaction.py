"""The stories of a transactional id, from typed events made by hand."""

from __future__ import annotations

import pytest

from kraftlite.model.ids import NodeId
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.obs.explain import Explanation, Recorded, Subject, UnknownSubject, explain, from_trace
from kraftlite.runtime.trace import TraceEvent, controller, transaction

STATE = TopicPartition("__transaction_state", 7)
ORDERS = TopicPartition("orders", 0)
NAME = "payments"


class Trace:
    def __init__(self) -> None:
        self.events: list[Recorded] = []

    def say(self, at_s: float, where: int, event: TraceEvent) -> None:
        self.events.append(from_trace(int(at_s * 1000), where, event))

    def starts(self, at_s: float, where: int, epoch: int) -> None:
        started = transaction.TransactionProducerStarted(
            transactional_id=NAME,
            producer_id=9,
            producer_epoch=epoch,
            previous_producer_id=9 if epoch else None,
            previous_epoch=epoch - 1 if epoch else None,
        )
        self.say(at_s, where, started)

    def ends(self, at_s: float, where: int, outcome: str, *, open_ms: int, marking_ms: int, untold: int = 0) -> None:
        ended = transaction.TransactionEnded(
            transactional_id=NAME,
            producer_id=9,
            producer_epoch=1,
            outcome=outcome,
            open_ms=open_ms,
            marking_ms=marking_ms,
            partitions=("orders-0",),
            count=1,
            untold=untold,
        )
        self.say(at_s, where, ended)

    def told(self, name: str = NAME) -> Explanation:
        return explain(self.events, Subject.parse("transaction", name))


@pytest.fixture
def trace() -> Trace:
    return Trace()


def failover(trace: Trace) -> None:
    """Broker 4 decides at 9.0 s and dies, broker 5 finds that at 9.5 s, and orders-0 has no leader until 11 s."""
    moved = controller.PartitionRecordAppended(
        record="PartitionChange",
        offset=40,
        detail=str(STATE),
        first_offset=40,
        tp=STATE,
        old_leader=NodeId(4),
        leader=NodeId(5),
        old_leader_epoch=2,
        leader_epoch=3,
        old_isr=(NodeId(4), NodeId(5)),
        isr=(NodeId(5),),
        partition_epoch=6,
        cause="operation:fence_broker broker=4",
    )
    trace.say(9.4, 1, moved)
    found = transaction.TransactionTakenOver(
        tp=STATE,
        leader_epoch=3,
        transactional_id=NAME,
        producer_id=9,
        producer_epoch=1,
        state="PrepareCommit",
        open_ms=1000,
        marking_ms=500,
        partitions=("orders-0",),
        count=1,
    )
    trace.say(9.5, 5, found)
    waits = transaction.TransactionMarkerWaits(transactional_id=NAME, tp=ORDERS, leader=None, error="LEADER_NOT_AVAILABLE")
    trace.say(9.6, 5, waits)
    trace.say(11.0, 5, transaction.TransactionMarkerWritten(transactional_id=NAME, tp=ORDERS, leader=6))


def test_a_coordinator_that_dies_between_prepare_and_complete(trace: Trace) -> None:
    failover(trace)
    trace.ends(11.1, 5, "committed", open_ms=1000, marking_ms=2100)
    found = trace.told()
    (story,) = found.stories
    assert story.kind == "committed" and story.facts["coordinator"] == 5 and story.from_ms == 8000
    assert story.chain == (
        "began 8.0 s ▸ decided 9.0 s ▸ coordinator 4 → 5 9.4 s ▸ node 5 goes on 9.5 s ▸ marker waits for orders-0 9.6 s"
        " ▸ marker in orders-0 11.0 s ▸ committed 11.1 s"
    )
    assert [step.because for step in story.steps] == [None, 1, 2, 3, 4, 5, 6]
    assert found.standing == ("the last recorded transaction was committed by producer 9 in epoch 1; the coordinator is node 5")


def test_one_whose_end_is_not_recorded_goes_on(trace: Trace) -> None:
    failover(trace)
    (story,) = trace.told().stories
    assert story.kind == "open" and story.until_ms is None and story.facts["outcome"] == "committed"
    assert story.title == "a transaction is not complete, and will be committed"


def test_who_fenced_whom(trace: Trace) -> None:
    trace.starts(1, 4, 0)
    fenced = transaction.TransactionFenced(transactional_id=NAME, producer_id=9, producer_epoch=1, reason="taken over")
    trace.say(5, 4, fenced)
    trace.ends(5.05, 4, "aborted", open_ms=2000, marking_ms=50)
    trace.starts(5.1, 4, 2)
    refused = transaction.TransactionProducerRefused(transactional_id=NAME, producer_id=9, producer_epoch=0, current_epoch=2)
    trace.say(6, 4, refused)
    first, aborted, second, late = trace.told().stories
    assert [it.kind for it in (first, aborted, second, late)] == [
        "producer_started",
        "aborted",
        "producer_started",
        "producer_refused",
    ]
    assert aborted.chain == "began 3.0 s ▸ taken over 5.0 s ▸ decided 5.0 s ▸ aborted 5.0 s"
    assert second.chain == "producer 9 in epoch 2 5.1 s ▸ producer 9 in epoch 1 fenced"
    assert late.chain == "producer 9 in epoch 2 5.1 s ▸ producer 9 in epoch 0 refused 6.0 s"


def test_one_that_timed_out(trace: Trace) -> None:
    fenced = transaction.TransactionFenced(transactional_id=NAME, producer_id=9, producer_epoch=1, reason="timed out")
    trace.say(5, 4, fenced)
    assert trace.told().standing == "timed out, and being aborted in epoch 1"
    trace.ends(5.01, 4, "aborted", open_ms=1000, marking_ms=10)
    (story,) = trace.told().stories
    assert "it is open for longer than its timeout" in story.steps[1].what


def test_a_busy_coordinator_says_how_many_it_did_not_tell(trace: Trace) -> None:
    trace.ends(5, 4, "committed", open_ms=5, marking_ms=1, untold=431)
    (story,) = trace.told().stories
    assert story.facts["untold"] == 431 and "431 more of the id ended before it" in story.steps[-1].what


def test_an_id_of_which_nothing_is_recorded(trace: Trace) -> None:
    trace.starts(1, 4, 0)
    with pytest.raises(UnknownSubject, match="nothing is recorded of transaction orders; there are: payments"):
        trace.told("orders")
