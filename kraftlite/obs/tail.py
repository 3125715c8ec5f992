"""One trace file, read line by line while its node writes it, over rotations (`obs/timeline`), in bounded memory.

A tail has lines ahead of the one that is taken next, so that a reader of many files finds a cause before it takes the effect.
`look` notes how far the file goes. A line is *settled* when the file had it at the look before the last one: whatever caused it,
in any file, had been written by then, and is among the lines that all files have at the last look.
"""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

from kraftlite.model.limits import MIB
from kraftlite.obs.explain_events import Recorded, from_line
from kraftlite.obs.explain_history import RECORD, RECORDS

MAX_LINE: Final = MIB
MAX_AHEAD: Final = 1_000
"""Lines."""
MAX_AHEAD_BYTES: Final = MIB
"""Bytes of lines, if there is more than one."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Line:
    """`number` counts the lines of its tail. `round` is that of the look at which it is settled. `writes`: the offsets of the
    metadata records that it tells of, the first and the last."""

    number: int
    round: int
    size: int
    event: Recorded
    raw: Mapping[str, Any]
    writes: tuple[int, int] | None


@dataclass(slots=True)
class _Part:
    """One file. Bytes: `at` is where the next line begins, `end` the size at the last look, `settled` that at the look before."""

    file: BinaryIO
    at: int = 0
    end: int = 0
    settled: int = 0
    skipping: bool = False

    def line(self) -> bytes | None:
        """The next whole line; empty for one that is too long; None when there is no more."""
        while self.at < self.end:
            self.file.seek(self.at)
            found = self.file.readline(min(MAX_LINE, self.end - self.at))
            whole = found.endswith(b"\n")
            if not found or not (whole or len(found) == MAX_LINE):
                return None  # it is being written
            self.at += len(found)
            skipped, self.skipping = self.skipping, not whole
            if whole:
                return b"" if skipped else found
        return None


class Tail:
    """Raises OSError for what cannot be read; a file that is not there yet is empty. `newest`: of what is there at the first
    look, only so many bytes at its end."""

    def __init__(self, path: Path, *, newest: int | None = None) -> None:
        self.path = path
        self._newest = newest
        self.round = 0
        self._parts: deque[_Part] = deque()
        self._ahead: deque[Line] = deque()
        self._bytes = 0
        self._numbers = 0
        self._records: dict[int, deque[Line]] = {}
        """The lines ahead that tell of one record, by its offset: more than one after a truncation."""
        self._batches: deque[Line] = deque()
        """The lines ahead that tell of many records."""

    def close(self) -> None:
        for part in self._parts:
            part.file.close()

    def look(self) -> None:
        self.round += 1
        self._open()
        for part in self._parts:
            part.settled, part.end = part.end, os.fstat(part.file.fileno()).st_size
        self._fill()

    def _open(self) -> None:
        """Open what has come since the last look: a file becomes `.1` when a new one begins."""
        known = {os.fstat(part.file.fileno()).st_ino for part in self._parts}
        fresh: deque[_Part] = deque()
        for path in (self.path, self.path.with_name(self.path.name + ".1")):
            try:
                file = path.open("rb")
            except FileNotFoundError:
                continue  # none yet, or between one file and the next
            number = os.fstat(file.fileno()).st_ino
            if number in known:
                file.close()
                break
            known.add(number)
            fresh.appendleft(_Part(file))
        if self.round == 1 and self._newest is not None:
            left = self._newest
            for part in reversed(fresh):
                size = os.fstat(part.file.fileno()).st_size
                part.at = max(0, size - left)
                part.skipping = part.at > 0  # the line in whose middle it begins
                left -= size - part.at
        self._parts += fresh

    def _fill(self) -> None:
        while self._parts and len(self._ahead) < MAX_AHEAD and (self._bytes < MAX_AHEAD_BYTES or not self._ahead):
            part = self._parts[0]
            raw = part.line()
            if raw is not None:
                self._append(raw, self.round if part.at <= part.settled else self.round + 1)
            elif len(self._parts) > 1:
                self._parts.popleft().file.close()
            else:
                return

    def _append(self, raw: bytes, settled: int) -> None:
        try:
            facts = json.loads(raw)
        except (ValueError, RecursionError):
            return  # damaged, cut off by a crash, or too long
        event = from_line(facts) if isinstance(facts, dict) else None
        if event is None:
            return
        self._numbers += 1
        line = Line(number=self._numbers, round=settled, size=len(raw), event=event, raw=facts, writes=_writes(event))
        self._ahead.append(line)
        self._bytes += len(raw)
        if line.writes is not None and event.event == RECORD:
            self._records.setdefault(line.writes[0], deque()).append(line)
        elif line.writes is not None:
            self._batches.append(line)

    @property
    def head(self) -> Line | None:
        """The line that is taken next, settled or not."""
        return self._ahead[0] if self._ahead else None

    def take(self) -> Line:
        line = self._ahead.popleft()
        self._bytes -= line.size
        if line.writes is not None and line.event.event == RECORD:
            same = self._records[line.writes[0]]
            same.popleft()
            if not same:
                del self._records[line.writes[0]]
        elif line.writes is not None:
            self._batches.popleft()
        self._fill()
        return line

    def ahead(self, offset: int) -> Line | None:
        """The line ahead that tells of this metadata record, by itself or as one of many."""
        if offset in self._records:
            return self._records[offset][0]
        return next((line for line in self._batches if line.writes and line.writes[0] <= offset <= line.writes[1]), None)


def _writes(event: Recorded) -> tuple[int, int] | None:
    with suppress(TypeError, ValueError, OverflowError):
        if event.event == RECORD:
            return int(event.get("offset")), int(event.get("offset"))
        if event.event == RECORDS:
            last = int(event.get("last_offset"))
            return last - int(event.get("count")) + 1, last
    return None
