"""LG-42 to LG-48: what compaction leaves, when it is due, and what it never touches."""

from __future__ import annotations

import pytest

from kraftlite.log import codecs
from kraftlite.log.batch import Record, build_batch, iter_batches, iter_records, record_timestamp
from kraftlite.log.cleaner import look
from kraftlite.log.config import LogConfig
from kraftlite.log.log import AppendOrigin, Log
from kraftlite.model.errors import ApiError, ErrorCode
from tests.harness.cleaning import COMPACT, clean, commit_all, filled, fresh, headers, keyed, markers, put
from tests.harness.log_support import DIR, NOW, append, end_txn, everything, open_log

DAY = 86_400_000


def test_lg_42_of_each_key_the_newest_record_is_left_at_its_offset() -> None:
    disk, log = fresh()
    for number in range(30):
        put(log, f"k{number % 7}", f"v{number}")
        if number % 5 == 4:
            log.roll()
    put(log, "k0", "in the active segment")
    commit_all(log)
    before = keyed(log)
    clean(log, disk)
    last = {key: offset for offset, key, _ in before[:30]}
    assert keyed(log) == [row for row in before if row[0] >= 30 or last[row[1]] == row[0]]
    assert (log.log_start_offset, log.leo, log.hw) == (0, 31, 31)
    assert log.clean_offset == 30


def test_lg_42_the_active_segment_is_never_touched() -> None:
    disk, log = fresh()
    for number in range(10):
        put(log, "k", f"v{number}")
    commit_all(log)
    assert look(log, NOW).dirty_bytes == 0 and clean(log, disk) is None
    log.roll()
    assert look(log, NOW).up_to == 10
    assert clean(log, disk) is not None and [row[0] for row in keyed(log)] == [9]


def test_lg_42_nothing_at_or_beyond_the_high_watermark_is_touched() -> None:
    disk, log = fresh()
    for number in range(10):
        put(log, "k", f"v{number}")
        log.roll()
    log.update_hw(5)
    assert look(log, NOW).up_to == 5
    clean(log, disk)
    assert [row[0] for row in keyed(log)] == [4, 5, 6, 7, 8, 9]


def test_lg_42_tp_40_nothing_beyond_the_first_open_transaction_is_touched() -> None:
    disk, log = fresh()
    for number in range(4):
        put(log, "k", f"v{number}")
    log.roll()
    put(log, "k", "open", producer_id=9, transactional=True)
    log.roll()
    put(log, "k", "later")
    log.roll()
    commit_all(log)
    assert log.last_stable_offset == 4 and look(log, NOW).up_to == 4
    clean(log, disk)
    assert [row[0] for row in keyed(log)] == [3, 4, 5]
    end_txn(log, 9, commit=True)
    log.roll()
    commit_all(log)
    clean(log, disk)
    assert [row[0] for row in keyed(log)] == [5]


def test_lg_42_a_segment_with_a_young_record_stops_the_cleaner() -> None:
    config = LogConfig(cleanup_policy=("compact",), min_compaction_lag_ms=1_000)
    disk, log = fresh(config)
    for age in (5_000, 4_000, 500, 3_000):
        put(log, "k", str(age), timestamp_ms=NOW - age)
        log.roll()
    commit_all(log)
    assert look(log, NOW).up_to == 2
    clean(log, disk)
    assert [row[0] for row in keyed(log)] == [1, 2, 3]
    assert look(log, NOW + 501).up_to == 4


def test_lg_42_reads_and_the_index_cross_the_gaps() -> None:
    disk, log = fresh()
    for number in range(300):
        put(log, f"k{number % 3 if number % 40 else number}", "x" * 20)
        if number % 50 == 49:
            log.roll()
    put(log, "end", "x")
    commit_all(log)
    clean(log, disk)
    kept = [row[0] for row in keyed(log)]
    for reopened in (False, True):
        if reopened:
            log.close()
            log = open_log(disk, COMPACT, clean=True, recovery_point=log.leo)
            commit_all(log)
        for offset in range(log.leo):
            first = next(
                header.base_offset + record.offset_delta
                for header, view in iter_batches(_from(log, offset))
                for record in iter_records(view)
                if header.base_offset + record.offset_delta >= offset
            )
            assert first == next(found for found in kept if found >= offset)


def _from(log: Log, offset: int) -> bytes:
    parts = []
    while offset < log.leo:
        data = log.read(offset, 1 << 20, up_to=log.leo)
        parts.append(data)
        offset = [header for header, _ in iter_batches(data)][-1].next_offset
    return b"".join(parts)


@pytest.mark.parametrize("codec", range(5))
def test_lg_42_batches_keep_their_codec_range_and_times(codec: int) -> None:
    disk, log = fresh()
    records = [Record(f"k{n % 4}".encode(), f"v{n}".encode() * 9, (("h", b"x"),), timestamp_delta=n) for n in range(10)]
    for _ in range(2):
        made = bytearray(build_batch(records, timestamp_ms=NOW, codec=codec))
        log.append_as_leader(made, leader_epoch=3, wall_ms=NOW, origin=AppendOrigin.CLIENT)
    log.roll()
    commit_all(log)
    clean(log, disk)
    (header,) = headers(log)
    assert (header.base_offset, header.last_offset, header.codec, header.count) == (10, 19, codec, 4)
    assert header.partition_leader_epoch == 3 and header.max_timestamp == NOW + 9
    (batch,) = [view for _, view in iter_batches(everything(log))]
    found = [(record.offset_delta, record_timestamp(header, record), record.headers) for record in iter_records(batch)]
    assert found == [(n, NOW + n, (("h", b"x"),)) for n in range(6, 10)]
    assert codecs.CODEC_NAMES[header.codec]


def test_lg_42_records_without_a_key_do_not_survive() -> None:
    """They can only be from before the topic was compacted."""
    disk, log = fresh(LogConfig(index_interval_bytes=100))
    append(log, "no key", key=None)
    put(log, "k", "v")
    log.roll()
    commit_all(log)
    log.update_config(COMPACT)
    clean(log, disk)
    assert [row[0] for row in keyed(log)] == [1]


def test_lg_42_small_segments_become_one() -> None:
    disk, log = fresh()
    for number in range(40):
        put(log, f"k{number % 4}", "x" * 50)
        log.roll()
    commit_all(log)
    cleaning = clean(log, disk)
    assert cleaning is not None and (cleaning.segments_before, cleaning.segments_after) == (40, 1)
    assert log.segment_base_offsets == (0, 40)
    config = LogConfig(cleanup_policy=("compact",), segment_bytes=600)
    log.update_config(config)
    for number in range(40):
        put(log, f"j{number}", "x" * 50)
    commit_all(log)
    clean(log, disk)
    assert all(segment.size <= 600 for segment in log.segments)


def test_lg_42_a_pass_that_finds_nothing_to_remove_leaves_the_files_alone() -> None:
    disk, log = fresh()
    for number in range(5):
        put(log, f"k{number}", "v")
    log.roll()
    commit_all(log)
    segment = log.segments[0]
    clean(log, disk)
    assert log.segments[0] is segment and not log.deleted
    assert not [name for name in disk.listdir(DIR) if "cleaned" in name]


# --- LG-43 --------------------------------------------------------------------------------------------------------------


def test_lg_43_a_log_is_due_when_enough_of_it_is_dirty() -> None:
    _, log = filled(4)
    log.clean_offset = 2
    found = look(log, NOW)
    assert (found.first_dirty, found.up_to, found.dirty_ratio, found.due) == (2, 4, 0.5, False), (
        "more than the ratio, not as much"
    )
    log.clean_offset = 1
    assert look(log, NOW).due
    log.clean_offset = 4
    assert not look(log, NOW).due


def test_lg_43_a_log_is_due_when_it_has_been_dirty_for_too_long() -> None:
    config = LogConfig(cleanup_policy=("compact",), max_compaction_lag_ms=1_000)
    _, log = filled(4, config, age_ms=1_000)
    log.clean_offset = 3
    assert not look(log, NOW).due
    assert look(log, NOW + 1).due
    log.clean_offset = 4
    assert not look(log, NOW + DAY).due, "there is nothing to do"


def test_lg_43_the_active_segment_is_rolled_so_that_it_can_be_compacted_in_time() -> None:
    _, log = fresh(LogConfig(cleanup_policy=("compact",), max_compaction_lag_ms=1_000))
    put(log, "k", "v")
    assert not log.maybe_roll(NOW + 1_000) and log.maybe_roll(NOW + 1_001)


@pytest.mark.parametrize("progress", [-3, 1, 100])
def test_lg_43_progress_that_the_log_contradicts_is_forgotten(progress: int) -> None:
    _, log = filled(6)
    log.increment_log_start(2, "test")
    log.clean_offset = progress
    assert look(log, NOW).first_dirty == 2


def test_lg_43_truncation_takes_the_progress_back() -> None:
    disk, log = filled(6)
    clean(log, disk)
    assert log.clean_offset == 6
    put(log, "k", "more")
    log.truncate_to(6)
    assert log.clean_offset == 6
    log.truncate_to(3, allow_below_hw=True)
    assert log.clean_offset is not None and log.clean_offset <= log.leo
    log.truncate_fully_and_start_at(50)
    assert log.clean_offset == 50


def test_lg_43_a_full_map_ends_the_pass_and_the_next_one_goes_on() -> None:
    disk, log = fresh()
    for number in range(60):
        put(log, f"key-{number % 30:03}", f"v{number}")
        if number % 10 == 9:
            log.roll()
    commit_all(log)
    expected = {key: value for _, key, value in keyed(log)}
    reached = []
    for _ in range(10):
        if clean(log, disk, map_bytes=130 * 8) is None:
            break
        reached.append(log.clean_offset)
        assert {key: value for _, key, value in keyed(log)} == expected
    assert reached[0] == 8 and reached == sorted(set(reached)) and reached[-1] == 60
    log.clean_offset = None
    clean(log, disk)
    assert {key: value for _, key, value in keyed(log)} == expected and len(keyed(log)) == 30


def test_lg_43_a_batch_that_the_map_cannot_hold_is_an_error_of_this_log() -> None:
    disk, log = fresh()
    records = [Record(f"k{n}".encode(), b"v") for n in range(50)]
    log.append_as_leader(
        bytearray(build_batch(records, timestamp_ms=NOW)), leader_epoch=0, wall_ms=NOW, origin=AppendOrigin.CLIENT
    )
    log.roll()
    commit_all(log)
    with pytest.raises(ApiError, match=r"dedupe\.buffer\.size") as caught:
        clean(log, disk, map_bytes=130 * 8)
    assert caught.value.code is ErrorCode.INVALID_RECORD


# --- LG-44, LG-45 -------------------------------------------------------------------------------------------------------


def rolled(log: Log) -> None:
    """Something new in a segment of its own, so that the next pass has something to do and the last batch is another."""
    put(log, "filler", "x")
    log.roll()
    commit_all(log)


def test_lg_44_a_tombstone_stays_until_its_time_is_over_and_then_vanishes() -> None:
    config = LogConfig(cleanup_policy=("compact",), delete_retention_ms=DAY)
    disk, log = fresh(config)
    put(log, "k", "value")
    put(log, "k", None)
    rolled(log)
    clean(log, disk)
    assert [(row[0], row[2]) for row in keyed(log) if row[1] == b"k"] == [(1, None)]
    (tombstone,) = [header for header in headers(log) if header.base_offset == 1]
    assert tombstone.has_delete_horizon and tombstone.base_timestamp == NOW + DAY and tombstone.max_timestamp == NOW
    assert log.offset_for_timestamp(NOW, up_to=log.leo).offset == 1  # type: ignore[union-attr]
    rolled(log)
    clean(log, disk, wall_ms=NOW + DAY - 1)
    assert [row[0] for row in keyed(log) if row[1] == b"k"] == [1], "the horizon is that of the first pass"
    rolled(log)
    clean(log, disk, wall_ms=NOW + DAY)
    assert not [row for row in keyed(log) if row[1] == b"k"]


def test_lg_44_a_newer_value_ends_a_tombstone_at_once() -> None:
    disk, log = fresh()
    put(log, "k", None)
    put(log, "k", "again")
    rolled(log)
    clean(log, disk)
    assert [(row[0], row[2]) for row in keyed(log) if row[1] == b"k"] == [(1, b"again")]


def transaction(log: Log, pid: int, *rows: tuple[str, str], commit: bool, seq: int = 0) -> None:
    for number, (key, value) in enumerate(rows):
        put(log, key, value, producer_id=pid, transactional=True, base_sequence=seq + number)
    end_txn(log, pid, commit=commit)


def test_lg_45_tp_40_records_of_aborted_transactions_go_and_do_not_hide_older_ones() -> None:
    disk, log = fresh()
    put(log, "k", "good")
    transaction(log, 5, ("k", "bad"), ("j", "bad"), commit=False)
    transaction(log, 6, ("i", "fine"), commit=True)
    rolled(log)
    assert log.aborted_transactions(0, log.leo) == ((5, 1),)
    clean(log, disk)
    assert [(row[1], row[2]) for row in keyed(log)] == [(b"k", b"good"), (b"i", b"fine"), (b"filler", b"x")]
    assert log.aborted_transactions(0, log.leo) == ((5, 1),), "its last batch is still there, if only for its sequence"
    log.close()
    again = open_log(disk, COMPACT, clean=True, recovery_point=log.leo)
    assert again.aborted_transactions(0, again.leo) == ((5, 1),)


def test_lg_44_tp_40_markers_go_when_their_transaction_is_gone_and_their_time_is_over() -> None:
    config = LogConfig(cleanup_policy=("compact",), delete_retention_ms=DAY, producer_id_expiration_ms=1)
    disk, log = fresh(config)
    transaction(log, 5, ("k", "bad"), commit=False)
    transaction(log, 6, ("k", "old"), commit=True)
    put(log, "k", "newest")
    rolled(log)
    log.remove_expired_producers(NOW + 10)
    clean(log, disk)
    assert markers(log) == [(1, False), (3, True)], "a batch of each was met in this pass"
    assert not [header for header in headers(log) if header.is_control and header.has_delete_horizon]
    rolled(log)
    clean(log, disk)
    horizons = [header.base_timestamp for header in headers(log) if header.is_control]
    assert horizons == [NOW + DAY, NOW + DAY], "now nothing is left of them: their time begins"
    assert not log.aborted_transactions(0, log.leo)
    rolled(log)
    clean(log, disk, wall_ms=NOW + DAY - 1)
    assert len(markers(log)) == 2
    rolled(log)
    clean(log, disk, wall_ms=NOW + DAY)
    assert markers(log) == []


def test_lg_44_a_marker_whose_data_is_left_stays() -> None:
    disk, log = fresh(LogConfig(cleanup_policy=("compact",), delete_retention_ms=0))
    transaction(log, 6, ("k", "value"), commit=True)
    for _ in range(3):
        rolled(log)
        clean(log, disk, wall_ms=NOW + DAY)
    assert markers(log) == [(1, True)] and next(row[0] for row in keyed(log)) == 0


@pytest.mark.parametrize("crash", [False, True])
def test_lg_45_a_resend_is_still_known_after_its_record_was_compacted_away(crash: bool) -> None:
    disk, log = fresh()
    put(log, "k", "mine", producer_id=5, base_sequence=0)
    put(log, "k", "mine again", producer_id=5, base_sequence=1)
    put(log, "k", "of another")
    rolled(log)
    clean(log, disk)
    assert [row[2] for row in keyed(log)] == [b"of another", b"x"]
    kept = [(header.base_offset, header.base_sequence, header.count) for header in headers(log) if header.producer_id == 5]
    assert kept == [(1, 1, 0)], "its last batch, empty"
    for name in disk.listdir(DIR):
        if name.endswith(".snapshot"):
            disk.unlink(f"{DIR}/{name}")  # all that is known of the producer is in the log
    log.flush_sync()
    if crash:
        disk.crash()
    again = open_log(disk, COMPACT, recovery_point=log.recovery_point if not crash else 0)
    made = bytearray(
        build_batch([Record(b"k", b"mine again")], timestamp_ms=NOW, producer_id=5, producer_epoch=0, base_sequence=1)
    )
    info = again.append_as_leader(made, leader_epoch=0, wall_ms=NOW, origin=AppendOrigin.CLIENT)
    assert info.duplicate and info.base_offset == 1
    assert put(again, "k", "next", producer_id=5, base_sequence=2) == log.leo


def test_lg_45_a_segment_still_ends_where_the_next_one_begins() -> None:
    config = LogConfig(cleanup_policy=("compact",), segment_bytes=300)
    disk, log = fresh(config)
    for number in range(40):
        put(log, "k", f"{number}" * 10)
    commit_all(log)
    clean(log, disk)
    bases = log.segment_base_offsets
    for segment, following in zip(log.segments, bases[1:], strict=False):
        last = segment.last_header()
        assert last is not None and last.next_offset == following
    assert len(keyed(log)) < 10


def test_lg_51_the_largest_timestamp_is_that_of_a_record_that_is_left() -> None:
    disk, log = fresh()
    put(log, "k", "late", timestamp_ms=NOW + 50, producer_id=3)
    put(log, "k", "newer", timestamp_ms=NOW)
    rolled(log)
    clean(log, disk)
    assert next(header.count for header in headers(log)) == 0, "the batch with the largest timestamp is empty"
    found = log.offset_of_max_timestamp()
    assert found is not None and (found.timestamp, found.offset) == (NOW, 1)
