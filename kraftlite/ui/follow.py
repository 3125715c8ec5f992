"""Follows the trace files of the nodes and the ledger of faults while they grow; the newest events are kept."""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Final

from kraftlite.obs.explain import History, Recorded, from_line

FIRST_BYTES: Final = 8 << 20
"""The end of each file that is read at first."""
_TURN_BYTES: Final = 4 << 20
"""Bytes of one file that are read at once."""
_MAX_LINE: Final = 1 << 20
MAX_EVENTS: Final = 20_000
"""The newest events that are kept, of all nodes together."""


class Follower:
    """One file. When it is replaced by a new one, what was left of it is read first (as `<name>.1`)."""

    def __init__(self, path: Path, *, first_bytes: int = FIRST_BYTES) -> None:
        self._path = path
        self._first_bytes = first_bytes
        self._inode: int | None = None
        self._offset = 0
        self._rest = b""

    def read(self) -> Iterator[Recorded]:
        """The events that are new. A damaged or overlong line is left out; a file that is not there has none."""
        try:
            found = self._path.stat()
        except OSError:
            return
        if self._inode is not None and found.st_ino != self._inode:
            yield from self._lines(self._path.with_name(self._path.name + ".1"), self._inode)
            self._inode, self._offset, self._rest = None, 0, b""
        elif found.st_size < self._offset:
            self._offset, self._rest = 0, b""
        if self._inode is None:
            self._inode = found.st_ino
            self._offset = max(0, found.st_size - self._first_bytes)
        yield from self._lines(self._path, self._inode)

    def _lines(self, path: Path, inode: int) -> Iterator[Recorded]:
        try:
            with path.open("rb") as file:
                if os.fstat(file.fileno()).st_ino != inode:
                    return
                file.seek(self._offset)
                data = file.read(_TURN_BYTES)
        except OSError:
            return
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _MAX_LINE:
            self._rest = b""
        for line in lines:
            event = _event(line)
            if event is not None:
                yield event


def _event(line: bytes) -> Recorded | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return from_line(value) if isinstance(value, dict) else None


class Record:
    """All that the files tell so far. Used from threads: one at a time reads and makes the history."""

    def __init__(self) -> None:
        self._followers: dict[Path, Follower] = {}
        self._events: deque[Recorded] = deque(maxlen=MAX_EVENTS)
        self._lock = Lock()
        self._history = History([])
        self._made = 0
        self.version = 0
        """Counts the events that have been read."""

    def read(self, paths: Iterable[Path]) -> int:
        """Read what is new in these files; returns the version."""
        with self._lock:
            for path in paths:
                follower = self._followers.setdefault(path, Follower(path))
                for event in follower.read():
                    self._events.append(event)
                    self.version += 1
            return self.version

    def since(self, version: int) -> tuple[int, list[Recorded]]:
        """The version, and the events that were read after this earlier one, as far as they are kept."""
        with self._lock:
            news = min(self.version - version, len(self._events))
            return self.version, list(islice(self._events, len(self._events) - news, None))

    def history(self) -> History:
        with self._lock:
            if self._made != self.version:
                self._history, self._made = History(self._events), self.version
            return self._history
