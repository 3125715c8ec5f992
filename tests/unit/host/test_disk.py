from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kraftlite.host import disk as host_disk
from kraftlite.host.disk import HostDisk


@pytest.fixture
def disk() -> HostDisk:
    return HostDisk()


def test_positional_reads_and_writes(disk: HostDisk, tmp_path: Path) -> None:
    file = disk.open(str(tmp_path / "log"), create=True)
    assert file.pwritev([b"abc", memoryview(b"def"), bytearray(b"")], 2) == 6
    assert file.size() == 8
    assert file.pread(100, 2) == b"abcdef"
    assert file.pread(3, 4) == b"cde"
    assert file.pread(5, 8) == b""
    file.truncate(3)
    assert file.pread(10, 0) == b"\0\0a"
    file.sync()
    file.close()
    file.close()


def test_more_buffers_than_one_call_takes(disk: HostDisk, tmp_path: Path) -> None:
    file = disk.open(str(tmp_path / "log"), create=True)
    buffers = [bytes([i % 256]) * 3 for i in range(2000)]
    assert file.pwritev(buffers, 10) == 6000
    assert file.pread(6000, 10) == b"".join(buffers)
    file.close()


def test_open_without_create_needs_the_file(disk: HostDisk, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        disk.open(str(tmp_path / "absent"))


async def test_a_file_may_be_closed_during_a_flush(disk: HostDisk, tmp_path: Path) -> None:
    file = disk.open(str(tmp_path / "log"), create=True)
    file.pwritev([b"x" * 100_000], 0)
    flushing = asyncio.ensure_future(file.flush())
    await asyncio.sleep(0)
    file.close()
    await flushing
    with pytest.raises(OSError, match="Bad file descriptor"):
        await file.flush()
    disk.close()


async def test_a_cancelled_flush_leaves_no_descriptor_behind(disk: HostDisk, tmp_path: Path) -> None:
    file = disk.open(str(tmp_path / "log"), create=True)
    before = len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").exists() else 0
    flushing = asyncio.ensure_future(file.flush())
    await asyncio.sleep(0)
    flushing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await flushing
    disk.close()  # waits for its threads
    if before:
        assert len(list(Path("/proc/self/fd").iterdir())) <= before
    file.close()


def test_directories(disk: HostDisk, tmp_path: Path) -> None:
    deep = str(tmp_path / "a" / "b" / "c")
    disk.makedirs(deep)
    disk.makedirs(deep)
    disk.write_file_atomically(deep + "/z", b"1")
    disk.write_file_atomically(deep + "/a", b"2")
    disk.write_file_atomically(deep + "/z", b"3")
    assert disk.listdir(deep) == ["a", "z"]
    assert disk.read_file(deep + "/z") == b"3"
    stat = disk.stat(deep)
    assert stat is not None
    assert stat.is_dir
    assert disk.stat(deep + "/nothing") is None
    assert disk.stat(deep + "/z/below-a-file") is None
    disk.rename(deep + "/a", deep + "/z")
    disk.sync_dir(deep)
    assert disk.read_file(deep + "/z") == b"2"
    disk.unlink(deep + "/z")
    disk.rmtree(str(tmp_path / "a"))
    with pytest.raises(FileNotFoundError):
        disk.listdir(deep)
    (tmp_path / "file").touch()
    with pytest.raises(OSError):
        disk.makedirs(str(tmp_path / "file"))


def test_a_second_name(disk: HostDisk, tmp_path: Path) -> None:
    source, target = str(tmp_path / "x"), str(tmp_path / "y")
    disk.write_file_atomically(source, b"one")
    disk.link(source, target)
    disk.write_file_atomically(source, b"two")
    assert disk.read_file(target) == b"one", "what replaces one name leaves the other"
    with pytest.raises(FileExistsError):
        disk.link(source, target)
    with pytest.raises(FileNotFoundError):
        disk.link(str(tmp_path / "z"), str(tmp_path / "w"))


def test_bl_15_a_lock_is_held_once_and_ends_with_its_release(disk: HostDisk, tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    held = disk.lock(path)
    assert held is not None
    assert HostDisk().lock(path) is None
    held.release()
    held.release()
    again = disk.lock(path)
    assert again is not None
    again.release()


def fifo(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/null")


def loop(path: Path) -> None:
    path.symlink_to(path.name)


ODD: dict[str, tuple[Callable[[Path], None], str]] = {
    "fifo": (fifo, "not a regular file, but a FIFO, a socket or a device"),
    "device": (device, "not a regular file, but a FIFO, a socket or a device"),
    "directory": (Path.mkdir, "Is a directory"),
    "a link to itself": (loop, "symbolic links"),
}
DOES: dict[str, Callable[[HostDisk, str], object]] = {
    "read": lambda disk, path: disk.read_file(path),
    "open": lambda disk, path: disk.open(path),
    "create": lambda disk, path: disk.open(path, create=True),
    "write": lambda disk, path: disk.write_file_atomically(path.removesuffix(".tmp"), b"x"),
}


@pytest.mark.parametrize("does", DOES)
@pytest.mark.parametrize("odd", ODD)
def test_what_is_no_file_is_refused_at_once(disk: HostDisk, tmp_path: Path, odd: str, does: str) -> None:
    """A node that waits for somebody to write into a FIFO serves nobody, and does not even stop when it is asked to."""
    make, told = ODD[odd]
    path = tmp_path / "quorum-state.tmp"
    make(path)
    found: list[OSError] = []

    def attempt() -> None:
        try:
            DOES[does](disk, str(path))
        except OSError as error:
            found.append(error)

    thread = threading.Thread(target=attempt, daemon=True)
    thread.start()
    thread.join(20)
    (error,) = found
    assert told in str(error)
    assert str(path) in str(error)


async def test_an_error_of_an_open_file_names_it(disk: HostDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that ends because of it says nothing else of the place."""

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    path = str(tmp_path / "log")
    file = disk.open(path, create=True)
    for name in ("pread", "pwritev", "pwrite", "ftruncate", "dup"):
        monkeypatch.setitem(os.__dict__, name, full)
    monkeypatch.setitem(host_disk.__dict__, "_datasync", full)
    for act in (lambda: file.pread(1, 0), lambda: file.pwritev([b"a"], 0), lambda: file.truncate(0), file.sync):
        with pytest.raises(OSError, match="No space left") as caught:
            act()
        assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, path)
    with pytest.raises(OSError, match="No space left") as caught:
        await file.flush()
    assert caught.value.filename == path
    monkeypatch.undo()
    monkeypatch.setitem(host_disk.__dict__, "_datasync", full)
    with pytest.raises(OSError, match="No space left") as caught:
        await file.flush()
    assert caught.value.filename == path
    file.close()
