"""The file `flushed-offset`: how far the only copy of the metadata log was made durable.

A crash tears only what was never flushed. Without a mark a log whose end is zeros looks the same whether its end was torn or was
promised and then lost; with it the second is told (`damage.py`).

The file has two places for the mark, each in a page of its own. The first is written and flushed once, at the start; the second
is written behind every flush and is not flushed itself: after a power cut it may be older than the log, or torn, which its
checksum tells, and then the first still says that there is a mark. It never claims more than was flushed, and costs one write.
Source: RF-31, RF-46. Departs: Kafka keeps no such mark, and begins anew with whatever it finds.
"""

from __future__ import annotations

from typing import Final

from crc32c import crc32c

from kraftlite.runtime.ports import Disk, File

FILE_NAME = "flushed-offset"
_DIGITS = 20
_LAST_AT: Final = 4096
"""The position of the mark of the last flush. It is behind that of the start: a torn write spoils nothing before it."""


class FlushMark:
    """The flush mark of one metadata directory. Only the only voter keeps one: a log that others may truncate must not have it.

    Raises OSError when the disk fails.
    """

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._path = f"{directory}/{FILE_NAME}"
        self._file: File | None = None
        self._written: int | None = None

    def write(self, offset: int) -> None:
        """Everything below `offset` is durable. Nothing to do when that is known; the first one is flushed, blocking."""
        if offset == self._written:
            return
        if self._file is None:
            new = self._disk.stat(self._path) is None
            self._file = self._disk.open(self._path, create=True)
            self._file.pwritev([_render(offset)], 0)
            self._file.sync()
            if new:
                self._disk.sync_dir(self._directory)
        else:
            self._file.pwritev([_render(offset)], _LAST_AT)
        self._written = offset

    def remove(self) -> None:
        """Remove the mark durably: this node is not, or no longer, the only voter."""
        if self._disk.stat(self._path) is not None:
            self._disk.unlink(self._path)
            self._disk.sync_dir(self._directory)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def read_flush_mark(disk: Disk, directory: str) -> int | None:
    """The offset below which everything was durable once; None when nothing is known. Whatever else is in
    the file is not read."""
    path = f"{directory}/{FILE_NAME}"
    if disk.stat(path) is None:
        return None
    file = disk.open(path)
    try:
        places = [file.pread(len(_render(0)), position) for position in (0, _LAST_AT)]
    finally:
        file.close()
    return max((it for it in map(_parse, places) if it is not None), default=None)


def _parse(raw: bytes) -> int | None:
    digits = raw[:_DIGITS]
    return int(digits) if digits.isdigit() and raw == _render(int(digits)) else None


def _render(offset: int) -> bytes:
    digits = b"%0*d" % (_DIGITS, offset)
    return b"%b %08x\n" % (digits, crc32c(digits))
