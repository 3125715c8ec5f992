"""A repeated marker of an old version may end the next transaction of its epoch (TP-22), and nothing else is excused with it."""

from __future__ import annotations

import pytest

from kraftlite.coordinator.transactions.states import TransactionState
from kraftlite.log.batch import Record, build_batch
from kraftlite.log.control import EndTxnMarker, control_batch
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.methods import WRITE_MARKERS
from kraftlite.model.messages.transactions import TransactionMarker, WriteMarkersRequest
from kraftlite.sim.checkers.base import Violation
from kraftlite.sim.checkers.h_transactions import TransactionsSeen
from kraftlite.sim.checkers.i66_transaction_outcomes import TransactionOutcomes
from kraftlite.sim.workloads.transactions_history import Outcome, Reading
from tests.unit.sim.test_checkers_transactions import PRODUCER, A, Log, T

S = TransactionState


def sent(log: Log, *, commit: bool = True, epoch: int = 0, version: int = 0) -> None:
    """A message with this marker leaves."""
    marker = TransactionMarker(
        producer_id=PRODUCER, producer_epoch=epoch, coordinator_epoch=0, commit=commit, transaction_version=version,
        topic="t", topic_id=T, partition=0,
    )  # fmt: skip
    request = WriteMarkersRequest(cluster_id="c", timeout_ms=1, markers=(marker,))
    log.checker.on_call(NodeId(2), NodeId(2), WRITE_MARKERS, request)


def first(log: Log, messages: int = 1, *, version: int = 0) -> None:
    """The first transaction is committed; as many messages with its marker leave before that."""
    log.state(S.ONGOING, 0, A, version=version)
    log.batch(A, 0)
    log.state(S.PREPARE_COMMIT, 0, A, version=version)
    for _ in range(messages):
        sent(log, version=version)
    log.batch(A, 0, commit=True)
    log.state(S.COMPLETE_COMMIT, 0, version=version)


def second(log: Log, *, commit: bool = True, version: int = 0) -> None:
    """The next one of the same epoch is open when the marker of the first comes again."""
    log.state(S.ONGOING, 0, A, version=version)
    log.batch(A, 0)
    log.batch(A, 0, commit=commit)


def test_a_message_that_comes_late_ends_the_next_transaction() -> None:
    log = Log(TransactionOutcomes)
    first(log)
    second(log)
    (early,) = log.facts.ended_early.values()
    assert [it.base_offset for it in early] == [log.offset - 1]
    log.state(S.PREPARE_ABORT, 0, A, version=0)
    log.batch(A, 0, commit=False)
    log.state(S.COMPLETE_ABORT, 0, version=0)
    log.settle()


@pytest.mark.parametrize("late", [False, True])
def test_a_marker_that_no_message_has_brought_is_found(late: bool) -> None:
    """`late`: the message leaves when the transaction is complete."""
    log = Log(TransactionOutcomes)
    first(log, messages=0)
    if late:
        sent(log)
    with pytest.raises(Violation, match="which is open"):
        second(log)


def test_more_markers_than_messages_are_found() -> None:
    log = Log(TransactionOutcomes)
    first(log)
    second(log)
    log.batch(A, 0)
    with pytest.raises(Violation, match="which is open"):
        log.batch(A, 0, commit=True)


def test_a_marker_of_a_version_with_epochs_is_found() -> None:
    log = Log(TransactionOutcomes)
    first(log, version=2)
    with pytest.raises(Violation, match="which is open"):
        second(log, version=2)


def test_the_other_outcome_is_found() -> None:
    log = Log(TransactionOutcomes)
    first(log)
    with pytest.raises(Violation, match="decided is"):
        second(log, commit=False)


def test_the_next_transaction_must_still_be_told() -> None:
    """Its own marker is asked for all the same."""
    log = Log(TransactionOutcomes)
    first(log)
    second(log)
    log.state(S.PREPARE_ABORT, 0, A, version=0)
    with pytest.raises(Violation, match="t-0 has no marker of"):
        log.state(S.COMPLETE_ABORT, 0, version=0)


def stored(*values: str) -> bytes:
    """A log of one record a batch, all of which one marker ends."""
    batches = []
    for offset, value in enumerate(values):
        record = Record(key=None, value=value.encode())
        more = {"producer_id": PRODUCER, "producer_epoch": 0, "base_sequence": offset, "timestamp_ms": 1}
        batches.append(build_batch([record], base_offset=offset, transactional=True, **more))
    end = EndTxnMarker(commit=True, coordinator_epoch=0)
    marker = control_batch([end], base_offset=len(values), leader_epoch=0, timestamp_ms=1, producer_id=PRODUCER, producer_epoch=0)
    return b"".join(map(bytes, [*batches, marker]))


def judged(log: Log, data: bytes, *early: int) -> None:
    """The log of the partition is this, in which these batches were ended before their time."""
    checker = log.checker
    assert isinstance(checker, TransactionsSeen)
    checker._final = lambda: iter([(A, checker._committed_in(data, early))])  # type: ignore[method-assign]
    log.seen.topics.append("t")
    checker.at_end()


def test_records_that_were_ended_early_are_not_held_against_anybody() -> None:
    log = Log(TransactionsSeen)
    log.tried(Outcome.NOT_COMMITTED, "v")
    log.seen.readings.append(Reading(client="r", tp=A, end=2, records=[(0, "v")]))
    judged(log, stored("v"), 0)


def test_a_record_that_is_lost_beside_one_that_was_ended_early_is_found() -> None:
    log = Log(TransactionsSeen)
    log.tried(Outcome.COMMITTED, "v", "w")
    with pytest.raises(Violation, match="w is not there; its commit was acknowledged"):
        judged(log, stored("v"), 0)


def test_a_reader_is_given_what_is_committed_also_where_it_was_ended_early() -> None:
    log = Log(TransactionsSeen)
    log.tried(Outcome.NOT_COMMITTED, "v")
    log.seen.readings.append(Reading(client="r", tp=A, end=2))
    with pytest.raises(Violation, match=r"was not given \[\(0, 'v'\)\]"):
        judged(log, stored("v"), 0)
