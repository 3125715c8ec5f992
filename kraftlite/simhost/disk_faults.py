"""The errors that are injected into a disk in memory, and the bits that a power cut may turn over."""

from __future__ import annotations

import random
from dataclasses import dataclass

from kraftlite.simhost.inodes import MayFlip

FLUSHES = ("sync", "flush", "flush-end")
_OFFSET_END, _LENGTH_END, _EPOCH_END = 8, 12, 16
"""The positions at which a record batch's base offset, length and leader epoch end."""


@dataclass
class InjectedError:
    """Raise `OSError(code)` from `op` ("" means any) on paths containing `path`, `times` times after `after` free passes."""

    op: str
    path: str
    code: int
    times: int | None
    after: int
    torn: random.Random | None = None
    """A write that fails has written a part, drawn from it."""
    drops: random.Random | None = None
    """A flush that fails takes with it what was not durable of the file, as Linux does since pages that could not be written
    count as clean. Drawn from it: the file is short again, or has zeros there."""

    def hits(self, op: str, path: str) -> bool:
        if (self.op and self.op != op) or self.path not in path or self.times == 0:
            return False
        if self.after > 0:
            self.after -= 1
            return False
        if self.times is not None:
            self.times -= 1
        return True


def may_flip(path: str) -> MayFlip:
    """Bits may turn over where a checksum tells it, or the bytes around: in logs. Kafka's small text files have none, and that of
    a batch covers neither its leader epoch nor its base offset. A base offset follows from the batch before it, but not in a
    compacted log, where no recovery can tell a turned bit from a gap; Kafka's does not in any log."""
    return _is_told if path.endswith(".log") else lambda data, position: False


def _is_told(data: bytearray, position: int) -> bool:
    start = 0
    while start + _LENGTH_END <= len(data):
        size = _LENGTH_END + int.from_bytes(data[start + _OFFSET_END : start + _LENGTH_END], "big")
        if position < start + size:
            return _OFFSET_END <= position - start < _LENGTH_END or position >= start + _EPOCH_END
        start += size
    return True
