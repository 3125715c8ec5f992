"""Disks that lose what a flush could not write, do a part of what they were asked for, or lose power in the middle of it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import random

import pytest

from kraftlite.host.disk import HostDisk
from kraftlite.runtime.whole_io import finish_read, write_each
from kraftlite.sim.loop import VirtualLoop
from kraftlite.simhost.clock import SimHostClock
from kraftlite.simhost.disk import MemDisk, MemFile
from kraftlite.simhost.disk_faults import FLUSHES
from kraftlite.simhost.process import context_of


def opened(disk: MemDisk, data: bytes = b"abcdef") -> MemFile:
    disk.makedirs("/d")
    file = disk.open("/d/f", create=True)
    file.pwritev([data], 0)
    file.sync()
    disk.sync_dir("/d")
    return file


@pytest.mark.parametrize("op", FLUSHES)
def test_a_failed_flush_takes_the_pages_with_it_and_the_next_one_succeeds(op: str) -> None:
    async def nothing() -> None:
        return None

    async def scenario() -> None:
        for seed in range(6):
            disk = MemDisk()
            dropped: list[str] = []
            disk.flush_wait, disk.on_dropped = nothing, dropped.append
            file = opened(disk)
            file.pwritev([b"XYZ"], 6)
            disk.inject(op, times=1, drops=random.Random(seed))
            with pytest.raises(OSError, match=f"Errno {errno.EIO}"):
                file.sync() if op == "sync" else await file.flush()
            assert dropped == ["/d/f"]
            assert disk.read_file("/d/f") in (b"abcdef", b"abcdef\0\0\0")
            await file.flush()
            disk.crash()
            assert disk.read_file("/d/f").rstrip(b"\0") == b"abcdef"

    asyncio.run(scenario())


def test_a_write_without_room_has_done_a_part() -> None:
    lengths = set()
    for seed in range(30):
        disk = MemDisk()
        file = opened(disk)
        disk.inject("pwritev", code=errno.ENOSPC, torn=random.Random(seed))
        with pytest.raises(OSError, match="No space left"):
            file.pwritev([b"12", b"34"], 6)
        left = disk.read_file("/d/f")
        assert b"abcdef1234".startswith(left)
        lengths.add(len(left))
    assert lengths == {6, 7, 8, 9, 10}


def test_short_reads_and_writes_are_gone_on_with() -> None:
    disk = MemDisk()
    file = opened(disk)
    parts: list[int] = []

    def one(length: int) -> int:
        parts.append(length)
        return min(1, length)

    disk.short = one
    assert file.pwritev([b"12", memoryview(b"345")], 6) == 5
    assert file.pread(100, 1) == b"bcdef12345"
    assert len(parts) > 12


def test_power_is_lost_in_the_middle_of_a_write() -> None:
    disk = MemDisk()
    cuts: list[list[str]] = []
    file = opened(disk)
    disk.tearing = random.Random(3)
    disk.mid_write = lambda path: path == "/d/f" and not cuts
    disk.cut_mid_write = lambda: cuts.append(disk.crash())
    with pytest.raises(OSError, match="during a write"):
        file.pwritev([b"123456"], 6)
    assert cuts
    assert b"abcdef123456".startswith(disk.read_file("/d/f"))


def test_a_write_that_never_gets_on_ends_with_the_error_of_the_system() -> None:
    taken = bytearray()

    def pwrite(data: memoryview, offset: int) -> int:
        if len(taken) >= 3:
            raise OSError(errno.ENOSPC, "full")
        taken.extend(data[:1])
        return 1

    with pytest.raises(OSError, match="full"):
        write_each(pwrite, [b"abcdef"], 0)
    assert taken == b"abc"


def test_reading_on_ends_with_the_file() -> None:
    data = b"abcdef"
    assert finish_read(lambda length, offset: data[offset : offset + min(2, length)], b"b", 10, 1) == b"bcdef"


def test_the_real_disk_writes_more_buffers_than_one_call_takes(tmp_path: object) -> None:
    disk = HostDisk()
    file = disk.open(f"{tmp_path}/f", create=True)
    with contextlib.closing(file):
        assert file.pwritev([b"ab"] * 2_000, 0) == 4_000
        assert file.pread(5_000, 0) == b"ab" * 2_000


def test_a_slow_process_takes_time_for_each_step_and_others_do_not() -> None:
    loop = VirtualLoop(1)
    seen: list[tuple[int, int]] = []
    loop.slow_down(7, 1_000)
    for pid in (7, 8):
        for _ in range(3):
            loop.call_soon(lambda it=pid: seen.append((it, loop.now_us())), context=context_of(pid))
    loop.run_until_complete(asyncio.sleep(1))
    assert [at for pid, at in seen if pid == 7] == [0, 1_000, 2_000]
    assert [at for pid, at in seen if pid == 8] == [0, 0, 0]
    loop.close()


def test_a_clock_whose_rate_changes_never_goes_back_and_never_fires_early() -> None:
    loop = VirtualLoop(1)
    clock = SimHostClock(loop, context_of(1), wall_ms=0)
    fired: list[int] = []

    async def scenario() -> None:
        clock.call_later(1_000, lambda: fired.append(clock.now_ms()))
        await asyncio.sleep(0.5)
        before = clock.now_ms()
        clock.set_rate(-500_000)
        assert clock.now_ms() == before == 500
        await asyncio.sleep(0.7)
        assert (clock.now_ms(), fired) == (850, [])
        await asyncio.sleep(0.5)

    loop.run_until_complete(scenario())
    assert fired == [1_000]
    loop.close()


def test_what_a_process_renames_and_removes_is_told_and_what_the_simulation_does_is_not() -> None:
    disk = MemDisk()
    told: list[str] = []
    disk.on_renamed = lambda source, target: told.append(f"{source} to {target}")
    disk.on_removed = lambda path: told.append(f"no {path}")
    opened(disk)
    process = disk.mount()
    process.rename("/d/f", "/d/g")
    process.unlink("/d/g")
    process.mkdir("/d/e")
    process.rmtree("/d/e")
    with pytest.raises(FileNotFoundError):
        process.unlink("/d/g")
    assert told == ["/d/f to /d/g", "no /d/g", "no /d/e"]
    disk.makedirs("/d/h")
    disk.rename("/d/h", "/d/i")
    disk.rmtree("/d/i")
    assert len(told) == 3
