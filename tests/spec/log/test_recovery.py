"""LG-26 to LG-35: starting, truncating, failing disks."""

from __future__ import annotations

import asyncio
import errno
import struct

import pytest

from kraftlite.log.batch import iter_headers
from kraftlite.log.config import LogConfig
from kraftlite.log.log import Log
from kraftlite.model.errors import Fault
from kraftlite.runtime.trace import ListTracer
from kraftlite.runtime.trace.log import LogRecovered, SegmentSetAside
from tests.harness.disk import MemDisk
from tests.harness.log_support import DIR, append, batch, everything, open_log, values

SMALL = LogConfig(segment_bytes=400, index_interval_bytes=100)


def filled(disk: MemDisk, count: int = 12, config: LogConfig = SMALL) -> Log:
    log = open_log(disk, config)
    for number in range(count):
        append(log, "x" * 60, f"v{number}", epoch=number // 4, pid=1, seq=2 * number)
    return log


def log_path(base: int) -> str:
    return f"{DIR}/{base:020d}.log"


def recovered(tracer: ListTracer) -> LogRecovered:
    return next(event for event in tracer.events if isinstance(event, LogRecovered))


@pytest.mark.parametrize("damage", ["garbage", "half a batch", "magic", "length", "offset", "flipped byte"])
def test_lg_26_truncates_at_the_first_bad_byte_and_deletes_later_segments(damage: str) -> None:
    disk = MemDisk()
    log = filled(disk)
    bases = log.segment_base_offsets
    good = everything(log)
    victim = bases[2]
    size = disk.stat(log_path(victim)).size  # type: ignore[union-attr]
    one = len(batch("x" * 60, "v4", pid=1))
    patches = {
        "garbage": (size, b"\x07" * 30),
        "half a batch": (size, batch("y" * 60, base_offset=bases[3])[:-9]),
        "magic": (one + 16, b"\x01"),
        "length": (one + 8, b"\xff\xff\xff\xf0"),
        "offset": (one, bytes(8)),
        "flipped byte": (one + 90, b"\x00"),
    }
    offset, data = patches[damage]
    disk.overwrite(log_path(victim), offset, bytes(data))
    tracer = ListTracer()
    again = open_log(disk, SMALL, tracer=tracer)
    kept = victim + (2 if offset < size else bases[3] - victim)
    assert again.leo == kept and again.segment_base_offsets == bases[:3]
    assert good.startswith(everything(again)) and recovered(tracer).reason is not None
    assert [path for path in disk.tree(DIR) if path.endswith(".log")] == [log_path(base) for base in bases[:3]]
    # epochs and producers are those of what is left, and appending goes on
    assert again.epoch_entries == tuple((e, s) for e, s in log.epoch_entries if s < kept)
    assert again.active_producers()[0].last_sequence == kept - 1
    append(again, "next", epoch=9, pid=1, seq=kept)
    assert values(again)[-1] == (kept, b"next")
    for base in range(kept):
        assert again.read(base, 1, up_to=kept)


def test_lg_26_segments_below_the_recovery_point_are_not_checked() -> None:
    disk = MemDisk()
    log = filled(disk)
    bases = log.segment_base_offsets
    disk.overwrite(log_path(bases[0]), 100, b"\x00\x00")
    tracer = ListTracer()
    again = open_log(disk, SMALL, recovery_point=bases[-1] + 1, tracer=tracer)
    assert again.leo == log.leo and again.segment_base_offsets == bases
    assert recovered(tracer).checked_bytes == disk.stat(log_path(bases[-1])).size  # type: ignore[union-attr]


def test_lg_26_a_stale_tail_of_an_older_epoch_ends_the_log() -> None:
    disk = MemDisk()
    log = open_log(disk)
    append(log, "new", epoch=6)
    size = log.size_bytes
    log.close()
    disk.overwrite(log_path(0), size, bytes(batch("old", base_offset=1, epoch=5)))
    assert open_log(disk).leo == 1


@pytest.mark.parametrize(
    ("at", "bit", "why"),
    [(0, 5, "offset"), (3, 0, "offset"), (7, 4, "offset"), (15, 2, "leader epoch"), (12, 5, "leader epoch")],
)
def test_lg_26_what_no_checksum_covers_is_checked_by_what_surrounds_it(at: int, bit: int, why: str) -> None:
    """A batch's CRC begins behind its base offset and leader epoch: a hole or a future epoch ends the log all the same."""
    disk = MemDisk()
    log = open_log(disk)
    for number in range(4):
        append(log, f"v{number}", epoch=3)
    path = f"{DIR}/{0:020d}.log"
    data = disk.read_file(path)
    start = 2 * (len(data) // 4)
    disk.overwrite(path, start + at, bytes([data[start + at] ^ 1 << bit]))
    disk.kill()
    tracer = ListTracer()
    again = open_log(disk, tracer=tracer, max_epoch=3)
    assert again.leo == 2
    assert why in (recovered(tracer).reason or "")


@pytest.mark.parametrize("policy", ["compact", "delete"])
def test_lg_26_a_log_ends_where_a_power_cut_left_an_empty_segment(policy: str) -> None:
    """Its name was durable, and so was that of the next one; the records were not. A hole of compaction looks otherwise."""
    config = LogConfig(segment_bytes=400, index_interval_bytes=100, cleanup_policy=(policy,))
    disk = MemDisk()
    log = filled(disk, config=config)
    bases = log.segment_base_offsets
    for base in bases[2:]:
        disk.write_file_atomically(log_path(base), b"")
    again = open_log(disk, config)
    assert again.leo == bases[2] and again.segment_base_offsets == bases[:3]
    again.check()


@pytest.mark.parametrize("empty", [1, 2])
def test_lg_26_a_compacted_log_ends_at_the_base_of_an_empty_segment_behind_a_hole(empty: int) -> None:
    """The last records of the segment before were removed by compaction; offsets below the base were given once."""
    config = LogConfig(segment_bytes=400, index_interval_bytes=100, cleanup_policy=("compact",))
    disk = MemDisk()
    bases = filled(disk, config=config).segment_base_offsets
    disk.unlink(log_path(bases[2]))
    for base in bases[3 : 3 + empty]:
        disk.write_file_atomically(log_path(base), b"")
    for base in bases[3 + empty :]:
        disk.unlink(log_path(base))
    again = open_log(disk, config)
    assert again.leo == bases[3] and again.segment_base_offsets == (*bases[:2], bases[3])
    again.check()


def test_lg_26_a_compacted_log_may_have_holes() -> None:
    disk = MemDisk()
    config = LogConfig(cleanup_policy=("compact",))
    log = open_log(disk, config)
    for base in (0, 5, 9):
        log.append_as_follower(bytearray(batch("v", base_offset=base, epoch=1)))
    disk.kill()
    assert open_log(disk, config).leo == 10


def test_lg_27_a_clean_start_reads_no_batches() -> None:
    disk = MemDisk()
    log = filled(disk, 40)
    log.close()
    bases = log.segment_base_offsets
    for base in bases[:-1]:
        disk.overwrite(log_path(base), 70, b"\xff" * 20)
    again = open_log(disk, SMALL, clean=True)
    assert again.leo == log.leo and again.segment_base_offsets == bases and again.recovery_point == again.leo
    assert again.epoch_entries == log.epoch_entries and again.active_producers() == log.active_producers()


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("damage", ["missing", "empty", "odd size", "decreasing"])
def test_lg_28_bad_indexes_are_rebuilt(clean: bool, damage: str) -> None:
    disk, config = MemDisk(), LogConfig(segment_bytes=2000, index_interval_bytes=100)
    log = filled(disk, 40, config)
    log.close()
    good = {path: disk.read_file(path) for path in disk.tree(DIR) if path.endswith("index")}
    for path, data in good.items():
        if damage == "missing":
            disk.unlink(path)
        else:
            bad = {"empty": b"", "odd size": data + b"\x00", "decreasing": data[12:24] + data[:12] + data}[damage]
            disk.write_file_atomically(path, bad)
    again = open_log(disk, config, clean=clean)
    assert everything(again) == everything(log)
    for ts in (0, 1 << 60):
        assert again.offset_for_timestamp(ts, up_to=again.leo) == log.offset_for_timestamp(ts, up_to=log.leo)
    again.close()
    assert {path: disk.read_file(path) for path in good} == good


def test_lg_28_index_without_log_is_deleted() -> None:
    disk = MemDisk()
    log = filled(disk)
    log.close()
    for suffix in ("index", "timeindex", "txnindex"):
        disk.write_file_atomically(f"{DIR}/{999:020d}.{suffix}", b"junk")
    open_log(disk, SMALL, clean=True)
    assert not [path for path in disk.tree(DIR) if "999" in path]


def test_lg_29_leftovers() -> None:
    disk = MemDisk()
    log = filled(disk)
    log.close()
    bases = log.segment_base_offsets
    before = everything(log)
    second = disk.read_file(log_path(bases[1]))
    disk.write_file_atomically(f"{log_path(bases[0])}.deleted", b"x")
    disk.write_file_atomically(f"{log_path(bases[3])}.cleaned", b"x")
    # complete: replaces segment 1 (the same bytes here); behind a `.cleaned` one: dropped
    disk.write_file_atomically(f"{log_path(bases[1])}.swap", second)
    disk.write_file_atomically(f"{log_path(bases[3])}.swap", b"not a segment")
    disk.overwrite(log_path(bases[1]), 0, bytes(len(second)))
    again = open_log(disk, SMALL, clean=True)
    assert everything(again) == before
    assert not [path for path in disk.tree(DIR) if path.endswith((".deleted", ".cleaned", ".swap"))]


def test_lg_29_a_swap_replaces_all_segments_that_it_covers() -> None:
    disk = MemDisk()
    log = filled(disk)
    log.close()
    bases = log.segment_base_offsets
    before = everything(log)
    merged = disk.read_file(log_path(bases[1])) + disk.read_file(log_path(bases[2]))
    disk.write_file_atomically(f"{log_path(bases[1])}.swap", merged)
    again = open_log(disk, SMALL, clean=True)
    assert again.segment_base_offsets == bases[:2] + bases[3:] and everything(again) == before


@pytest.mark.parametrize("damage", ["length", "offset delta", "last offset", "content", "torn", "empty"])
def test_lg_29_a_damaged_swap_removes_nothing(damage: str) -> None:
    disk = MemDisk()
    log = filled(disk)
    log.close()
    bases = log.segment_base_offsets
    before = everything(log)
    swap = bytearray(disk.read_file(log_path(bases[1])) + disk.read_file(log_path(bases[2])))
    last = [position for position, _ in iter_headers(swap)][-1]
    match damage:
        case "length":
            struct.pack_into(">i", swap, 8, 7)
        case "offset delta":
            struct.pack_into(">i", swap, last + 23, 500)
        case "last offset":
            struct.pack_into(">q", swap, last, bases[4] + 1)
        case "content":
            swap[len(swap) // 2] ^= 1
        case "torn":
            del swap[-10:]
        case "empty":
            swap.clear()
    disk.write_file_atomically(f"{log_path(bases[1])}.swap", bytes(swap))
    disk.write_file_atomically(f"{log_path(bases[1])[:-4]}.index.swap", b"x")
    tracer = ListTracer()
    again = open_log(disk, SMALL, clean=True, tracer=tracer)
    assert again.segment_base_offsets == bases and everything(again) == before
    assert not [path for path in disk.tree(DIR) if path.endswith(".swap")]
    (told,) = [event for event in tracer.events if isinstance(event, SegmentSetAside)]
    assert told.file.endswith(".swap.1-damaged") and disk.read_file(told.file) == bytes(swap) and told.size_bytes == len(swap)


def test_lg_30_a_log_that_ends_below_its_start_restarts_empty_there() -> None:
    disk = MemDisk()
    filled(disk).close()
    again = open_log(disk, SMALL, log_start_offset=500, recovery_point=500)
    assert (again.log_start_offset, again.leo, again.segment_base_offsets) == (500, 500, (500,))
    assert again.epoch_entries == () and again.active_producers() == ()
    append(again, "a", epoch=9)
    assert values(again) == [(500, b"a")]


def test_lg_30_log_start_is_the_larger_of_checkpoint_and_first_segment() -> None:
    disk = MemDisk()
    log = filled(disk)
    log.update_hw(log.leo)
    log.delete_segments_before(log.segment_base_offsets[2])
    first = log.segment_base_offsets[0]
    log.close()
    assert open_log(disk, SMALL, clean=True, log_start_offset=0).log_start_offset == first
    assert open_log(disk, SMALL, clean=True, log_start_offset=first + 1).log_start_offset == first + 1


def test_lg_31_truncation_below_the_recovery_point_tells_the_owner_before_it_returns() -> None:
    log = filled(MemDisk())
    log.flush_sync()
    told: list[int] = []
    log.on_recovery_point_lowered = lambda lowered: told.append(lowered.recovery_point)
    log.truncate_to(10)
    assert told == [10] and log.recovery_point == 10
    append(log, "b", epoch=3)
    log.truncate_to(10)
    assert told == [10], "what was not durable does not matter"


def test_lg_34_disk_errors_surface_as_oserror_and_change_nothing() -> None:
    disk = MemDisk()
    log = open_log(disk)
    append(log, "a")
    disk.inject("pwritev", path=".log", code=errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        append(log, "b")
    assert log.leo == 1 and values(log) == [(0, b"a")]
    append(log, "c")
    assert values(log) == [(0, b"a"), (1, b"c")]
    disk.inject("sync")
    with pytest.raises(OSError, match="error"):
        log.flush_sync()
    assert log.recovery_point == 0


@pytest.mark.parametrize("clean", [True, False])
def test_lg_35_truncation_takes_batches_whole_and_everything_follows(clean: bool) -> None:
    for target in range(24):
        disk = MemDisk()
        log = filled(disk)
        whole, entries = values(log), log.epoch_entries
        assert log.truncate_to(target)
        leo = target // 2 * 2
        assert log.leo == leo and values(log) == whole[:leo]
        assert log.epoch_entries == tuple(entry for entry in entries if entry[1] < leo)
        assert [producer.last_sequence for producer in log.active_producers()] == ([leo - 1] if leo else [])
        assert all(base <= leo for base in log.segment_base_offsets)
        append(log, "again", epoch=7, pid=1, seq=leo)
        log.close()
        again = open_log(disk, SMALL, clean=clean)
        assert values(again) == [*whole[:leo], (leo, b"again")] and again.active_producers() == log.active_producers()


def test_lg_35_truncate_fully_resets_everything() -> None:
    disk = MemDisk()
    log = filled(disk)
    log.update_hw(10)
    log.truncate_fully_and_start_at(77)
    assert (log.log_start_offset, log.hw, log.leo, log.recovery_point) == (77, 77, 77, 77)
    assert log.epoch_entries == () and log.active_producers() == () and log.segment_base_offsets == (77,)
    disk.crash()
    again = open_log(disk, SMALL, recovery_point=77, log_start_offset=77)
    assert (again.log_start_offset, again.leo) == (77, 77)


def test_rp_32_below_the_hw_only_when_told() -> None:
    log = filled(MemDisk())
    log.update_hw(12)
    with pytest.raises(Fault, match="committed"):
        log.truncate_to(10)
    assert log.leo == 24
    assert log.truncate_to(10, allow_below_hw=True) and log.hw == log.leo == 10
    assert not log.truncate_to(10) and not log.truncate_to(99)


def test_truncation_survives_a_clean_shutdown_and_a_power_cut() -> None:
    disk = MemDisk()
    log = filled(disk)
    log.flush_sync()
    log.truncate_to(5)
    log.close()
    disk.crash()
    assert open_log(disk, SMALL, clean=True).leo == 4


async def test_flush_counts_only_what_was_there_and_tolerates_what_happens_meanwhile() -> None:
    disk = MemDisk()
    log = open_log(disk, SMALL)
    for _ in range(3):
        append(log, "x" * 60)
    disk.flush_gate = asyncio.Event()
    flushing = asyncio.ensure_future(log.flush())
    await asyncio.sleep(0)
    for _ in range(12):
        append(log, "y" * 60)
    assert len(log.segments) > 2 and log.recovery_point == 0
    disk.flush_gate.set()
    assert await flushing == 3 and log.recovery_point == 3
    assert await log.flush(up_to=log.active_base_offset) == log.active_base_offset
    assert await log.flush() == log.leo


@pytest.mark.parametrize("restart", [False, True])
async def test_flush_does_not_count_what_was_truncated_meanwhile(restart: bool) -> None:
    disk = MemDisk()
    log = filled(disk)
    disk.flush_gate = asyncio.Event()
    flushing = asyncio.ensure_future(log.flush())
    await asyncio.sleep(0)
    if restart:
        log.truncate_fully_and_start_at(3)
    else:
        log.truncate_to(4)
    append(log, "other", epoch=8)
    disk.flush_gate.set()
    assert await flushing == log.recovery_point == (3 if restart else 4)
    assert await log.flush() == log.leo


async def test_flush_survives_deletion_of_a_segment_under_it() -> None:
    disk = MemDisk()
    log = filled(disk)
    log.update_hw(log.leo)
    disk.flush_gate = asyncio.Event()
    flushing = asyncio.ensure_future(log.flush())
    await asyncio.sleep(0)
    assert log.delete_segments_before(log.active_base_offset) > 2
    log.deleted.purge(0, force=True)
    disk.flush_gate.set()
    assert await flushing == log.leo


def test_rp_31_an_epoch_begins_where_it_began_though_compaction_removed_its_first_batches() -> None:
    """A follower that has other records there must be told where its epoch ended. Nothing is told of an epoch that is gone."""
    disk = MemDisk()
    config = LogConfig(cleanup_policy=("compact",))
    log = open_log(disk, config)
    log.append_as_follower(bytearray(batch("v", base_offset=0, epoch=0)))
    for epoch, start in ((1, 1), (3, 6), (5, 30)):
        log.assign_epoch_start(epoch, start)
        log.append_as_follower(bytearray(batch("v", base_offset=start + 2, epoch=epoch)))
    disk.kill()
    again = open_log(disk, config)
    assert again.epoch_entries == ((0, 0), (1, 1), (3, 6), (5, 30))
