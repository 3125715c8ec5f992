"""A real file system that is slow, stalls, is full and fails."""

from __future__ import annotations

import asyncio
import errno
import time
from pathlib import Path

import pytest

from kraftlite.faults.active import Active, Undo
from kraftlite.faults.clock import FaultyClock
from kraftlite.faults.disk import FaultyDisk
from kraftlite.host.clock import HostClock
from kraftlite.model.faults import Injection, UnknownFault


def begin(disk: FaultyDisk, kind: str, *, amount: int = 0, path: str = "") -> tuple[Active, Undo]:
    active = Active(Injection(id="f", kind=kind, for_ms=1, amount=amount, path=path), 0, lambda: None)
    return active, disk.begin(active)


@pytest.fixture
def disk(tmp_path: Path) -> FaultyDisk:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    return FaultyDisk((str(tmp_path / "a"), str(tmp_path / "b")))


def test_without_a_fault_it_is_the_disk_that_it_stands_for(disk: FaultyDisk, tmp_path: Path) -> None:
    file = disk.open(str(tmp_path / "a" / "file"), create=True)
    before = dict(vars(disk))
    _, undo = begin(disk, "disk-full")
    assert vars(file)
    undo()
    assert vars(disk) == before
    assert not vars(file)


def test_a_full_disk_takes_no_writes_and_reads_as_before(disk: FaultyDisk, tmp_path: Path) -> None:
    path = str(tmp_path / "a" / "file")
    file = disk.open(path, create=True)
    file.pwritev([b"abc"], 0)
    active, undo = begin(disk, "disk-full")
    with pytest.raises(OSError, match="No space") as told:
        file.pwritev([b"def"], 3)
    assert told.value.errno == errno.ENOSPC
    with pytest.raises(OSError, match="No space"):
        disk.write_file_atomically(path + "2", b"x")
    later = disk.open(path)
    with pytest.raises(OSError, match="No space"):
        later.pwritev([b"def"], 3)
    assert file.pread(9, 0) == b"abc"
    assert active.hits == 3
    undo()
    assert later.pwritev([b"def"], 3) == 3
    assert disk.read_file(path) == b"abcdef"


async def test_an_error_hits_one_directory_alone(disk: FaultyDisk, tmp_path: Path) -> None:
    whole, broken = disk.open(str(tmp_path / "a" / "file"), create=True), disk.open(str(tmp_path / "b" / "file"), create=True)
    _, undo = begin(disk, "disk-error", path=str(tmp_path / "b"))
    whole.pwritev([b"abc"], 0)
    await whole.flush()
    for operation in (
        lambda: broken.pread(1, 0),
        lambda: broken.pwritev([b"x"], 0),
        broken.sync,
        lambda: disk.listdir(str(tmp_path / "b")),
    ):
        with pytest.raises(OSError, match="Input/output error") as told:
            operation()
        assert told.value.errno == errno.EIO
    with pytest.raises(OSError, match="Input/output error"):
        await broken.flush()
    undo()
    await broken.flush()


async def test_a_slow_disk_takes_longer_to_write_and_to_flush(disk: FaultyDisk, tmp_path: Path) -> None:
    file = disk.open(str(tmp_path / "a" / "file"), create=True)
    active, undo = begin(disk, "disk-slow", amount=30_000)
    began = time.monotonic()
    file.pwritev([b"abc"], 0)
    await file.flush()
    assert time.monotonic() - began >= 0.06
    assert active.hits == 2
    assert file.pread(3, 0) == b"abc"
    assert active.hits == 2
    undo()


async def test_a_stall_holds_flushes_until_it_ends(disk: FaultyDisk, tmp_path: Path) -> None:
    file = disk.open(str(tmp_path / "a" / "file"), create=True)
    _, undo = begin(disk, "disk-stall")
    file.pwritev([b"abc"], 0)
    flush = asyncio.create_task(file.flush())
    done, _ = await asyncio.wait({flush}, timeout=0.1)
    assert not done
    undo()
    async with asyncio.timeout(30):
        await flush


def test_a_directory_that_is_not_the_nodes_is_refused(disk: FaultyDisk, tmp_path: Path) -> None:
    with pytest.raises(UnknownFault, match="allowed are"):
        begin(disk, "disk-full", path=str(tmp_path))


def test_the_wall_clock_jumps_and_jumps_back_and_monotonic_time_goes_on() -> None:
    clock, right = FaultyClock(), HostClock()
    active = Active(Injection(id="f", kind="wall-jump", for_ms=1, amount=3_600_000), 0, lambda: None)
    undo = clock.begin(active)
    assert 3_599_000 < clock.wall_ms() - right.wall_ms() < 3_601_000
    assert abs(clock.now_ms() - right.now_ms()) < 1_000
    undo()
    assert abs(clock.wall_ms() - right.wall_ms()) < 1_000
