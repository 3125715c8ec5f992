"""LG-38, LG-41, LG-49 to LG-52: reading, and deleting while reading."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from kraftlite.log import codecs
from kraftlite.log.batch import iter_batches, iter_headers, parse_header
from kraftlite.log.config import LogConfig
from kraftlite.log.log import Log
from kraftlite.log.seek import SEEK_IN_PLACE, Seeker, TimestampOffset, Unfinished
from kraftlite.model.errors import ApiError, ErrorCode
from tests.harness.disk import MemDisk
from tests.harness.log_support import DIR, NOW, append, batch, open_log, values

SMALL = LogConfig(segment_bytes=500, index_interval_bytes=100)


def offsets(data: bytes) -> list[tuple[int, int]]:
    return [(header.base_offset, header.next_offset) for header, _ in iter_batches(data)]


def filled(config: LogConfig = SMALL, *, reopen: bool = False) -> Log:
    """30 batches of 2 records; with `reopen` a log that knows its positions only from the indexes."""
    disk = MemDisk()
    log = open_log(disk, config)
    for number in range(30):
        append(log, "x" * (number % 7 * 10), "y", ts=NOW + number)
    if reopen:
        log.close()
        log = open_log(disk, config, clean=True)
    log.update_hw(log.leo)
    return log


def test_lg_38_deleted_files_are_renamed_now_and_unlinked_later() -> None:
    disk = MemDisk()
    log = open_log(disk, LogConfig(segment_bytes=300, file_delete_delay_ms=60_000))
    for _ in range(10):
        append(log, "x" * 60)
    log.update_hw(log.leo)
    before = log.read(0, 1 << 20, up_to=log.leo)
    assert log.delete_segments_before(log.segment_base_offsets[1] + 1) == 1
    assert before, "what was read stays"
    names = [path.rpartition("/")[2] for path in disk.tree(DIR)]
    assert f"{0:020d}.log.deleted" in names and f"{0:020d}.log" not in names
    assert log.log_start_offset == log.segment_base_offsets[0] > 0
    assert log.deleted.purge(1000) == 1 and log.deleted.purge(60_999) == 1
    assert log.deleted.purge(61_000) == 0
    assert not [path for path in disk.tree(DIR) if path.endswith(".deleted")]
    assert log.delete_segments_before(10**9) == len(log.segments) or len(log.segments) == 1, "never the active one"


@pytest.mark.parametrize("reopen", [False, True])
def test_lg_41_out_of_range_and_at_the_end(reopen: bool) -> None:
    log = filled(reopen=reopen)
    log.increment_log_start(5, "asked")
    for offset in (4, -1, 61):
        with pytest.raises(ApiError) as caught:
            log.read(offset, 1000, up_to=60)
        assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.read(60, 1000, up_to=60) == b"" == log.read(40, 1000, up_to=40)
    with pytest.raises(ApiError):
        log.increment_log_start(61, "beyond the HW")
    assert not log.increment_log_start(3, "back")


@pytest.mark.parametrize("reopen", [False, True])
def test_lg_49_an_offset_inside_a_batch_returns_the_whole_batch(reopen: bool) -> None:
    log = filled(reopen=reopen)
    for offset in range(60):
        assert offsets(log.read(offset, 1, up_to=60)) == [(offset // 2 * 2, offset // 2 * 2 + 2)]


@pytest.mark.parametrize("reopen", [False, True])
def test_lg_49_gaps_lead_to_the_next_batch_and_the_next_segment(reopen: bool) -> None:
    disk, config = MemDisk(), LogConfig(segment_bytes=300, cleanup_policy=("compact",))
    log = open_log(disk, config)
    starts = [0, 7, 8, 30, 31, 32, 90, 91]
    for start in starts:
        log.append_as_follower(batch("x" * 60, base_offset=start, epoch=0))
    assert len(log.segments) > 2
    if reopen:
        log.close()
        log = open_log(disk, config, clean=True)
    for offset in range(92):
        expected = min(start for start in starts if start >= offset)
        assert offsets(log.read(offset, 1, up_to=92))[0][0] == expected
    assert log.read(9, 1000, up_to=30) == b""


@pytest.mark.parametrize("reopen", [False, True])
def test_lg_50_max_bytes_and_at_least_one_batch(reopen: bool) -> None:
    log = filled(LogConfig(index_interval_bytes=100), reopen=reopen)
    rng = random.Random(1)
    ends = [0]
    for header, _ in iter_batches(log.read(0, 1 << 20, up_to=60)):
        ends.append(ends[-1] + header.size_bytes)
    for _ in range(300):
        first, limit, up_to = rng.randrange(30), rng.randrange(2500), rng.randrange(61)
        min_one = rng.random() < 0.5
        got = log.read(first * 2, limit, up_to=up_to, min_one=min_one)
        allowed = [last for last in range(first, up_to // 2 + 1) if ends[last] - ends[first] <= limit]
        last = max(allowed, default=first)
        if last == first and min_one and first * 2 + 2 <= up_to:
            last = first + 1
        assert len(got) == ends[last] - ends[first], (first, limit, up_to, min_one)
        assert [base for base, _ in offsets(got)] == list(range(first * 2, last * 2, 2))


@pytest.mark.parametrize("reopen", [False, True])
@pytest.mark.parametrize("append_time", [False, True])
def test_lg_51_offset_by_timestamp_with_times_out_of_order(reopen: bool, append_time: bool) -> None:
    rng = random.Random(7)
    config = LogConfig(
        segment_bytes=600, index_interval_bytes=100, message_timestamp_type="LogAppendTime" if append_time else "CreateTime"
    )
    disk = MemDisk()
    log = open_log(disk, config)
    times: list[int] = []
    for number in range(40):
        base, delta = rng.randrange(1000), rng.randrange(100)
        append(log, "a", "b", "c", ts=base, deltas=(0, delta, delta // 2), codec=number % 5, wall_ms=NOW + number)
        times += [NOW + number] * 3 if append_time else [base, base + delta, base + delta // 2]
    if reopen:
        log.close()
        log = open_log(disk, config, clean=True)
    log.update_hw(log.leo)
    for start in (0, 50):
        log.increment_log_start(start, "asked")
        for target in [0, *rng.sample(times, 30), max(times), max(times) + 1]:
            for up_to in (120, 61, 70):
                found = log.offset_for_timestamp(target, up_to=up_to)
                matching = [offset for offset in range(start, up_to) if times[offset] >= target]
                assert (found.offset if found else None) == (matching[0] if matching else None), (target, up_to)
                assert found is None or found == TimestampOffset(times[found.offset], found.offset, 0)
        highest = max(times[start:])
        assert log.offset_of_max_timestamp() == TimestampOffset(highest, times.index(highest, start), 0)


def test_lg_51_the_largest_timestamp_is_not_that_of_a_record_below_the_log_start() -> None:
    """Its batch is still there, because later records of it are."""
    log = open_log(MemDisk(), SMALL)
    append(log, "a", "b", "c", ts=NOW, deltas=(90, 5, 7))
    append(log, "d", ts=NOW + 6)
    log.update_hw(log.leo)
    log.increment_log_start(1, "asked")
    assert log.offset_of_max_timestamp() == TimestampOffset(NOW + 7, 2, 0)


def test_lg_51_nothing_to_find() -> None:
    log = open_log()
    assert log.offset_for_timestamp(0, up_to=0) is None and log.offset_of_max_timestamp() is None
    append(log, "a", ts=-1)
    assert log.offset_for_timestamp(0, up_to=1) is None


@pytest.mark.parametrize("codec", [0, codecs.GZIP])
def test_lg_51_of_records_without_a_timestamp_the_first_has_the_largest(codec: int) -> None:
    """As Kafka's UnifiedLog: -1 is a timestamp like others where nothing has a larger one."""
    log = open_log(MemDisk(), SMALL)
    for _ in range(12):
        append(log, "a", "b", "c", ts=-1, codec=codec)
    assert len(log.segment_base_offsets) > 1
    assert log.offset_of_max_timestamp() == TimestampOffset(-1, 0, 0)
    log.update_hw(log.leo)
    for start in (1, 4, 30):
        log.increment_log_start(start, "asked")
        assert log.offset_of_max_timestamp() == TimestampOffset(-1, start, 0)
    log.increment_log_start(36, "asked")
    assert log.offset_of_max_timestamp() is None
    append(log, "d", ts=0)
    assert log.offset_of_max_timestamp() == TimestampOffset(0, 36, 0)


def test_lg_52_reading_while_rolling_and_deleting_gives_growing_offsets() -> None:
    log = open_log(config=LogConfig(segment_bytes=400))
    rng = random.Random(3)
    position, seen = 0, []
    for number in range(400):
        append(log, f"{number}", "x" * rng.randrange(80))
        log.update_hw(log.leo)
        if rng.random() < 0.1:
            log.delete_segments_before(rng.randrange(log.log_start_offset, log.leo + 1))
            log.deleted.purge(number, force=True)
        if rng.random() < 0.4:
            position = max(position, log.log_start_offset)
            data = log.read(position, rng.randrange(1, 1000), up_to=log.hw)
            for header, _ in iter_batches(data):
                seen.append(header.base_offset)
                position = header.next_offset
    assert len(seen) > 50 and seen == sorted(set(seen))


def test_reads_near_the_end_use_exact_positions_and_survive_trimming_of_them() -> None:
    log = open_log()
    for number in range(10_000):
        append(log, str(number))
    for offset in (0, 1, 1807, 1808, 1809, 4096, 8191, 8192, 9999):
        data = log.read(offset, 200, up_to=10_000)
        assert parse_header(data).base_offset == offset and len(data) <= 200
    assert len(values(log)) == 10_000


@pytest.mark.parametrize("reopened", [False, True])
def test_lg_50_the_end_of_what_was_found_is_known_without_a_walk_over_its_batches(
    reopened: bool,
) -> None:
    """A fetch of a read_committed consumer asks for it, and may find a million batches."""
    disk, config = MemDisk(), LogConfig(index_interval_bytes=400)
    log = open_log(disk, config)
    for number in range(600):
        append(log, *["v"] * (number % 3 + 1), epoch=0)
    if reopened:
        log.close()
        log = open_log(disk, config, clean=True)
    for offset, size in ((0, 1 << 20), (7, 3_000), (500, 10_000), (log.leo - 1, 1 << 20), (0, 1)):
        found = log.find(offset, size, up_to=log.leo)
        assert found is not None
        *_, (_, last) = iter_headers(found.read())
        reads = 0
        file = found.segment.file
        pread = file.pread

        def counted(length: int, position: int, pread: Callable[[int, int], bytes] = pread) -> bytes:
            nonlocal reads
            reads += 1
            return pread(length, position)

        file.pread = counted  # type: ignore[method-assign]
        assert found.next_offset() == last.next_offset
        file.pread = pread  # type: ignore[method-assign]
        assert reads <= 4


def looked_up(look: Callable[[Seeker], TimestampOffset | None]) -> tuple[TimestampOffset | None, int]:
    """The outcome of a lookup that may do little at a time, and the number of its attempts."""
    seeker, attempts = Seeker(SEEK_IN_PLACE), 1
    while True:
        try:
            return look(seeker), attempts
        except Unfinished:
            assert not seeker.begun, "no batch here is large"
            seeker.renew()
            attempts += 1


@pytest.mark.parametrize("start", [0, 3])
def test_lg_51_a_long_walk_over_headers_gives_others_their_turn(start: int) -> None:
    """Where times do not grow the time index leads nowhere near, and behind a log start inside of a segment it says nothing."""
    log = open_log(config=LogConfig(index_interval_bytes=100))
    append(log, "v", ts=NOW + 5)
    for _ in range(1_000):
        append(log, "v", ts=NOW)
    append(log, "v", ts=NOW + 9)
    log.update_hw(log.leo)
    log.increment_log_start(start, "asked")
    found, attempts = looked_up(lambda seeker: log.offset_for_timestamp(NOW + 7, up_to=log.leo, seeker=seeker))
    assert found == log.offset_for_timestamp(NOW + 7, up_to=log.leo) == TimestampOffset(NOW + 9, 1_001, 0)
    assert attempts > 5
    found, attempts = looked_up(lambda seeker: log.offset_of_max_timestamp(seeker=seeker))
    assert found == log.offset_of_max_timestamp() == TimestampOffset(NOW + 9, 1_001, 0)
    assert (attempts > 5) is (start > 0)


def test_lg_51_a_walk_begins_anew_when_its_segment_was_cut() -> None:
    log = open_log(config=LogConfig(index_interval_bytes=100))
    append(log, "v", ts=NOW + 5)
    for _ in range(1_000):
        append(log, "v", ts=NOW)
    seeker = Seeker(SEEK_IN_PLACE)
    append(log, "v", ts=NOW + 9)
    for _ in range(3):
        with pytest.raises(Unfinished):
            log.offset_for_timestamp(NOW + 7, up_to=log.leo, seeker=seeker)
        seeker.renew()
    log.truncate_to(1)
    for _ in range(20):
        append(log, "longer than before", ts=NOW + 8)
    assert log.offset_for_timestamp(NOW + 7, up_to=log.leo, seeker=seeker) == TimestampOffset(NOW + 8, 1, 0)
