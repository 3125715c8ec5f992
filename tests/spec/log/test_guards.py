"""TP-02 to TP-14: the guards of batches that begin a transaction, in one log."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlite.log.batch import parse_header
from kraftlite.log.guards import MAX_GUARDS, Guard, TransactionTerms
from kraftlite.log.log import AppendOrigin, Log
from kraftlite.model.errors import ApiError, ErrorCode
from tests.harness.disk import MemDisk
from tests.harness.log_support import NOW, append, batch, end_txn, open_log

DAY_MS = 86_400_000


def begin(
    log: Log, pid: int = 1, *, pepoch: int = 0, seq: int = 0, adds: bool = False, epoch: int = 0, wall_ms: int = NOW
) -> Guard | None:
    header = parse_header(batch("x", pid=pid, pepoch=pepoch, seq=seq, txn=True))
    return log.begin_verification(header, leader_epoch=epoch, wall_ms=wall_ms, adds=adds)


def write(log: Log, guard: Guard | None, pid: int = 1, *, pepoch: int = 0, seq: int = 0, **kw: Any) -> int:
    """Append one transactional record by the terms of a question; returns its offset."""
    return append(log, "x", pid=pid, pepoch=pepoch, seq=seq, txn=True, terms=TransactionTerms(guard), **kw).base_offset


def refused(code: ErrorCode, what: Any, *args: Any, **kw: Any) -> None:
    with pytest.raises(ApiError) as caught:
        what(*args, **kw)
    assert caught.value.code is code, caught.value


def test_tp_02_a_transaction_is_ongoing_for_its_own_epoch_alone() -> None:
    log = open_log()
    write(log, begin(log))
    assert begin(log, seq=1) is None, "nobody need be asked again"
    assert write(log, None, seq=1) == 1
    assert begin(log, pepoch=1) is not None, "a newer epoch is another transaction"
    refused(ErrorCode.INVALID_TXN_STATE, write, log, None, pepoch=1)
    assert begin(log, pid=2) is not None


def test_tp_04_without_an_open_transaction_only_the_guard_lets_a_batch_in() -> None:
    log = open_log()
    refused(ErrorCode.INVALID_TXN_STATE, write, log, None)
    guard = begin(log)
    refused(ErrorCode.INVALID_TXN_STATE, write, log, Guard(0, 0, 0, NOW, adds=False))
    assert log.leo == 0 and write(log, guard) == 0
    append(log, "x", pid=9, txn=True)  # no terms: nobody has to be asked


def test_tp_04_a_coordinators_own_batch_is_guarded_too() -> None:
    log = open_log()
    refused(ErrorCode.INVALID_TXN_STATE, write, log, None, seq=-1, origin=AppendOrigin.COORDINATOR)
    assert write(log, begin(log, seq=-1), seq=-1, origin=AppendOrigin.COORDINATOR) == 0


def test_tp_04_a_marker_between_question_and_answer_takes_the_guard_away() -> None:
    """ABA: the answer was about the transaction that the marker ended, and not about the one that may have begun since."""
    log = open_log()
    guard = begin(log)
    end_txn(log, 1, commit=False)
    refused(ErrorCode.INVALID_TXN_STATE, write, log, guard)
    second = begin(log)
    assert second is not None and second is not guard
    refused(ErrorCode.INVALID_TXN_STATE, write, log, guard)
    write(log, second)


def test_tp_04_guards_outlive_a_move_to_another_directory() -> None:
    """The leader stays the same, and so does what it has asked about."""
    log, copy = open_log(), open_log()
    for one in (log, copy):
        append(one, "x")
    guard, second = begin(log), begin(log, pid=2, seq=3)
    log.exchange(copy)
    assert write(log, guard) == 1
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, write, log, begin(log, pid=2, seq=5), pid=2, seq=5)
    assert write(log, second, pid=2, seq=3) == 2
    refused(ErrorCode.INVALID_TXN_STATE, write, copy, guard)


def test_lg_19_what_is_known_of_producers_outlives_a_move_to_another_directory() -> None:
    """The copy has none of the records that were deleted before it was made, and would take what is sent again for new."""
    log, copy = open_log(), open_log()
    append(log, "x", "y", pid=1, seq=0)
    log.update_hw(2)
    copy.truncate_fully_and_start_at(2)
    known = log.active_producers()
    assert known and not copy.active_producers()
    log.exchange(copy)
    assert log.active_producers() == known and not copy.active_producers()
    behind = open_log()
    append(behind, "x", pid=1, seq=0)
    behind.exchange(log)
    assert behind.active_producers() == known, "a crash has left less of it, and its producers, than of the copy"


def test_tp_04_guards_do_not_survive_a_change_of_leader() -> None:
    log = open_log()
    guard = begin(log)
    log.drop_guards()
    refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, write, log, guard, epoch=1)
    refused(ErrorCode.INVALID_TXN_STATE, write, log, guard, epoch=0)


def test_tp_04_guards_are_not_on_disk() -> None:
    disk = MemDisk()
    log = open_log(disk)
    guard = begin(log)
    log.close()
    refused(ErrorCode.INVALID_TXN_STATE, write, open_log(disk, clean=True), guard)


def test_tp_05_the_first_append_takes_the_guard_and_batches_that_share_it_go_on() -> None:
    log = open_log()
    first, second = begin(log), begin(log, seq=1)
    assert first is second
    write(log, first)
    assert write(log, second, seq=1) == 1, "the transaction is open now"
    end_txn(log, 1, commit=True)
    refused(ErrorCode.INVALID_TXN_STATE, write, log, second, seq=2)


@pytest.mark.parametrize(
    ("adds", "marker_epoch", "stays"),
    [(True, 1, True), (True, 0, False), (True, 2, False), (False, 1, False)],
    ids=["epoch of the next transaction", "older", "newer", "transaction.version 1"],
)
def test_tp_05_a_marker_leaves_the_guard_of_the_next_transaction_alone(adds: bool, marker_epoch: int, stays: bool) -> None:
    """KAFKA-18575, KAFKA-18654: with transaction.version 2 the marker of one transaction carries the epoch of the next."""
    log = open_log()
    guard = begin(log, pepoch=1, adds=adds)
    end_txn(log, 1, commit=True, pepoch=marker_epoch, version=2)
    if stays:
        assert write(log, guard, pepoch=1) == 1
    else:
        error = ErrorCode.INVALID_PRODUCER_EPOCH if marker_epoch == 2 else ErrorCode.INVALID_TXN_STATE
        refused(error, write, log, guard, pepoch=1)


def test_tp_06_a_stale_epoch_is_told_before_a_missing_guard() -> None:
    """KAFKA-19690: a producer goes on behind INVALID_PRODUCER_EPOCH and ends behind INVALID_TXN_STATE."""
    log = open_log()
    guard = begin(log)
    end_txn(log, 1, commit=False, pepoch=1, version=2)
    refused(ErrorCode.INVALID_PRODUCER_EPOCH, write, log, guard)
    refused(ErrorCode.INVALID_PRODUCER_EPOCH, begin, log)


def test_tp_06_an_epoch_is_stale_when_a_newer_one_has_asked() -> None:
    log = open_log()
    old = begin(log)
    new = begin(log, pepoch=1)
    refused(ErrorCode.INVALID_PRODUCER_EPOCH, write, log, old)
    refused(ErrorCode.INVALID_PRODUCER_EPOCH, begin, log)
    write(log, new, pepoch=1)


def test_tp_10_a_higher_sequence_waits_for_the_lowest_that_was_seen() -> None:
    """KAFKA-14920: with no state of the producer, sequence 5 would be taken before 0, and 0 never."""
    log = open_log()
    guard = begin(log, seq=5)
    begin(log, seq=0)
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, write, log, guard, seq=5)
    write(log, guard, seq=0)


def test_tp_10_a_higher_epoch_begins_anew() -> None:
    log = open_log()
    begin(log, seq=0)
    guard = begin(log, pepoch=1, seq=7)
    write(log, guard, pepoch=1, seq=7)


def test_tp_11_a_producer_without_state_begins_at_0_where_each_transaction_has_an_epoch() -> None:
    log = open_log()
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, write, log, begin(log, seq=3, adds=True), seq=3)
    write(log, begin(log, pid=2, seq=3, adds=False), pid=2, seq=3)
    end_txn(log, 3, commit=False, version=2)
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, write, log, begin(log, pid=3, seq=3, adds=True), pid=3, seq=3)
    write(log, begin(log, pid=3, seq=0, adds=True), pid=3, seq=0)


def test_tp_12_a_new_epoch_starts_at_0_and_forgets_the_batches_before() -> None:
    log = open_log()
    write(log, begin(log))
    end_txn(log, 1, commit=True, pepoch=1, version=2)
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, write, log, begin(log, pepoch=1, seq=1, adds=True), pepoch=1, seq=1)
    guard = begin(log, pepoch=1, adds=True)
    assert write(log, guard, pepoch=1) == 2, "sequence 0 again, and no duplicate of the one in epoch 0"
    refused(ErrorCode.INVALID_PRODUCER_EPOCH, write, log, guard)


def test_tp_12_a_duplicate_of_an_open_transaction_is_answered_with_its_offset() -> None:
    log = open_log()
    guard = begin(log)
    write(log, guard)
    again = append(log, "x", pid=1, txn=True, terms=TransactionTerms(guard))
    assert again.duplicate and again.base_offset == 0 and log.leo == 1


def test_tp_13_a_plain_batch_of_a_producer_with_an_open_transaction() -> None:
    log = open_log()
    write(log, begin(log))
    refused(ErrorCode.INVALID_TXN_STATE, append, log, "x", pid=1, seq=1)
    refused(ErrorCode.INVALID_TXN_STATE, append, log, "x", pid=1, pepoch=1)
    end_txn(log, 1, commit=True)
    append(log, "x", pid=1, seq=1)


def test_tp_14_guards_that_linger_expire_and_open_transactions_do_not() -> None:
    log = open_log()
    write(log, begin(log, pid=2), pid=2)
    guard = begin(log)
    log.remove_expired_producers(NOW + DAY_MS - 1)
    assert begin(log) is guard
    log.remove_expired_producers(NOW + DAY_MS)
    assert begin(log) is not guard
    assert [it.producer_id for it in log.active_producers()] == [2]
    write(log, None, pid=2, seq=1)


def test_tp_14_the_memory_of_guards_is_bounded() -> None:
    log = open_log()
    first = begin(log, pid=0)
    for pid in range(1, MAX_GUARDS + 1):
        begin(log, pid=pid)
    refused(ErrorCode.INVALID_TXN_STATE, write, log, first, pid=0)
    write(log, begin(log, pid=MAX_GUARDS), pid=MAX_GUARDS)
