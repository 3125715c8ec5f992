"""The metadata log is checked a piece at a time, and the files beside it are read up to a bound."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kraftlite.log.batch import Record, build_batch
from kraftlite.model.errors import Fault
from kraftlite.model.limits import MIB
from kraftlite.raft.damage import check_only_copy, wrong_epoch_from
from kraftlite.raft.flush_mark import FILE_NAME, FlushMark, read_flush_mark
from kraftlite.raft.quorum_state import ElectionState, QuorumStateStore
from tests.harness.disk import MemDisk
from tests.unit.raft.test_damage import DIRECTORY, FIRST, batches, disk_with, flipped


class MeasuredFile:
    """Tells its disk how much is read at once."""

    def __init__(self, disk: MeasuringDisk, file: Any) -> None:
        self._disk = disk
        self._file = file

    def pread(self, length: int, offset: int) -> bytes:
        self._disk.largest = max(self._disk.largest, length)
        return self._file.pread(length, offset)  # type: ignore[no-any-return]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class MeasuringDisk(MemDisk):
    """A file of it that is read whole fails the test."""

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__()
        self.largest = 0
        self.makedirs(DIRECTORY)
        for path, data in files.items():
            self.write_file_atomically(path, data)

    def open(self, path: str, *, create: bool = False) -> Any:
        return MeasuredFile(self, super().open(path, create=create))

    def read_file(self, path: str) -> bytes:
        raise AssertionError(f"{path} is read whole")


def large_log() -> tuple[bytes, list[int]]:
    """Some MiB, and where its batches begin: of all sizes, so that any part of one is where a piece ends."""
    rng = random.Random(7)
    data, starts = bytearray(), []
    for offset in range(60):
        starts.append(len(data))
        value = rng.randbytes(rng.choice((50, 1_000, 100_000, 200_000)))
        data += build_batch([Record(None, value)], base_offset=offset, leader_epoch=1, timestamp_ms=1)
    return bytes(data), starts


def test_a_large_segment_is_never_in_memory_as_a_whole() -> None:
    large, starts = large_log()
    assert len(large) > 3 * MIB
    disk = MeasuringDisk({FIRST: large})
    check_only_copy(disk, DIRECTORY)
    assert wrong_epoch_from(disk, DIRECTORY, 1) is None
    assert wrong_epoch_from(disk, DIRECTORY, 0) == 0
    assert disk.largest == MIB
    torn = MeasuringDisk({FIRST: large[:-1] + bytes(3 * MIB)})
    check_only_copy(torn, DIRECTORY)
    assert torn.largest == MIB
    for number, start in enumerate(starts[:-1]):
        bad = MeasuringDisk({FIRST: flipped(large, start + 65)})
        with pytest.raises(Fault, match=rf"damaged at byte {start}: the records from offset {number} on are lost"):
            check_only_copy(bad, DIRECTORY)
        assert bad.largest == MIB


def test_a_batch_that_claims_to_be_huge_is_not_read() -> None:
    bad = bytearray(b"".join(batches(0, 1)) + bytes(66 * MIB))
    bad[8:12] = (65 * MIB).to_bytes(4, "big")
    disk = MeasuringDisk({FIRST: bytes(bad)})
    check_only_copy(disk, DIRECTORY)
    assert disk.largest == MIB


def test_a_quorum_state_of_a_size_that_nobody_writes_is_named_and_not_read() -> None:
    disk = disk_with({})
    store = QuorumStateStore(disk, DIRECTORY)
    store.write(ElectionState(epoch=7))
    good = disk.read_file(store.path)
    disk.write_file_atomically(store.path, good + b" " * (65_536 - len(good)))
    assert QuorumStateStore(disk, DIRECTORY).read() == ElectionState(epoch=7)
    disk.write_file_atomically(store.path, good + b" " * (65_537 - len(good)))
    with pytest.raises(Fault, match=r"/m/quorum-state has 65537 bytes; allowed are at most 65536, so earlier votes .*: restore"):
        QuorumStateStore(disk, DIRECTORY).read()


def test_of_the_flush_mark_only_its_two_places_are_read() -> None:
    disk = MeasuringDisk({})
    mark = FlushMark(disk, DIRECTORY)
    mark.write(3)
    mark.write(9)
    mark.close()
    file = disk.open(f"{DIRECTORY}/{FILE_NAME}")
    file.pwritev([b"7" * 1_000_000], 8_192)
    assert read_flush_mark(disk, DIRECTORY) == 9
    assert disk.largest < 100
    file.truncate(4_100)
    assert read_flush_mark(disk, DIRECTORY) == 3
    file.truncate(5)
    assert read_flush_mark(disk, DIRECTORY) is None
