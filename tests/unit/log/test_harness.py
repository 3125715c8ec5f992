"""The fakes that everything else relies on."""

from __future__ import annotations

import asyncio
import errno
import random

import pytest

from tests.harness.clock import FakeClock
from tests.harness.disk import MemDisk


def test_clock_fires_in_order_of_deadline() -> None:
    clock, fired = FakeClock(), []
    clock.call_later(20, lambda: fired.append(("b", clock.now_ms())))
    clock.call_later(10, lambda: clock.call_later(5, lambda: fired.append(("nested", clock.now_ms()))))
    cancelled = clock.call_later(1, lambda: fired.append(("never", 0)))
    cancelled.cancel()
    start = clock.wall_ms()
    clock.advance(19)
    assert fired == [("nested", 15)] and clock.next_deadline_ms == 20
    clock.advance(1)
    assert fired[-1] == ("b", 20) and clock.wall_ms() - start == 20
    clock.jump_wall(-1000)
    assert clock.now_ms() == 20 and clock.wall_ms() - start == -980


async def test_clock_wakes_sleepers_and_forgets_cancelled_ones() -> None:
    clock = FakeClock()
    woken: list[int] = []

    async def sleeper(delay: int) -> None:
        await clock.sleep(delay)
        woken.append(clock.now_ms())
        await clock.sleep(delay)
        woken.append(clock.now_ms())

    task = asyncio.ensure_future(sleeper(10))
    other = asyncio.ensure_future(sleeper(50))
    await clock.run_for(25)
    assert woken == [10, 20] and task.done()
    other.cancel()
    await clock.settle()
    assert clock.next_deadline_ms is None


def test_disk_loses_what_was_not_synced() -> None:
    disk = MemDisk()
    disk.makedirs("/d")
    kept, lost = disk.open("/d/kept", create=True), disk.open("/d/lost", create=True)
    kept.pwritev([b"abc", memoryview(b"def")], 0)
    kept.sync()
    kept.pwritev([b"XY"], 1)
    lost.pwritev([b"zzz"], 0)
    lost.sync()
    disk.rename("/d/lost", "/d/renamed")
    disk.sync_dir("/d")
    disk.rename("/d/renamed", "/d/again")
    disk.unlink("/d/kept")
    assert disk.listdir("/d") == ["again"]
    disk.crash()
    assert disk.listdir("/d") == ["kept", "renamed"]
    assert disk.read_file("/d/kept") == b"abcdef" and disk.read_file("/d/renamed") == b"zzz"
    with pytest.raises(OSError, match="crashed"):
        kept.pread(1, 0)


def test_disk_gives_a_file_a_second_name() -> None:
    disk = MemDisk()
    disk.makedirs("/a")
    disk.makedirs("/b")
    disk.open("/a/x", create=True).pwritev([b"one"], 0)
    disk.link("/a/x", "/b/y")
    file = disk.open("/b/y")
    file.pwritev([b"two"], 0)
    assert disk.read_file("/a/x") == b"two"
    with pytest.raises(FileExistsError):
        disk.link("/a/x", "/b/y")
    with pytest.raises(FileNotFoundError):
        disk.link("/a/z", "/b/z")
    file.sync()
    disk.sync_dir("/b")
    disk.unlink("/a/x")
    disk.crash()
    assert disk.tree() == ["/b/y"] and disk.read_file("/b/y") == b"two"


def test_disk_tears_what_was_under_way() -> None:
    seen: set[bytes] = set()
    for seed in range(200):
        disk = MemDisk()
        disk.makedirs("/d")
        file = disk.open("/d/f", create=True)
        disk.sync_dir("/d")
        file.pwritev([b"abcd"], 0)
        file.sync()
        file.pwritev([b"EFGH"], 4)
        disk.crash(random.Random(seed))
        seen.add(disk.read_file("/d/f"))
    assert {b"abcd", b"abcdEF", b"abcdEFGH", b"abcdEF\x00\x00"} <= seen
    assert all(content.startswith(b"abcd") for content in seen)


async def test_disk_flush_covers_what_was_written_before_it() -> None:
    disk = MemDisk()
    disk.makedirs("/d")
    file = disk.open("/d/f", create=True)
    disk.sync_dir("/d")
    file.pwritev([b"before"], 0)
    disk.flush_gate = asyncio.Event()
    flushing = asyncio.ensure_future(file.flush())
    await asyncio.sleep(0)
    file.pwritev([b"after"], 6)
    disk.flush_gate.set()
    await flushing
    disk.crash()
    assert disk.read_file("/d/f") == b"before"


def test_disk_errors_locks_and_atomic_writes() -> None:
    disk = MemDisk()
    disk.makedirs("/d")
    disk.inject("write_file", path="/d/x", code=errno.ENOSPC, times=2, after=1)
    disk.write_file_atomically("/d/x", b"1")
    for _ in range(2):
        with pytest.raises(OSError, match="No space"):
            disk.write_file_atomically("/d/x", b"2")
    disk.write_file_atomically("/d/x", b"3")
    disk.crash()
    assert disk.read_file("/d/x") == b"3"
    lock = disk.lock("/d/.lock")
    assert lock is not None and disk.lock("/d/.lock") is None
    lock.release()
    assert disk.lock("/d/.lock") is not None
    with pytest.raises(FileNotFoundError):
        disk.open("/d/absent")
    with pytest.raises(FileNotFoundError):
        disk.listdir("/absent")
    assert disk.stat("/absent/x") is None
