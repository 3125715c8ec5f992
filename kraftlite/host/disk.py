"""The real file system."""

# ruff: noqa: PTH102, PTH105, PTH108, PTH116, PTH120, PTH208
# A port speaks plain strings and file descriptors; Path objects would only be made to be taken apart again.

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from kraftlite.runtime.ports import DirLock, Disk, DiskSpace, File, FileStat
from kraftlite.runtime.whole_io import finish_read, write_each

_MAX_IOVECS = 512
"""Below IOV_MAX (1024) of Linux and macOS."""

_FLUSH_THREADS = 8
_ODD = "not a regular file, but a FIFO, a socket or a device"

_datasync: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)


def _named(error: OSError, path: str) -> OSError:
    return OSError(error.errno, error.strerror, path)


class HostFile(File):
    """A file descriptor. Not closed under a running flush: that works on its own duplicate.

    The system's errors of a descriptor say nothing of the file; here they have its path, as those of `HostDisk` do.
    """

    __slots__ = ("_executor", "_fd", "_path")

    def __init__(self, path: str, fd: int, executor: Callable[[], ThreadPoolExecutor]) -> None:
        self._path = path
        self._fd = fd
        self._executor = executor

    @property
    def path(self) -> str:
        return self._path

    def pread(self, length: int, offset: int) -> bytes:
        try:
            data = os.pread(self._fd, length, offset)
            if len(data) == length or not data:
                return data
            return finish_read(partial(os.pread, self._fd), data, length, offset)
        except OSError as error:
            raise _named(error, self._path) from None

    def pwritev(self, buffers: Sequence[bytes | bytearray | memoryview], offset: int) -> int:
        total = sum(len(buffer) for buffer in buffers)
        try:
            if len(buffers) <= _MAX_IOVECS and os.pwritev(self._fd, buffers, offset) == total:
                return total
            # A short write, or more buffers than one call takes: one by one, from the start.
            return write_each(partial(os.pwrite, self._fd), buffers, offset)
        except OSError as error:
            raise _named(error, self._path) from None

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def truncate(self, size: int) -> None:
        try:
            os.ftruncate(self._fd, size)
        except OSError as error:
            raise _named(error, self._path) from None

    def sync(self) -> None:
        try:
            _datasync(self._fd)
        except OSError as error:
            raise _named(error, self._path) from None

    async def flush(self) -> None:
        try:
            duplicate = os.dup(self._fd)
        except OSError as error:
            raise _named(error, self._path) from None

        def datasync() -> None:
            try:
                _datasync(duplicate)
            except OSError as error:
                raise _named(error, self._path) from None
            finally:
                os.close(duplicate)

        # Shielded: a cancelled waiter must not keep the thread from closing the duplicate.
        await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._executor(), datasync))

    def close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


class _HostLock(DirLock):
    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


def _open_regular(path: str, flags: int) -> int:
    """Open a file that has an end and does not wait. Raises OSError for anything else: the open of a FIFO that nobody writes to
    waits for ever, on the loop, and what a device has to read never ends."""
    try:
        fd = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK, 0o644)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a FIFO that nobody reads, or a device that is not there
            raise OSError(errno.EINVAL, _ODD, path) from None
        raise
    mode = os.fstat(fd).st_mode
    if stat.S_ISREG(mode):
        return fd
    os.close(fd)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    raise OSError(errno.EINVAL, _ODD, path)


class HostDisk(Disk):
    """Files of this machine; errors are the OSErrors that the system gives. `close` ends its flush threads."""

    file_type: type[HostFile] = HostFile

    def __init__(self) -> None:
        self._threads: ThreadPoolExecutor | None = None

    def _executor(self) -> ThreadPoolExecutor:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_FLUSH_THREADS, thread_name_prefix="flush")
        return self._threads

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=True)
            self._threads = None

    def open(self, path: str, *, create: bool = False) -> File:
        return self.file_type(path, _open_regular(path, os.O_RDWR | (os.O_CREAT if create else 0)), self._executor)

    def stat(self, path: str) -> FileStat | None:
        try:
            found = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return FileStat(
            size=found.st_size, mtime_ms=found.st_mtime_ns // 1_000_000, is_dir=(found.st_mode & 0o170000) == 0o040000
        )

    def space(self, path: str) -> DiskSpace | None:
        found = os.statvfs(path)
        return DiskSpace(total=found.f_blocks * found.f_frsize, usable=found.f_bavail * found.f_frsize)

    def listdir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def makedirs(self, path: str) -> None:
        target = Path(path)
        missing = []
        while not target.exists():
            missing.append(target)
            target = target.parent
        for directory in reversed(missing):
            directory.mkdir(exist_ok=True)
            self.sync_dir(str(directory.parent))
        if not Path(path).is_dir():
            raise NotADirectoryError(f"{path} is not a directory")

    def mkdir(self, path: str) -> None:
        os.mkdir(path)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def link(self, source: str, target: str) -> None:
        os.link(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def rmtree(self, path: str) -> None:
        shutil.rmtree(path)

    def sync_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def read_file(self, path: str) -> bytes:
        with open(_open_regular(path, os.O_RDONLY), "rb") as file:
            return file.read()

    def write_file_atomically(self, path: str, data: bytes) -> None:
        temporary = path + ".tmp"
        fd = _open_regular(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            view = memoryview(data)
            while len(view):
                view = view[os.write(fd, view) :]
            os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(temporary, path)
        self.sync_dir(os.path.dirname(path) or ".")

    def lock(self, path: str) -> DirLock | None:
        """An advisory lock of the open file (flock), which ends with the process whatever way it ends."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        except OSError:
            with contextlib.suppress(OSError):
                os.close(fd)
            raise
        return _HostLock(fd)
