"""A file system in memory that can crash."""

from __future__ import annotations

import asyncio
import errno
import os
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager

from kraftlite.runtime.ports import DiskSpace, FileStat
from kraftlite.runtime.whole_io import finish_read, write_each
from kraftlite.simhost.disk_faults import FLUSHES, InjectedError, may_flip
from kraftlite.simhost.inodes import Directory, Inode, MayFlip


class MemFile:
    """The `File` port on a `MemDisk`. After a crash of the disk every use raises EIO."""

    def __init__(self, disk: MemDisk, path: str, inode: Inode) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode
        self._generation = disk.generation
        self._closed = False

    @property
    def path(self) -> str:
        return self._path

    def pread(self, length: int, offset: int) -> bytes:
        self._check("pread")
        if self._disk.short is None:
            return bytes(self._inode.data[offset : offset + length])
        return finish_read(self._read_some, self._read_some(length, offset), length, offset)

    def _read_some(self, length: int, offset: int) -> bytes:
        """One call of the system."""
        data = self._inode.data[offset : offset + length]
        return bytes(data if self._disk.short is None else data[: self._disk.short(len(data))])

    def pwritev(self, buffers: Sequence[bytes | bytearray | memoryview], offset: int) -> int:
        self._check("pwritev", buffers, offset)
        if self._disk.mid_write is not None and self._disk.mid_write(self._path):
            self._write_part(buffers, offset, self._disk.tearing)
            self._disk.cut_mid_write()
            raise OSError(errno.EIO, "the machine lost power during a write", self._path)
        if self._disk.short is None:
            return self._write(buffers, offset)
        return write_each(self._write_some, buffers, offset)

    def _write_some(self, data: memoryview, offset: int) -> int:
        """One call of the system."""
        assert self._disk.short is not None
        return self._write([data[: self._disk.short(len(data))]], offset)

    def _write_part(self, buffers: Sequence[bytes | bytearray | memoryview], offset: int, rng: random.Random) -> None:
        data = b"".join(buffers)
        self._write([data[: rng.randrange(len(data) + 1)]], offset)

    def _write(self, buffers: Sequence[bytes | bytearray | memoryview], offset: int) -> int:
        inode, position = self._inode, offset
        if offset > len(inode.data):
            inode.touch(len(inode.data))
            inode.data += bytes(offset - len(inode.data))
        inode.touch(offset)
        for buffer in buffers:
            size = len(buffer)
            inode.data[position : position + size] = buffer
            position += size
        inode.mtime_ms = self._disk.time_ms()
        self._disk.bytes_written += position - offset
        return position - offset

    def size(self) -> int:
        self._check("size")
        return len(self._inode.data)

    def truncate(self, size: int) -> None:
        self._check("truncate")
        inode = self._inode
        inode.touch(min(size, len(inode.data)))
        if size < len(inode.data):
            del inode.data[size:]
        else:
            inode.data += bytes(size - len(inode.data))
        inode.mtime_ms = self._disk.time_ms()

    def sync(self) -> None:
        self._check("sync")
        self._disk.syncs += 1
        self._inode.sync()

    async def flush(self) -> None:
        self._check("flush")
        self._disk.syncs += 1
        disk, inode = self._disk, self._inode
        if disk.flush_gate is None and disk.flush_wait is None:
            inode.sync()
            return
        number, content = inode.begin_flush()
        disk.in_flight[inode] = None
        ended = False
        try:
            if disk.flush_gate is not None:
                await disk.flush_gate.wait()
            if disk.flush_wait is not None:
                await disk.flush_wait()
            for directory, slow_us in list(disk.slow_below.items()):
                if self._path.startswith(f"{directory}/"):
                    await asyncio.sleep(slow_us / 1_000_000)
            if self._generation != disk.generation:
                raise OSError(errno.EIO, "the disk crashed during a flush", self._path)
            self._fail_at("flush-end")
            inode.end_flush(number, content)
            ended = True
        finally:
            if not ended:
                inode.abandon_flush(number)
            if not inode.flushing:
                disk.in_flight.pop(inode, None)

    def close(self) -> None:
        self._closed = True

    def _check(self, op: str, buffers: Sequence[bytes | bytearray | memoryview] = (), offset: int = 0) -> None:
        if self._closed:
            raise OSError(errno.EBADF, "file is closed", self._path)
        if self._generation != self._disk.generation:
            raise OSError(errno.EIO, "file was open when the disk crashed", self._path)
        if self._disk.errors:
            self._fail_at(op, buffers, offset)

    def _fail_at(self, op: str, buffers: Sequence[bytes | bytearray | memoryview] = (), offset: int = 0) -> None:
        """Raises the OSError that was injected, when there is one for this."""
        error = self._disk.error_at(op, self._path)
        if error is None:
            return
        if error.torn is not None and buffers:
            self._write_part(buffers, offset, error.torn)
        if error.drops is not None and op in FLUSHES and self._inode.drop_dirty(error.drops):
            self._disk.on_dropped(self._path)
        raise OSError(error.code, os.strerror(error.code), self._path)


class MemLock:
    """The `DirLock` port on a `MemDisk`; dead with the process that took it."""

    def __init__(self, disk: MemDisk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._generation = disk.generation

    def release(self) -> None:
        if self._generation == self._disk.generation:
            self._disk.locks.discard(self._path)


class MemDisk:
    """The `Disk` port in memory. `crash()` leaves what a power cut leaves: without `rng` nothing that was not synced; with it a
    seeded part of that, torn where a write was under way. Creates, renames and unlinks need `sync_dir` of their directory.

    `flush_gate` (an `asyncio.Event`) holds every `File.flush` until it is set; `flush_wait` is awaited by each. `inject` makes
    operations fail. A node that can die while the disk lives on uses a `mount`, which dies with it.
    """

    def __init__(self, *, wall_ms: Callable[[], int] | None = None) -> None:
        self._root = Directory()
        self._wall_ms = wall_ms
        self.generation = 0
        self.locks: set[str] = set()
        self.flush_gate: asyncio.Event | None = None
        self.flush_wait: Callable[[], Awaitable[None]] | None = None
        self.may_flip: Callable[[str], MayFlip] = may_flip
        self.slow_below: dict[str, int] = {}
        """Microseconds more that a `File.flush` takes below a directory, when it takes any time at all."""
        self.errors: list[InjectedError] = []
        self.short: Callable[[int], int] | None = None
        """Says how many of so many bytes one call of the system reads or writes; None: all."""
        self.mid_write: Callable[[str], bool] | None = None
        """Says whether the machine is to lose power in the middle of the write to this path; `cut_mid_write` is called then."""
        self.cut_mid_write: Callable[[], None] = lambda: None
        self.tearing = random.Random(0)
        self.on_dropped: Callable[[str], None] = lambda path: None
        """Told of files of which a failed flush has dropped something."""
        self.on_renamed: Callable[[str, str], None] = lambda source, target: None
        """Told of what a process has renamed, through its mount."""
        self.on_removed: Callable[[str], None] = lambda path: None
        """Told of the file or the directory that a process has removed."""
        self.in_flight: dict[Inode, None] = {}
        self.bytes_written = 0
        self.syncs = 0

    # faults

    def crash(self, rng: random.Random | None = None) -> list[str]:
        """Power cut. Open files are dead afterwards; open them again. Returns the paths that lost something."""
        self.kill()
        lost: list[str] = []
        self._root.crash(rng, "", lost, self.may_flip)
        return lost

    def kill(self) -> None:
        """The process that used the disk is gone, the machine lives on: open files and locks are dead, no byte is lost."""
        self.generation += 1
        self.locks.clear()
        for inode in self.in_flight:  # what it asked for last is in the page cache, and nobody waits for it any more
            for number in list(inode.flushing):
                inode.abandon_flush(number)
        self.in_flight.clear()

    def wipe(self) -> None:
        """A new, empty disk in the place of this one."""
        self.kill()
        self._root = Directory()

    def mount(self) -> Mount:
        """The disk as one process sees it: of no use once that was killed."""
        return Mount(self)

    def inject(
        self,
        op: str = "",
        *,
        path: str = "",
        code: int = errno.EIO,
        times: int | None = 1,
        after: int = 0,
        torn: random.Random | None = None,
        drops: random.Random | None = None,
    ) -> InjectedError:
        """Operations: open stat listdir makedirs rename link unlink rmtree sync_dir read_file write_file lock pread pwritev size
        truncate sync flush."""
        error = InjectedError(op, path, code, times, after, torn, drops)
        self.errors.append(error)
        return error

    @contextmanager
    def undisturbed(self) -> Iterator[None]:
        """Reads and writes of the simulator itself neither meet nor use up injected errors."""
        errors, self.errors = self.errors, []
        try:
            yield
        finally:
            self.errors = errors

    def heal(self) -> None:
        self.errors.clear()
        self.short = self.mid_write = None
        self.slow_below.clear()

    def check(self, op: str, path: str) -> None:
        error = self.error_at(op, path) if self.errors else None
        if error is not None:
            raise OSError(error.code, os.strerror(error.code), path)

    def error_at(self, op: str, path: str) -> InjectedError | None:
        return next((error for error in self.errors if error.hits(op, path)), None)

    def time_ms(self) -> int:
        return self._wall_ms() if self._wall_ms is not None else 0

    # the port

    def open(self, path: str, *, create: bool = False) -> MemFile:
        self.check("open", path)
        parent, name = self._parent(path)
        node = parent.entries.get(name)
        if isinstance(node, Directory):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        if node is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            node = Inode(mtime_ms=self.time_ms())
            parent.change((name, node))
        return MemFile(self, path, node)

    def stat(self, path: str) -> FileStat | None:
        self.check("stat", path)
        node = self._find(path)
        if node is None:
            return None
        if isinstance(node, Directory):
            return FileStat(size=0, mtime_ms=0, is_dir=True)
        return FileStat(size=len(node.data), mtime_ms=node.mtime_ms, is_dir=False)

    def space(self, path: str) -> DiskSpace | None:
        """Memory has no size of its own."""
        self.check("space", path)
        return None

    def listdir(self, path: str) -> list[str]:
        self.check("listdir", path)
        return sorted(self._dir(path).entries)

    def makedirs(self, path: str) -> None:
        self.check("makedirs", path)
        here = self._root
        for part in _parts(path):
            node = here.entries.get(part)
            if node is None:
                node = Directory()
                here.change((part, node))
                here.durable[part] = node
            if not isinstance(node, Directory):
                raise NotADirectoryError(errno.ENOTDIR, "not a directory", path)
            here = node

    def mkdir(self, path: str) -> None:
        self.check("makedirs", path)
        parent, name = self._parent(path)
        if name in parent.entries:
            raise FileExistsError(errno.EEXIST, "exists already", path)
        parent.change((name, Directory()))

    def rename(self, source: str, target: str) -> None:
        self.check("rename", source)
        old_parent, old_name = self._parent(source)
        new_parent, new_name = self._parent(target)
        node = old_parent.entries.get(old_name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        there = new_parent.entries.get(new_name)
        if isinstance(there, Directory) and isinstance(node, Inode):
            raise IsADirectoryError(errno.EISDIR, "is a directory", target)
        if isinstance(there, Directory) and there.entries:
            raise OSError(errno.ENOTEMPTY, "directory not empty", target)
        if old_parent is new_parent:
            old_parent.change((old_name, None), (new_name, node))
            return
        # Between directories a journalled rename is one transaction; here it is durable at once.
        old_parent.change((old_name, None))
        new_parent.change((new_name, node))
        old_parent.sync()
        new_parent.sync()

    def link(self, source: str, target: str) -> None:
        self.check("link", target)
        node = self._find(source)
        if not isinstance(node, Inode):
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        parent, name = self._parent(target)
        if name in parent.entries:
            raise FileExistsError(errno.EEXIST, "exists already", target)
        parent.change((name, node))

    def unlink(self, path: str) -> None:
        self.check("unlink", path)
        parent, name = self._parent(path)
        if not isinstance(parent.entries.get(name), Inode):
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        parent.change((name, None))

    def rmtree(self, path: str) -> None:
        self.check("rmtree", path)
        parent, name = self._parent(path)
        if name not in parent.entries:
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        parent.change((name, None))

    def sync_dir(self, path: str) -> None:
        self.check("sync_dir", path)
        self._dir(path).sync()

    def read_file(self, path: str) -> bytes:
        self.check("read_file", path)
        node = self._find(path)
        if not isinstance(node, Inode):
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return bytes(node.data)

    def write_file_atomically(self, path: str, data: bytes) -> None:
        self.check("write_file", path)
        parent, name = self._parent(path)
        if isinstance(parent.entries.get(name), Directory):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        inode = Inode(data=bytearray(data), mtime_ms=self.time_ms())
        inode.sync()
        parent.change((name, inode))
        parent.sync()

    def lock(self, path: str) -> MemLock | None:
        self.check("lock", path)
        if path in self.locks:
            return None
        self._parent(path)
        self.locks.add(path)
        return MemLock(self, path)

    # for tests

    def tree(self, path: str = "/") -> list[str]:
        """Paths of all files below `path`, sorted."""
        found: list[str] = []
        for name, node in sorted(self._dir(path).entries.items()):
            child = f"{path.rstrip('/')}/{name}"
            found += self.tree(child) if isinstance(node, Directory) else [child]
        return found

    def surviving(self, path: str, suffix: str = "") -> dict[str, bytes]:
        """Return, by name, what a power cut would leave for certain of the files of a directory. Meets no injected error."""
        here: Inode | Directory | None = self._root
        for part in _parts(path):
            here = here.durable.get(part) if isinstance(here, Directory) else None
        if not isinstance(here, Directory):
            return {}
        found = {name: node for name, node in sorted(here.durable.items()) if name.endswith(suffix)}
        return {name: bytes(node.durable) for name, node in found.items() if isinstance(node, Inode)}

    def overwrite(self, path: str, offset: int, data: bytes) -> None:
        """Damage a file durably, behind everybody's back."""
        node = self._find(path)
        assert isinstance(node, Inode), path
        node.data[offset : offset + len(data)] = data
        node.durable = bytearray(node.data)
        node.clean_below = len(node.data)

    def _find(self, path: str) -> Inode | Directory | None:
        here: Inode | Directory | None = self._root
        for part in _parts(path):
            if not isinstance(here, Directory):
                return None
            here = here.entries.get(part)
        return here

    def _dir(self, path: str) -> Directory:
        node = self._find(path)
        if not isinstance(node, Directory):
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        return node

    def _parent(self, path: str) -> tuple[Directory, str]:
        parent, _, name = path.rstrip("/").rpartition("/")
        return self._dir(parent), name


class Mount:
    """A `MemDisk` until it is killed or crashes; afterwards every operation raises EIO, so that nothing of a dead process reaches
    the disk of its successor."""

    def __init__(self, disk: MemDisk) -> None:
        self._disk = disk
        self._generation = disk.generation

    def _live(self, path: str) -> MemDisk:
        if self._generation != self._disk.generation:
            raise OSError(errno.EIO, "the process that used this disk is dead", path)
        return self._disk

    def open(self, path: str, *, create: bool = False) -> MemFile:
        return self._live(path).open(path, create=create)

    def stat(self, path: str) -> FileStat | None:
        return self._live(path).stat(path)

    def space(self, path: str) -> DiskSpace | None:
        return self._live(path).space(path)

    def listdir(self, path: str) -> list[str]:
        return self._live(path).listdir(path)

    def makedirs(self, path: str) -> None:
        self._live(path).makedirs(path)

    def mkdir(self, path: str) -> None:
        self._live(path).mkdir(path)

    def rename(self, source: str, target: str) -> None:
        self._live(source).rename(source, target)
        self._disk.on_renamed(source, target)

    def link(self, source: str, target: str) -> None:
        self._live(target).link(source, target)

    def unlink(self, path: str) -> None:
        self._live(path).unlink(path)
        self._disk.on_removed(path)

    def rmtree(self, path: str) -> None:
        self._live(path).rmtree(path)
        self._disk.on_removed(path)

    def sync_dir(self, path: str) -> None:
        self._live(path).sync_dir(path)

    def read_file(self, path: str) -> bytes:
        return self._live(path).read_file(path)

    def write_file_atomically(self, path: str, data: bytes) -> None:
        self._live(path).write_file_atomically(path, data)

    def lock(self, path: str) -> MemLock | None:
        return self._live(path).lock(path)


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]
