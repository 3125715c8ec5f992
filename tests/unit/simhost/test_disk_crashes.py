"""What a power cut, a kill and a failing disk leave behind."""

from __future__ import annotations

import asyncio
import errno
import random

import pytest

from kraftlite.simhost.disk import MemDisk
from kraftlite.simhost.disk_faults import may_flip
from kraftlite.simhost.inodes import Inode


def written(disk: MemDisk, path: str = "/d/f", data: bytes = b"abcdef") -> None:
    disk.makedirs("/d")
    file = disk.open(path, create=True)
    file.pwritev([data], 0)


def test_a_power_cut_takes_what_was_not_synced() -> None:
    disk = MemDisk()
    written(disk)
    disk.sync_dir("/d")
    disk.open("/d/f").sync()
    disk.open("/d/f").pwritev([b"XY"], 6)
    assert disk.crash() == ["/d/f"]
    assert disk.read_file("/d/f") == b"abcdef"


def test_an_entry_needs_a_sync_of_its_directory() -> None:
    disk = MemDisk()
    written(disk)
    disk.open("/d/f").sync()
    assert disk.crash() == ["/d/f"]
    assert disk.stat("/d/f") is None


def test_a_kill_takes_nothing_but_the_process() -> None:
    disk = MemDisk()
    written(disk)
    mount = disk.mount()
    file = mount.open("/d/f")
    assert mount.lock("/d/.lock") is not None
    disk.kill()
    with pytest.raises(OSError, match=str(errno.EIO)):
        file.pread(1, 0)
    with pytest.raises(OSError, match="dead"):
        mount.write_file_atomically("/d/g", b"")
    assert disk.read_file("/d/f") == b"abcdef"
    assert disk.mount().lock("/d/.lock") is not None


def test_a_rename_is_atomic_and_durable_only_after_a_sync_of_the_directory() -> None:
    for synced in (False, True):
        disk = MemDisk()
        disk.makedirs("/d")
        disk.write_file_atomically("/d/f", b"old")
        disk.write_file_atomically("/d/new", b"new")
        disk.rename("/d/new", "/d/f")
        if synced:
            disk.sync_dir("/d")
        disk.crash()
        assert disk.read_file("/d/f") == (b"new" if synced else b"old")


def test_torn_tails_are_prefixes_zeros_or_one_flipped_bit_of_what_was_not_synced() -> None:
    seen = set()
    for seed in range(200):
        disk = MemDisk()
        written(disk, "/d/0.log", b"durable.")
        disk.open("/d/0.log").sync()
        disk.sync_dir("/d")
        disk.open("/d/0.log").pwritev([b"12345678"], 8)
        disk.crash(random.Random(seed))
        left = disk.read_file("/d/0.log")
        assert left[:8] == b"durable.", "what was synced is never touched"
        tail = left[8:]
        if tail == b"":
            seen.add("lost")
        elif tail == b"12345678":
            seen.add("kept")
        elif b"12345678".startswith(tail):
            seen.add("prefix")
        elif len(tail) == 8 and sum((a ^ b).bit_count() for a, b in zip(tail, b"12345678", strict=True)) == 1:
            seen.add("bit")
        else:
            assert tail.rstrip(b"\0") == b"12345678"[: len(tail.rstrip(b"\0"))]
            seen.add("zeros")
    assert seen == {"lost", "kept", "prefix", "bit", "zeros"}


def test_no_bit_flips_where_no_checksum_would_tell() -> None:
    blind = (*range(8), *range(12, 16))  # a base offset and a leader epoch
    first, second = bytes(8) + (20).to_bytes(4, "big") + bytes(20), bytes(8) + (9).to_bytes(4, "big") + bytes(9)
    data = bytearray(first + second)
    told = [position for position in range(len(data)) if may_flip("/d/0.log")(data, position)]
    assert told == [p for p in range(len(data)) if p not in blind and p - len(first) not in blind]
    assert not any(may_flip("/d/leader-epoch-checkpoint")(data, position) for position in range(len(data)))


def test_a_flush_under_way_covers_what_was_written_before_it_began() -> None:
    async def scenario() -> None:
        disk = MemDisk()
        disk.flush_gate = gate = asyncio.Event()
        written(disk)
        disk.sync_dir("/d")
        file = disk.open("/d/f")
        flushing = asyncio.ensure_future(file.flush())
        await asyncio.sleep(0)
        file.pwritev([b"later"], 6)
        gate.set()
        await flushing
        disk.crash()
        assert disk.read_file("/d/f") == b"abcdef"

    asyncio.run(scenario())


def test_a_power_cut_during_a_flush_takes_what_it_had_not_made_durable() -> None:
    async def scenario() -> None:
        disk = MemDisk()
        disk.flush_gate = gate = asyncio.Event()
        written(disk)
        disk.sync_dir("/d")
        flushing = asyncio.ensure_future(disk.open("/d/f").flush())
        await asyncio.sleep(0)
        disk.crash()
        gate.set()
        with pytest.raises(OSError, match="crashed during a flush"):
            await flushing
        assert disk.read_file("/d/f") == b""

    asyncio.run(scenario())


@pytest.mark.parametrize("seed", range(12))
def test_a_power_cut_during_a_flush_leaves_what_was_synced_meanwhile(seed: int) -> None:
    inode = Inode(data=bytearray(b"first"))
    inode.begin_flush()
    inode.data += b" second"
    inode.sync()
    inode.crash(random.Random(seed), may_flip("x.log"))
    assert inode.data == b"first second"


def test_a_flush_that_fails_leaves_its_bytes_at_risk() -> None:
    async def scenario() -> None:
        disk = MemDisk()
        disk.flush_gate = asyncio.Event()
        disk.flush_gate.set()
        written(disk)
        disk.sync_dir("/d")
        disk.inject("flush-end", code=errno.EIO)
        with pytest.raises(OSError, match=str(errno.EIO)):
            await disk.open("/d/f").flush()
        disk.crash()
        assert disk.read_file("/d/f") == b""

    asyncio.run(scenario())


def test_a_full_disk_refuses_writes_until_it_heals() -> None:
    disk = MemDisk()
    written(disk)
    disk.inject("pwritev", code=errno.ENOSPC, times=None)
    with pytest.raises(OSError, match="No space left"):
        disk.open("/d/f").pwritev([b"x"], 0)
    disk.heal()
    assert disk.open("/d/f").pwritev([b"x"], 0) == 1


def test_a_wiped_disk_is_empty() -> None:
    disk = MemDisk()
    written(disk)
    disk.wipe()
    assert disk.tree() == []
