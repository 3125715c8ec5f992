"""The only copy of the metadata: a torn end is a crash, anything else is told and not cut off."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from kraftlite.host.disk import HostDisk, HostFile
from kraftlite.log.batch import Record, build_batch
from kraftlite.model.errors import Fault
from kraftlite.model.limits import MIB
from kraftlite.raft.damage import check_only_copy
from kraftlite.raft.flush_mark import FILE_NAME, FlushMark, read_flush_mark
from tests.harness.disk import MemDisk

DIRECTORY = "/m"
FIRST = f"{DIRECTORY}/{0:020d}.log"


def batches(start: int, count: int) -> list[bytes]:
    return [
        build_batch([Record(key=None, value=b"v" * 50, offset_delta=0)], base_offset=start + n, leader_epoch=1, timestamp_ms=1)
        for n in range(count)
    ]


def disk_with(files: dict[str, bytes]) -> MemDisk:
    disk = MemDisk()
    disk.makedirs(DIRECTORY)
    for path, data in files.items():
        disk.write_file_atomically(path, data)
    return disk


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]


def test_rf_46_a_torn_end_is_what_a_crash_leaves() -> None:
    whole = b"".join(batches(0, 5))
    for data in (b"", whole, whole[:-7], whole + b"\0" * 300, whole + b"garbage" * 30, flipped(whole, len(whole) - 3)):
        check_only_copy(disk_with({FIRST: data}), DIRECTORY)
    check_only_copy(MemDisk(), DIRECTORY)


@pytest.mark.parametrize("at", [3, 10, 16, 18, 70, 150])
def test_rf_46_a_bad_spot_before_intact_records_is_fatal_and_named(at: int) -> None:
    whole = b"".join(batches(0, 5))
    with pytest.raises(Fault, match=r"0000\.log is damaged at byte (0|1[0-9]+): the records from offset [01] on are lost"):
        check_only_copy(disk_with({FIRST: flipped(whole, at)}), DIRECTORY)


def test_rf_46_a_missing_segment_is_fatal_and_named() -> None:
    def segment(base: int, suffix: str = "log") -> str:
        return f"{DIRECTORY}/{base:020d}.{suffix}"

    one, two, three = (b"".join(batches(base, 3)) for base in (0, 3, 6))
    check_only_copy(disk_with({segment(0): one, segment(3): two, segment(6): three}), DIRECTORY)
    check_only_copy(disk_with({segment(3): two, segment(6): three, segment(0, "index"): b""}), DIRECTORY)
    with pytest.raises(Fault, match=r"from offset 3 to 5 are missing"):
        check_only_copy(disk_with({segment(0): one, segment(6): three}), DIRECTORY)
    with pytest.raises(Fault, match=r"0006\.log is missing"):
        check_only_copy(disk_with({segment(0): one, segment(3): two, segment(6, "index"): b""}), DIRECTORY)
    with pytest.raises(Fault, match=r"0000\.log is missing"):
        check_only_copy(disk_with({segment(0, "index"): b""}), DIRECTORY)
    with pytest.raises(Fault, match=r"0003\.log is damaged"):
        check_only_copy(disk_with({segment(0): one, segment(3): two[:-5], segment(6): three}), DIRECTORY)


class NoTime(Exception):
    """More was read than a start may."""


class Patient(HostFile):
    """A file of which a start may read 64 MiB."""

    left = 64 * MIB

    def pread(self, length: int, offset: int) -> bytes:
        Patient.left -= length
        if Patient.left < 0:
            raise NoTime
        return super().pread(length, offset)


class PatientDisk(HostDisk):
    file_type = Patient


def test_rf_46_a_hole_larger_than_any_segment_is_told_and_not_searched(tmp_path: Path) -> None:
    """What crashed, or put the file back, left a terabyte that has no blocks."""
    whole = b"".join(batches(0, 5))
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(whole)
    os.truncate(path, 1 << 40)
    with pytest.raises(Fault, match=f"is damaged at byte {len(whole)}: the records from offset 5 on are lost"):
        check_only_copy(PatientDisk(), str(tmp_path))
    FlushMark(HostDisk(), str(tmp_path)).write(5)
    check_only_copy(PatientDisk(), str(tmp_path))


def marked(data: bytes | None, flushed: int, *, snapshot_end: int | None = None) -> MemDisk:
    """A directory with this log, of which everything below `flushed` was flushed."""
    files = {} if data is None else {FIRST: data}
    if snapshot_end is not None:
        files[f"{DIRECTORY}/{snapshot_end:020d}-0000000001.checkpoint"] = b"s"
    disk = disk_with(files)
    FlushMark(disk, DIRECTORY).write(flushed)
    return disk


def test_rf_46_a_log_smaller_than_a_page_that_became_zeros_is_told_from_a_torn_first_write() -> None:
    """Nothing intact is left in it: only the mark says that there was something."""
    zeros = bytes(len(b"".join(batches(0, 5))))
    check_only_copy(disk_with({FIRST: zeros}), DIRECTORY)
    check_only_copy(marked(zeros, 0), DIRECTORY)
    with pytest.raises(Fault, match=r"0000\.log is damaged at byte 0: the records from offset 0 on are lost"):
        check_only_copy(marked(zeros, 1), DIRECTORY)


def test_rf_46_a_log_that_ends_before_what_was_flushed_is_fatal() -> None:
    first, *rest = batches(0, 5)
    whole = first + b"".join(rest)
    for data in (whole, whole + b"half a batch", whole + bytes(200)):
        check_only_copy(marked(data, 5), DIRECTORY)
        check_only_copy(marked(data, 3), DIRECTORY)
    with pytest.raises(Fault, match=r"damaged at byte \d+: the records from offset 4 on are lost"):
        check_only_copy(marked(whole[:-7], 5), DIRECTORY)
    check_only_copy(marked(whole[:-7], 4), DIRECTORY)
    for data, end in ((first, 1), (b"", 0), (None, 0)):
        with pytest.raises(Fault, match=f"ends at offset {end}, the records from there to 4 were flushed and are lost"):
            check_only_copy(marked(data, 5), DIRECTORY)


@pytest.mark.parametrize("at", [3, 18, 70])
def test_rf_46_what_was_flushed_decides_whether_a_bad_spot_before_intact_records_is_damage(at: int) -> None:
    """A power cut may spoil the first of several batches that were written and not flushed."""
    whole = batches(0, 6)
    spoiled = b"".join([*whole[:3], flipped(whole[3], at), *whole[4:]])
    check_only_copy(marked(spoiled, 3), DIRECTORY)
    with pytest.raises(Fault, match=r"damaged at byte \d+: the records from offset 3 on are lost"):
        check_only_copy(marked(spoiled, 4), DIRECTORY)


def test_rf_46_what_was_flushed_decides_whether_a_missing_segment_is_damage() -> None:
    """The log is rolled while flushes are slow: of several segments that were not flushed yet a power cut may take the first, or
    its name, and leave its index."""
    one, two, three = (b"".join(batches(base, 3)) for base in (0, 3, 6))

    def left(flushed: int, *, middle: bytes | None, index: bool = False) -> MemDisk:
        files = {FIRST: one, f"{DIRECTORY}/{6:020d}.log": three}
        files |= {f"{DIRECTORY}/{3:020d}.log": middle} if middle is not None else {}
        files |= {f"{DIRECTORY}/{3:020d}.index": b""} if index else {}
        disk = disk_with(files)
        FlushMark(disk, DIRECTORY).write(flushed)
        return disk

    for middle, index in ((None, False), (None, True), (b"", False), (two[:-9], True)):
        check_only_copy(left(3, middle=middle, index=index), DIRECTORY)
        with pytest.raises(Fault, match=r"missing|are lost"):
            check_only_copy(left(6, middle=middle, index=index), DIRECTORY)
        with pytest.raises(Fault, match=r"missing|are lost"):
            check_only_copy(left(9, middle=middle, index=index), DIRECTORY)


def test_rf_46_a_snapshot_that_reaches_as_far_makes_up_for_the_log() -> None:
    """A crash while the log is started anew at the end of a snapshot."""
    check_only_copy(marked(None, 5, snapshot_end=5), DIRECTORY)
    with pytest.raises(Fault, match="ends at offset 0"):
        check_only_copy(marked(None, 5, snapshot_end=4), DIRECTORY)


def test_rf_46_a_flush_mark_never_claims_what_it_does_not_know() -> None:
    """Only the first is flushed: after a power cut any byte of a later one may be old, new or zero."""
    disk = MemDisk()
    disk.makedirs(DIRECTORY)
    assert read_flush_mark(disk, DIRECTORY) is None
    mark = FlushMark(disk, DIRECTORY)
    path = f"{DIRECTORY}/{FILE_NAME}"
    contents = []
    for offset in (7, 99, 1234567):
        mark.write(offset)
        assert read_flush_mark(disk, DIRECTORY) == offset
        contents.append(disk.read_file(path))
    first, old, new = contents
    for cut in range(len(first), len(new) + 1):
        for torn in (new[:cut] + old[cut:], new[:cut] + bytes(len(new) - cut), new[:cut]):
            disk.write_file_atomically(path, torn)
            assert read_flush_mark(disk, DIRECTORY) in (7, 99, 1234567)
    for cut in range(len(first)):
        disk.write_file_atomically(path, first[:cut])
        assert read_flush_mark(disk, DIRECTORY) is None
    mark.remove()
    mark.remove()
    assert disk.stat(path) is None


@pytest.mark.parametrize("seed", range(30))
def test_rf_46_no_power_cut_makes_the_only_copy_look_damaged(seed: int) -> None:
    """Whatever part of an unflushed batch reached the disk: the mark is written behind the flush, so it never runs ahead."""
    rng = random.Random(seed)
    disk = disk_with({FIRST: b""})
    mark, log, position = FlushMark(disk, DIRECTORY), disk.open(FIRST), 0
    flushed = 0
    count, unflushed = rng.randint(1, 12), rng.randint(1, 4)
    mark.write(0)
    for number, batch in enumerate(batches(0, count)):
        position += log.pwritev([batch], position)
        if number + unflushed < count:
            log.sync()
            flushed = number + 1
            mark.write(flushed)
    disk.sync_dir(DIRECTORY)
    disk.crash(rng)
    known = read_flush_mark(disk, DIRECTORY)
    assert known is not None and known <= flushed
    check_only_copy(disk, DIRECTORY)


def two_epochs() -> list[bytes]:
    """What two runs of an only voter leave: each begins with the leader's control batch."""
    found = []
    for epoch in (1, 2):
        for number in range(3):
            record = Record(key=b"k" if number == 0 else None, value=b"v" * 50)
            found.append(build_batch([record], base_offset=len(found), leader_epoch=epoch, timestamp_ms=1, control=number == 0))
    return found


@pytest.mark.parametrize("marked_too", [True, False])
def test_rf_46_no_flipped_bit_before_the_last_batch_goes_unnoticed(marked_too: bool) -> None:
    """Offset and epoch are outside of a batch's CRC: recovery would end the log there, or behind it, and say nothing."""
    whole = b"".join(two_epochs())
    watched = len(whole) if marked_too else len(whole) - len(two_epochs()[-1])
    disk = marked(whole, 6) if marked_too else disk_with({FIRST: whole})
    check_only_copy(disk, DIRECTORY)
    unnoticed = []
    for at in range(watched):
        for bit in range(8):
            disk.overwrite(FIRST, at, bytes([whole[at] ^ (1 << bit)]))
            try:
                check_only_copy(disk, DIRECTORY)
                unnoticed.append((at, bit))
            except Fault:
                pass
        disk.overwrite(FIRST, at, whole[at : at + 1])
    assert unnoticed == []


def test_rf_46_a_newer_epoch_begins_with_a_control_batch() -> None:
    for epoch, control in ((2, False), (2, True), (7, True)):
        batch = build_batch([Record(key=b"k", value=b"v")], base_offset=6, leader_epoch=epoch, timestamp_ms=1, control=control)
        check_only_copy(marked(b"".join(two_epochs()) + batch, 7), DIRECTORY)
    for epoch, control in ((1, True), (3, False)):
        batch = build_batch([Record(key=b"k", value=b"v")], base_offset=6, leader_epoch=epoch, timestamp_ms=1, control=control)
        with pytest.raises(Fault, match="the records from offset 6 on are lost"):
            check_only_copy(marked(b"".join(two_epochs()) + batch, 7), DIRECTORY)
