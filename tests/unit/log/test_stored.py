"""Records that stay in their file until they are read."""

from __future__ import annotations

import random
from uuid import UUID

import pytest

from kraftlite.log.batch import Record, build_batch, iter_records
from kraftlite.log.config import LogConfig
from kraftlite.log.log import AppendOrigin, Log, OpenLog
from kraftlite.log.stored import RecordsGone, StoredRecords
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.simhost.disk import MemDisk
from tests.harness.cleaning import clean
from tests.harness.log_support import open_log
from tests.harness.wire_fakes import batch

NOW_MS = 2_000_000_000_000


def a_log(batches: int) -> Log:
    disk = MemDisk()
    disk.makedirs("/data/t-0")
    log = Log(OpenLog(
        disk=disk, directory="/data/t-0", tp=TopicPartition("t", 0), topic_id=UUID(int=1), config=LogConfig(), wall_ms=NOW_MS,
        entropy=random.Random(1),
    ))  # fmt: skip
    for at in range(batches):
        log.append_as_leader(
            memoryview(bytearray(batch(bytes([at]) * 1_000))), leader_epoch=0, origin=AppendOrigin.CLIENT, wall_ms=NOW_MS
        )
    log.update_hw(log.leo)
    return log


def stored(log: Log, offset: int, most: int = 1 << 20) -> StoredRecords:
    found = log.find(offset, most, up_to=log.leo)
    assert found is not None
    return found.segment.stored(found.extent)


def test_they_are_what_a_read_returns_in_any_slices() -> None:
    log = a_log(5)
    records = stored(log, 1)
    whole = log.read(1, 1 << 20, up_to=log.leo)
    assert bytes(records) == whole and len(records) == len(whole)
    assert b"".join(records.read(at, min(700, len(records) - at)) for at in range(0, len(records), 700)) == whole


def test_they_outlive_their_segment() -> None:
    log = a_log(5)
    whole = log.read(0, 1 << 20, up_to=log.leo)
    records = stored(log, 0)
    log.truncate_fully_and_start_at(100)
    assert bytes(records) == whole


def test_what_was_truncated_is_not_read_even_when_other_records_stand_there() -> None:
    log = a_log(5)
    below, beyond = stored(log, 0, 2_500), stored(log, 0)
    assert len(below) < len(beyond)
    log.truncate_to(4, allow_below_hw=True)
    log.append_as_leader(memoryview(bytearray(batch(b"z" * 1_000))), leader_epoch=1, origin=AppendOrigin.CLIENT, wall_ms=NOW_MS)
    assert bytes(below)
    with pytest.raises(RecordsGone, match="truncated"):
        bytes(beyond)
    assert bytes(stored(log, 0))


def test_an_io_error_is_told() -> None:
    log = a_log(2)
    found = log.find(0, 1 << 20, up_to=log.leo)
    assert found is not None
    told: list[OSError] = []
    records = found.segment.stored(found.extent, told.append)

    def broken(length: int, offset: int) -> bytes:
        raise OSError(5, "I/O error")

    records._file.file.pread = broken  # type: ignore[method-assign]
    with pytest.raises(OSError, match="I/O"):
        bytes(records)
    assert len(told) == 1


def test_those_of_a_compacted_segment_are_there_before_its_file_was_opened_again() -> None:
    disk = MemDisk()
    log = open_log(disk, LogConfig(cleanup_policy=("compact",)))
    for value in (b"first", b"second"):
        made = build_batch([Record(b"k", value)], timestamp_ms=NOW_MS)
        log.append_as_leader(bytearray(made), leader_epoch=0, origin=AppendOrigin.CLIENT, wall_ms=NOW_MS)
    log.roll()
    log.update_hw(log.leo)
    clean(log, disk)
    records = stored(log, 0)
    assert [it.value for it in iter_records(bytes(records))] == [b"second"]
