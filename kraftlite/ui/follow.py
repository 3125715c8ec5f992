"""Follows the trace files of the nodes and the ledger of faults while they grow; the newest events are kept."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Final

from kraftlite.obs.explain import History, Recorded
from kraftlite.obs.tail import Tail
from kraftlite.obs.trace_lines import TraceLines

NEWEST_BYTES: Final = 4 << 20
"""The end of each file that is read at first."""
MAX_EVENTS: Final = 20_000
"""The newest events that are kept, of all nodes together."""


class Record:
    """All that the files tell so far. Used from threads: one at a time reads and makes the history."""

    def __init__(self) -> None:
        self._tails: dict[Path, Tail] = {}
        self._events: deque[Recorded] = deque(maxlen=MAX_EVENTS)
        self._lock = Lock()
        self._lines = TraceLines()
        self._history = History([])
        self._made = 0
        self.version = 0
        """Counts the events that have been read."""
        self.unread: str | None = None
        """The reason why a file could not be read the last time; None when all could."""

    def read(self, paths: Iterable[Path]) -> int:
        """Read what is new in these files; returns the version."""
        with self._lock:
            self.unread = None
            for path in paths:
                tail = self._tails.setdefault(path, Tail(path, newest=NEWEST_BYTES))
                try:
                    tail.look()
                    while tail.head is not None:
                        event = tail.take().event
                        if self._lines.sound(event):
                            self._events.append(event)
                            self.version += 1
                except OSError as error:
                    self.unread = f"{path.name} of {path.parent.name} cannot be read: {error.strerror or error}"
            return self.version

    def close(self) -> None:
        with self._lock:
            for tail in self._tails.values():
                tail.close()
            self._tails.clear()

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
