"""Opens files that a person names, or may have changed, without waiting for them."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_at_once(path: str | Path) -> BinaryIO:
    """Open a file to read it. A pipe into which nobody writes is empty: it is not waited for. Raises OSError."""
    return open(path, "rb", opener=_opener)


def has_no_writer(file: BinaryIO, data: bytes) -> bool:
    """Return whether a file that was opened at once, and of which this was read, is a pipe into which nobody writes."""
    return not data and stat.S_ISFIFO(os.fstat(file.fileno()).st_mode)


def _opener(name: str, flags: int) -> int:
    fd = os.open(name, flags | os.O_NONBLOCK)
    os.set_blocking(fd, True)
    return fd
