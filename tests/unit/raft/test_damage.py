"""The only copy of the metadata: a torn end is a crash, anything else is told and not cut off."""

from __future__ import annotations

import pytest

from kraftlite.log.batch import Record, build_batch
from kraftlite.model.errors import Fault
from kraftlite.raft.damage import check_only_copy
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
