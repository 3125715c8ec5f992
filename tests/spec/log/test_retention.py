"""LG-36 to LG-39: which segments go, when, and what is left."""

from __future__ import annotations

import contextlib
import random

import pytest

from kraftlite.log.config import LogConfig
from kraftlite.log.log import Log
from kraftlite.log.retention import apply_retention
from kraftlite.runtime.trace import ListTracer
from kraftlite.runtime.trace.log import SegmentDeleted
from tests.harness.disk import MemDisk
from tests.harness.log_support import DIR, NOW, append, open_log, values

HOUR = 3_600_000


def filled(config: LogConfig, *, times: list[int] | None = None, disk: MemDisk | None = None, hw: int | None = None) -> Log:
    """One record a segment."""
    log = open_log(disk, config)
    for number, time in enumerate(times or [NOW] * 8):
        append(log, f"v{number}", ts=time)
        log.roll()
    log.update_hw(log.leo if hw is None else hw)
    return log


def test_lg_36_segments_older_than_retention_ms_go_oldest_first() -> None:
    log = filled(LogConfig(retention_ms=HOUR), times=[NOW - 3 * HOUR, NOW - 2 * HOUR, NOW - HOUR, NOW])
    assert apply_retention(log, NOW) == 2, "exactly retention.ms old is not yet too old"
    assert log.log_start_offset == 2 and [offset for offset, _ in values(log)] == [2, 3]
    assert log.log_start_offset in log.segment_base_offsets, "the start is where a segment starts"
    assert apply_retention(log, NOW) == 0
    assert apply_retention(log, NOW + 1) == 1


def test_lg_36_a_young_segment_protects_the_older_ones_behind_it() -> None:
    log = filled(LogConfig(retention_ms=HOUR), times=[NOW - 3 * HOUR, NOW, NOW - 3 * HOUR, NOW])
    assert apply_retention(log, NOW) == 1 and log.log_start_offset == 1


def test_lg_36_retention_bytes_keeps_at_least_that_much() -> None:
    one = filled(LogConfig(), times=[NOW]).size_bytes
    log = filled(LogConfig(retention_bytes=3 * one, retention_ms=-1))
    assert log.size_bytes == 8 * one
    assert apply_retention(log, NOW) == 5 and log.size_bytes == 3 * one
    log.update_config(LogConfig(retention_bytes=2 * one + 1, retention_ms=-1))
    assert apply_retention(log, NOW) == 0, "one segment less would be less than retention.bytes"
    log.update_config(LogConfig(retention_bytes=0, retention_ms=-1))
    assert apply_retention(log, NOW) == 3 and log.size_bytes == 0 and log.log_start_offset == log.leo == 8


def test_lg_36_nothing_beyond_the_high_watermark_goes() -> None:
    log = filled(LogConfig(retention_ms=HOUR), times=[NOW - 3 * HOUR] * 5, hw=3)
    assert apply_retention(log, NOW) == 3
    assert log.log_start_offset == log.hw == 3 and log.leo == 5
    log.update_hw(5)
    assert apply_retention(log, NOW) == 2 and log.log_start_offset == 5


def test_lg_36_a_segment_that_reaches_beyond_the_high_watermark_stays_whole() -> None:
    log = open_log(None, LogConfig(retention_ms=HOUR))
    append(log, "a", "b", ts=NOW - 3 * HOUR)
    append(log, "c", ts=NOW - 3 * HOUR)
    log.roll()
    log.update_hw(2)
    assert apply_retention(log, NOW) == 0
    log.update_hw(3)
    assert apply_retention(log, NOW) == 1


def test_lg_36_minus_one_keeps_everything() -> None:
    log = filled(LogConfig(retention_ms=-1, retention_bytes=-1), times=[1, 2, 3])
    assert apply_retention(log, NOW) == 0


def test_lg_37_an_expired_active_segment_is_rolled_first() -> None:
    log = open_log(None, LogConfig(retention_ms=HOUR))
    for number in range(4):
        append(log, f"v{number}", ts=NOW - 2 * HOUR)
    log.update_hw(4)
    assert apply_retention(log, NOW) == 1
    assert (log.log_start_offset, log.leo, log.hw, log.segment_base_offsets, log.size_bytes) == (4, 4, 4, (4,), 0)
    assert apply_retention(log, NOW) == 0, "an empty active segment stays"
    assert append(log, "next").base_offset == 4


def test_lg_37_an_active_segment_with_a_young_record_stays() -> None:
    log = open_log(None, LogConfig(retention_ms=HOUR))
    append(log, "old", ts=NOW - 2 * HOUR)
    append(log, "young", ts=NOW)
    log.update_hw(2)
    assert apply_retention(log, NOW) == 0 and len(log.segments) == 1


def test_lg_37_a_record_from_the_future_holds_its_segment() -> None:
    log = filled(LogConfig(retention_ms=HOUR, message_timestamp_after_max_ms=20 * HOUR), times=[NOW + 10 * HOUR, NOW - 5 * HOUR])
    assert apply_retention(log, NOW + 2 * HOUR) == 0
    assert apply_retention(log, NOW + 12 * HOUR) == 2


def test_lg_37_records_without_timestamps_are_as_old_as_their_file() -> None:
    clock = [NOW]
    disk = MemDisk(wall_ms=lambda: clock[0])
    log = filled(LogConfig(retention_ms=HOUR), times=[-1, -1], disk=disk)
    assert apply_retention(log, NOW + HOUR) == 0
    assert apply_retention(log, NOW + HOUR + 1) == 2


def test_lg_37_epochs_and_producers_survive_an_emptied_log() -> None:
    disk, config = MemDisk(), LogConfig(retention_ms=HOUR)
    log = open_log(disk, config)
    append(log, "a", ts=NOW - 2 * HOUR, epoch=3, pid=7, seq=0)
    append(log, "b", ts=NOW - 2 * HOUR, epoch=3, pid=7, seq=1)
    log.update_hw(2)
    apply_retention(log, NOW)
    assert log.latest_epoch == 3
    again = append(log, "b", ts=NOW - 2 * HOUR, epoch=3, pid=7, seq=1)
    assert again.duplicate and again.base_offset == 1
    log.close()
    log = open_log(disk, config, clean=True, recovery_point=2, log_start_offset=2)
    assert (log.log_start_offset, log.leo) == (2, 2)
    assert append(log, "c", epoch=3, pid=7, seq=2).base_offset == 2


def test_lg_38_files_are_renamed_now_and_unlinked_after_the_delay() -> None:
    disk = MemDisk()
    log = filled(LogConfig(retention_ms=HOUR, file_delete_delay_ms=1_000), times=[NOW - 3 * HOUR, NOW], disk=disk)
    reader = disk.open(log.segments[0].path)
    apply_retention(log, NOW)
    names = disk.listdir(DIR)
    assert f"{0:020d}.log.deleted" in names and f"{0:020d}.log" not in names
    assert reader.pread(100, 0), "who reads is not disturbed"
    log.deleted.stamp(5_000)
    assert log.deleted.next_ms == 6_000 and log.deleted.take(5_999) == []
    assert log.deleted.purge(6_000) == 0 and log.deleted.next_ms is None
    assert not [name for name in disk.listdir(DIR) if name.endswith(".deleted")]


@pytest.mark.parametrize("policy", ["delete", "compact", "compact,delete"])
def test_lg_39_what_lies_below_the_log_start_goes_under_any_policy(policy: str) -> None:
    config = LogConfig.from_map({"cleanup.policy": policy, "retention.ms": "-1"})
    log = filled(config)
    log.increment_log_start(3, "DeleteRecords")
    assert apply_retention(log, NOW) == 3 and log.segment_base_offsets[0] == 3
    log.increment_log_start(log.leo, "DeleteRecords")
    apply_retention(log, NOW)
    assert log.segment_base_offsets == (log.leo,) and log.log_start_offset == log.leo


@pytest.mark.parametrize(("policy", "gone"), [("delete", 2), ("compact", 0), ("compact,delete", 2)])
def test_lg_48_time_and_size_count_only_where_the_policy_deletes(policy: str, gone: int) -> None:
    config = LogConfig.from_map({"cleanup.policy": policy, "retention.ms": str(HOUR)})
    log = filled(config, times=[NOW - 3 * HOUR, NOW - 2 * HOUR, NOW])
    assert apply_retention(log, NOW) == gone


def test_lg_36_the_trace_says_what_went_and_why() -> None:
    tracer = ListTracer()
    log = open_log(None, LogConfig(retention_ms=HOUR, retention_bytes=0), tracer=tracer)
    for _ in range(3):
        append(log, "x", ts=NOW - 2 * HOUR)
        log.roll()
    log.update_hw(3)
    log.increment_log_start(1, "asked")
    apply_retention(log, NOW)
    told = [(event.base_offset, event.reason) for event in tracer.events if isinstance(event, SegmentDeleted)]
    assert told == [(0, "below the log start"), (1, "retention.bytes"), (2, "retention.bytes")]


def test_lg_26_after_any_power_cut_the_start_is_an_old_or_the_new_one() -> None:
    for kept in range(60):
        disk = MemDisk()
        log = filled(LogConfig(retention_ms=HOUR), times=[NOW - 3 * HOUR] * 4 + [NOW], disk=disk)
        log.flush_sync()
        disk.inject("rename", times=None, after=kept % 20)
        with contextlib.suppress(OSError):
            apply_retention(log, NOW)
        disk.heal()
        disk.crash(random.Random(kept))
        again = open_log(disk, LogConfig(retention_ms=HOUR), recovery_point=log.recovery_point)
        assert again.leo == 5
        assert [offset for offset, _ in values(again)] == list(range(again.log_start_offset, 5))
