"""Keeps in memory, as a recording, what a watcher has heard lately, so that what one has just seen can be saved.

There are two halves; when the newer one is full, the older one goes. A half begins with all that is known, so each can be read
without the other.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from kraftlite.obs.explain import Recorded
from kraftlite.obs.recording import Header, Recorder
from kraftlite.ui.clients import Clients
from kraftlite.ui.follow import Record
from kraftlite.ui.words import NodeWords

HALF_BYTES: Final = 4 << 20
HALF_MS: Final = 15 * 60_000
_HEADER: Final = b'{"kraftlite_recording"'


class Heard(Protocol):
    """Has what all nodes said, and what is recorded."""

    record: Record
    clients: Clients

    def sorted_nodes(self) -> list[NodeWords]: ...


class Scribe:
    """Writes what is new to one recorder, turn by turn."""

    def __init__(self) -> None:
        self._told = 0
        self._written: dict[int, int] = {}
        self._reported: dict[str, int] = {}

    def write(self, recorder: Recorder, heard: Heard, at_ms: int) -> None:
        """All that is said and recorded since the last turn; at first the events that are known already, too."""
        self.words(recorder, heard, at_ms)
        self._told, events = heard.record.since(self._told)
        write_events(recorder, events)
        recorder.turn(at_ms)

    def words(self, recorder: Recorder, heard: Heard, at_ms: int) -> None:
        """Write what nodes and clients said."""
        for words in heard.sorted_nodes():
            recorder.node(at_ms, words.id, words.roles, words.process)
            if words.status is not None and words.heard_ms is not None and words.rtt_ms is not None:
                recorder.status(at_ms, words.id, min(at_ms, words.heard_ms), words.rtt_ms, words.status)
            if words.replicas_ms is not None and self._written.get(words.id) != words.replicas_ms:
                self._written[words.id] = words.replicas_ms
                recorder.replicas(at_ms, words.id, min(at_ms, words.replicas_ms), words.replicas.values())
            if words.error is not None:
                recorder.silent(at_ms, words.id, words.error)
        for report in heard.clients.since(self._reported):
            recorder.client(at_ms, report)


def write_events(recorder: Recorder, events: Iterable[Recorded]) -> None:
    for event in events:
        recorder.event(event.ms, event.node, event.event, event.told)


class _Half:
    """A recording that begins now, with all that is known."""

    def __init__(self, header: Header, began_ms: int) -> None:
        self.began_ms = began_ms
        self.lines: list[bytes] = []
        self.size = 0
        self._scribe = Scribe()
        self._recorder = Recorder(header, self._take)

    def _take(self, line: bytes) -> None:
        self.lines.append(line)
        self.size += len(line)

    def turn(self, heard: Heard, at_ms: int) -> None:
        self._scribe.words(self._recorder, heard, at_ms)
        self._recorder.turn(at_ms)


class Kept:
    """The last 15 to 30 minutes of words, or 4 to 8 MiB of them. The events are those of the watcher's record."""

    def __init__(self, *, half_bytes: int = HALF_BYTES, half_ms: int = HALF_MS) -> None:
        self._half_bytes = half_bytes
        self._half_ms = half_ms
        self._old: list[bytes] = []
        self._new: _Half | None = None
        self._ms = 0

    def turn(self, header: Header, heard: Heard, at_ms: int) -> None:
        at_ms = self._ms = max(self._ms, at_ms)  # a wall clock may be set back
        if self._new is None:
            self._new = _Half(header, at_ms)
        self._new.turn(heard, at_ms)
        if self._new.size > self._half_bytes or at_ms - self._new.began_ms > self._half_ms:
            self._old, self._new = self._new.lines, _Half(header, at_ms)
            self._new.turn(heard, at_ms)  # the same moment, so that nothing is lost between both

    @property
    def size(self) -> int:
        return sum(map(len, self._old)) + (0 if self._new is None else self._new.size)

    def recording(self, header: Header, events: Iterable[Recorded]) -> bytes:
        """A recording of it, as if one had been begun with the older half."""
        words = [*self._old, *([] if self._new is None else self._new.lines)]
        told: list[bytes] = []
        write_events(Recorder(header, told.append), events)
        return b"".join([told[0], *(line for line in words if not line.startswith(_HEADER)), *told[1:]])
