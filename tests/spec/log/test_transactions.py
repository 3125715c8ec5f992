"""TP-20 to TP-42: transactions in one log: markers, what is stable, what was aborted."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlite.log import producer_snapshots
from kraftlite.log.batch import iter_batches, iter_records, parse_header
from kraftlite.log.config import LogConfig
from kraftlite.log.guards import TransactionTerms
from kraftlite.log.indexes import AbortedTransaction
from kraftlite.log.log import AppendOrigin, Log
from kraftlite.log.validation import MARKER_BYTES
from kraftlite.model.errors import ApiError, ErrorCode
from tests.harness.disk import MemDisk
from tests.harness.log_support import DIR, NOW, append, batch, end_txn, everything, open_log

DAY_MS = 86_400_000


def refused(code: ErrorCode, what: Any, *args: Any, **kw: Any) -> None:
    with pytest.raises(ApiError) as caught:
        what(*args, **kw)
    assert caught.value.code is code, caught.value


def aborted_index(log: Log) -> list[AbortedTransaction]:
    return [entry for segment in log.segments for entry in segment.txn_index]


def stable_offsets(log: Log) -> list[int]:
    """The LSO for each HW."""
    found = []
    for hw in range(log.leo + 1):
        log.update_hw(hw)
        found.append(log.last_stable_offset)
    return found


# markers


def test_tp_20_a_marker_is_a_batch_of_its_own_and_takes_one_offset() -> None:
    log = open_log()
    append(log, "x", pid=1, pepoch=4, txn=True)
    end_txn(log, 1, commit=True, pepoch=4, coordinator_epoch=9)
    header, data = list(iter_batches(everything(log)))[1]
    record = next(iter_records(data))
    assert header.is_control and header.is_transactional and (header.base_offset, header.count, log.leo) == (1, 1, 2)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (1, 4, -1)
    assert record.key == bytes.fromhex("0000 0001") and record.value == bytes.fromhex("0000 00000009")


def test_tp_20_a_topic_for_small_messages_takes_markers() -> None:
    log = open_log(config=LogConfig(max_message_bytes=70))
    refused(ErrorCode.MESSAGE_TOO_LARGE, append, log, "x" * 9)
    end_txn(log, 1, commit=False)
    assert log.leo == 1 and log.size_bytes == MARKER_BYTES


def test_tp_21_an_older_coordinator_is_fenced_and_a_follower_never_refuses() -> None:
    log = open_log()
    append(log, "x", pid=1, txn=True)
    end_txn(log, 1, commit=True, coordinator_epoch=5)
    refused(ErrorCode.TRANSACTION_COORDINATOR_FENCED, end_txn, log, 1, commit=True, coordinator_epoch=4)
    end_txn(log, 2, commit=False, coordinator_epoch=-1)
    follower, copied = open_log(), open_log()
    append(copied, "x", pid=1, txn=True)
    end_txn(copied, 1, commit=True, coordinator_epoch=4)
    end_txn(follower, 1, commit=True, coordinator_epoch=5)
    data = list(iter_batches(everything(copied)))[1][1]
    assert follower.append_as_follower(data) is not None
    assert follower.active_producers()[0].coordinator_epoch == 5


@pytest.mark.parametrize("is_open", [True, False])
@pytest.mark.parametrize(
    ("version", "entry", "marker", "taken"),
    [
        (0, 5, 4, (False, False)),
        (0, 5, 5, (True, True)),
        (1, 5, 5, (True, True)),
        (1, 5, 6, (True, True)),
        (2, 5, 4, (False, False)),
        (2, 5, 5, (False, True)),
        (2, 5, 6, (True, True)),
        (2, 32767, 32767, (True, True)),
        (2, 32767, 32766, (False, False)),
    ],
)
def test_tp_22_the_epoch_of_a_marker(version: int, entry: int, marker: int, taken: tuple[bool, bool], is_open: bool) -> None:
    """`taken`: with an open transaction, and without. KIP-1228, KAFKA-19999."""
    log = open_log()
    append(log, "x", pid=1, pepoch=entry, txn=is_open)
    if taken[0 if is_open else 1]:
        assert end_txn(log, 1, commit=True, pepoch=marker, version=version).base_offset == 1
    else:
        refused(ErrorCode.INVALID_PRODUCER_EPOCH, end_txn, log, 1, commit=True, pepoch=marker, version=version)


def test_tp_23_a_marker_fences_late_batches_of_its_transaction() -> None:
    """KIP-890: without it a batch that was delayed would open a transaction that nobody ends."""
    log = open_log()
    append(log, "x", pid=1, txn=True)
    end_txn(log, 1, commit=True, pepoch=1, version=2, coordinator_epoch=3)
    (known,) = log.active_producers()
    assert (known.producer_epoch, known.coordinator_epoch, known.last_sequence) == (1, 3, -1)
    refused(ErrorCode.INVALID_PRODUCER_EPOCH, append, log, "late", pid=1, seq=1, txn=True)
    end_txn(log, 1, commit=True, pepoch=1, version=2, coordinator_epoch=3)
    assert log.active_producers()[0].coordinator_epoch == 3


def test_tp_24_a_marker_without_a_transaction_ends_nothing_and_is_stored() -> None:
    log = open_log()
    append(log, "plain")
    append(log, "open", pid=7, txn=True)
    log.update_hw(2)
    end_txn(log, 1, commit=False, pepoch=3, coordinator_epoch=2, version=2)
    log.update_hw(3)
    assert log.leo == 3 and log.last_stable_offset == 1 and aborted_index(log) == []
    found = {it.producer_id: it for it in log.active_producers()}
    assert (found[1].producer_epoch, found[1].coordinator_epoch, found[1].txn_start_offset) == (3, 2, None)


def test_tp_25_a_follower_and_a_recovery_come_to_the_same_state() -> None:
    disk = MemDisk()
    log = open_log(disk, LogConfig(segment_bytes=400))
    for pid in (1, 2, 3):
        append(log, "x", pid=pid, txn=True)
    end_txn(log, 2, commit=False, pepoch=1, version=2, coordinator_epoch=1)
    append(log, "y", pid=2, pepoch=1, txn=True)
    end_txn(log, 1, commit=True, version=0, coordinator_epoch=2)
    for _ in range(2):
        end_txn(log, 2, commit=False, pepoch=2, version=2, coordinator_epoch=1)
    follower = open_log(config=LogConfig(segment_bytes=300))
    follower.append_as_follower(everything(log))
    recovered = open_log(disk, LogConfig(segment_bytes=400))
    for other in (log, follower, recovered):
        assert stable_offsets(other) == [0, 0, 0, 0, 0, 0, 2, 2, 2]
        assert aborted_index(other) == aborted_index(log)
        assert other.active_producers() == log.active_producers()


# the last stable offset


def test_tp_30_tp_31_a_transaction_holds_the_lso_until_its_marker_is_below_the_hw() -> None:
    log = open_log()
    append(log, "plain")
    append(log, "a", pid=1, txn=True)
    append(log, "b", pid=2, txn=True)
    assert log.last_stable_offset == log.hw == 0
    log.update_hw(3)
    assert log.last_stable_offset == 1
    end_txn(log, 1, commit=True)
    assert log.last_stable_offset == 1
    log.update_hw(3)
    assert log.last_stable_offset == 1, "the marker is at 3, and the HW must be beyond"
    log.update_hw(4)
    assert log.last_stable_offset == 2
    end_txn(log, 2, commit=False)
    log.update_hw(5)
    assert log.last_stable_offset == 5


def test_tp_30_an_earlier_transaction_that_ended_later_holds_it_too() -> None:
    log = open_log()
    for pid in (1, 2):
        append(log, "x", pid=pid, txn=True)
    end_txn(log, 2, commit=True)
    end_txn(log, 1, commit=True)
    seen = []
    for hw in range(5):
        log.update_hw(hw)
        seen.append(log.last_stable_offset)
    assert seen == [0, 0, 0, 0, 4]


def test_tp_32_deleting_past_an_open_transaction_leaves_it_open() -> None:
    log = open_log()
    append(log, "a", pid=1, txn=True)
    append(log, "b")
    append(log, "c")
    log.update_hw(3)
    log.increment_log_start(2, "request")
    assert log.last_stable_offset == 2 and log.active_producers()[0].txn_start_offset == 0
    end_txn(log, 1, commit=False)
    log.update_hw(4)
    assert log.last_stable_offset == 4


def test_tp_32_retention_past_an_open_transaction_leaves_it_open() -> None:
    log = open_log(config=LogConfig(segment_bytes=150))
    append(log, "a" * 50, pid=1, txn=True)
    for _ in range(3):
        append(log, "b" * 50)
    log.update_hw(4)
    log.delete_segments_before(3, reason="retention")
    assert log.log_start_offset == log.last_stable_offset == 3
    append(log, "x", pid=1, seq=1, txn=True, terms=TransactionTerms())
    end_txn(log, 1, commit=True)
    log.update_hw(log.leo)
    assert log.last_stable_offset == log.leo


# aborted transactions


def test_tp_33_aborted_transactions_of_a_range() -> None:
    log = open_log()
    append(log, "a", pid=1, txn=True)
    append(log, "b", pid=2, txn=True)
    append(log, "c", pid=3, txn=True)
    end_txn(log, 2, commit=False)
    end_txn(log, 3, commit=True)
    end_txn(log, 1, commit=False)
    assert log.aborted_transactions(0, 6) == ((2, 1), (1, 0)), "in the order of the markers"
    assert log.aborted_transactions(0, 1) == ((1, 0),)
    assert log.aborted_transactions(5, 6) == ((1, 0),)
    assert log.aborted_transactions(4, 5) == ((1, 0),), "its marker comes later"


def test_tp_34_an_abort_whose_marker_is_segments_later_is_found() -> None:
    """The look-up goes on until an entry's LSO is at the end of the range: another transaction may still be open there."""
    log = open_log(config=LogConfig(segment_bytes=150))
    append(log, "x" * 50, pid=1, txn=True)
    append(log, "x" * 50, pid=2, txn=True)
    end_txn(log, 2, commit=False)
    for _ in range(3):
        append(log, "x" * 50)
    end_txn(log, 1, commit=False)
    assert len(log.segments) > 4
    assert log.aborted_transactions(0, 2) == ((2, 1), (1, 0))
    assert aborted_index(log) == [AbortedTransaction(2, 1, 2, 0), AbortedTransaction(1, 0, 6, 7)]


class Counted(list[AbortedTransaction]):
    """The entries of an index, and how many of them were looked at."""

    looked = 0

    def __getitem__(self, at: Any) -> Any:
        self.looked += 1
        return super().__getitem__(at)


def test_tp_34_what_ended_before_a_range_is_not_looked_through() -> None:
    """A reader that follows the log pays for what is new, however much was aborted before."""
    log = open_log()
    for number in range(1_000):
        append(log, "x", pid=number, txn=True)
        end_txn(log, number, commit=False)
    entries = log.segments[0].txn_index._entries = Counted(aborted_index(log))
    assert log.aborted_transactions(1996, 2000) == ((998, 1996), (999, 1998))
    assert log.aborted_transactions(0, 4) == ((0, 0), (1, 2)) and entries.looked < 30
    assert log.has_aborted_from(1999) and not log.has_aborted_from(2000)


def test_tp_38_truncation_removes_reopens_and_cuts_the_index() -> None:
    log = open_log(config=LogConfig(segment_bytes=400))
    append(log, "a", pid=1, txn=True)
    end_txn(log, 1, commit=False)
    append(log, "b", pid=2, txn=True)
    append(log, "c", pid=3, txn=True)
    end_txn(log, 2, commit=False)
    end_txn(log, 3, commit=True)
    log.update_hw(2)
    log.truncate_to(5)
    assert log.aborted_transactions(0, 5) == ((1, 0), (2, 2))
    log.truncate_to(4)
    opened = {it.producer_id: it.txn_start_offset for it in log.active_producers()}
    assert opened == {1: None, 2: 2, 3: 3} and log.aborted_transactions(0, 5) == ((1, 0),)
    log.truncate_to(3)
    assert {it.producer_id: it.txn_start_offset for it in log.active_producers()} == {1: None, 2: 2}
    log.truncate_to(2)
    assert {it.producer_id: it.txn_start_offset for it in log.active_producers()} == {1: None}
    log.truncate_to(1, allow_below_hw=True)
    assert aborted_index(log) == [] and log.active_producers()[0].txn_start_offset == 0
    assert log.last_stable_offset == 0 and log.hw == 1


def test_tp_39_snapshots_carry_the_coordinator_and_the_open_transaction() -> None:
    disk = MemDisk()
    log = open_log(disk)
    append(log, "x")
    append(log, "a", pid=1, pepoch=2, txn=True)
    end_txn(log, 2, commit=True, coordinator_epoch=8)
    known = log.active_producers()
    log.close()
    assert producer_snapshots.list_snapshots(disk, DIR) == [3]
    again = open_log(disk, clean=True, recovery_point=3)
    assert again.active_producers() == known
    again.update_hw(3)
    assert again.last_stable_offset == 1


@pytest.mark.parametrize("clean", [True, False])
def test_tp_39_a_transaction_whose_marker_is_beyond_the_hw_is_undecided_after_a_restart(clean: bool) -> None:
    """The snapshot tells nothing of it, because its producer has no open transaction any more."""
    disk = MemDisk()
    log = open_log(disk)
    append(log, "x")
    append(log, "a", pid=1, txn=True)
    append(log, "b", pid=2, txn=True)
    end_txn(log, 2, commit=True)
    end_txn(log, 1, commit=True)
    append(log, "y")
    log.close()
    again = open_log(disk, clean=clean, recovery_point=6)
    again.update_hw(3)
    assert again.last_stable_offset == 1
    again.update_hw(4)
    assert again.last_stable_offset == 1
    again.update_hw(6)
    assert again.last_stable_offset == 6
    again.update_hw(4)
    assert again.last_stable_offset == 1, "a new leader whose HW is behind"


def test_tp_38_a_truncation_above_the_hw_leaves_undecided_what_it_leaves() -> None:
    log = open_log(config=LogConfig(segment_bytes=150))
    append(log, "a" * 50, pid=1, txn=True)
    end_txn(log, 1, commit=True)
    for _ in range(3):
        append(log, "x" * 50)
    log.update_hw(1)
    log.truncate_to(4)
    assert log.last_stable_offset == 0
    log.update_hw(2)
    assert log.last_stable_offset == 2


@pytest.mark.parametrize("commit", [True, False])
def test_tp_38_a_truncation_reopens_the_transaction_of_a_producer_that_was_forgotten(commit: bool) -> None:
    log = open_log()
    append(log, "a", pid=1, txn=True)
    end_txn(log, 1, commit=commit)
    assert log.remove_expired_producers(NOW + 2 * DAY_MS) == 1
    log.truncate_to(1)
    assert {it.producer_id: it.txn_start_offset for it in log.active_producers()} == {1: 0}
    end_txn(log, 1, commit=False)
    assert log.aborted_transactions(0, 2) == ((1, 0),)


def test_tp_41_a_late_transaction_is_the_earliest_whose_producer_is_silent() -> None:
    log = open_log()
    limit = 1_200_000
    assert not log.has_late_transaction(NOW + DAY_MS, limit)
    append(log, "a", pid=1, txn=True)
    append(log, "b", pid=2, txn=True, ts=NOW + 1_000)
    assert not log.has_late_transaction(NOW + limit, limit) and log.has_late_transaction(NOW + limit + 1, limit)
    end_txn(log, 1, commit=True)
    assert not log.has_late_transaction(NOW + limit + 1, limit) and log.has_late_transaction(NOW + limit + 1_001, limit)


def test_tp_42_a_client_writes_no_control_batch() -> None:
    log = open_log()
    made = batch("x", pid=1, txn=True)
    header = parse_header(made)
    guard = log.begin_verification(header, leader_epoch=0, wall_ms=NOW, adds=False)
    disk_marker = open_log()
    end_txn(disk_marker, 1, commit=True)
    marker = bytearray(everything(disk_marker))
    with pytest.raises(ApiError) as caught:
        log.append_as_leader(marker, leader_epoch=0, wall_ms=NOW, origin=AppendOrigin.CLIENT, terms=TransactionTerms(guard))
    assert caught.value.code is ErrorCode.INVALID_RECORD and log.leo == 0
