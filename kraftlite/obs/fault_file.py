"""The file of a ledger of faults: JSON lines that are only ever appended, by any process. The lines are those of `obs/faults`."""

from __future__ import annotations

import fcntl
import json
import os
import time
from pathlib import Path
from typing import Any, Final

MAX_BYTES: Final = 8 << 20
"""At half of it the file gets the suffix `.1`, and a new one begins."""


def append(path: Path, event: str, node: int, max_bytes: int = MAX_BYTES, **facts: Any) -> None:
    """One line, whole, also after a line that a crash cut off, and one behind the other for those who write at once. Raises
    OSError."""
    line = json.dumps({"ts": time.time_ns() // 1_000_000, "node": node, "event": event, **facts}, separators=(",", ":"))
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        size = os.fstat(fd).st_size
        whole = not size or os.pread(fd, 1, size - 1) == b"\n"
        os.write(fd, (b"" if whole else b"\n") + line.encode() + b"\n")
        if size > max_bytes // 2:
            path.replace(path.with_name(path.name + ".1"))
    finally:
        os.close(fd)
