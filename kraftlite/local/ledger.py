"""The ledger of faults of a local cluster: `<data-dir>/faults.ledger`, JSON lines that are only ever appended.

Everything that kills, pauses, resumes, restarts or stops a node of the cluster writes here, so that `kraftlite explain` and the
failover report need not guess. The format is that of `kraftlite.obs.faults`.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from kraftlite.local.state import LocalError
from kraftlite.obs.explain_events import Recorded, from_line
from kraftlite.obs.fault_file import MAX_BYTES, append
from kraftlite.obs.faults import ASKED, ENDED, EVENTS, FAILED, MAX_TEXT, SEEN, Author, Fault, faults_of
from kraftlite.obs.timeline import read_timelines

LEDGER_NAME: Final = "faults.ledger"
_MAX_EVENTS: Final = 50_000
"""The newest events that are read; what is before them is left out."""


def author(door: str) -> Author:
    """The user of this process, who comes in by `door`."""
    try:
        who = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        who = f"uid {os.getuid()}"
    return Author(who=who[:MAX_TEXT], door=door)


PYTHON: Final = "python"
"""The door of those who call `kraftlite.local` from a program of their own."""


def read_events(data_dir: Path) -> list[Recorded]:
    """The events of the ledger, by time. A damaged line is left out; a cluster without a ledger has none."""
    found: deque[Recorded] = deque(maxlen=_MAX_EVENTS)
    for line in read_timelines([data_dir / LEDGER_NAME]):
        event = from_line(line)
        if event is not None and event.event in EVENTS:
            found.append(event)
    return sorted(found, key=lambda event: event.ms)


def read_faults(data_dir: Path) -> list[Fault]:
    return faults_of(read_events(data_dir), time.time_ns() // 1_000_000)


class Ledger:
    """Writes for one author."""

    def __init__(self, data_dir: Path, by: Author, *, max_bytes: int = MAX_BYTES) -> None:
        self._data_dir = data_dir
        self._max_bytes = max_bytes
        self._by = by

    def ask(self, kind: str, node: int, **facts: Any) -> str:
        """Note that the fault is asked for, before it is done; returns its id. Raises LocalError when that cannot be written:
        a fault that nobody could trace back is not done. `facts`: other, what and for_ms, see `obs/faults`."""
        identity = secrets.token_hex(8)
        try:
            self._write(ASKED, node, id=identity, kind=kind, who=self._by.who, door=self._by.door, **facts)
        except OSError as error:
            raise LocalError(
                f"node {node} is left alone: {self._data_dir / LEDGER_NAME} cannot be written ({error.strerror or error}), "
                f"so nobody could tell later what the {kind} was"
            ) from None
        return identity

    def see(self, identity: str, node: int) -> None:
        """Note that the fault has happened: the process is gone, or stands still."""
        self._note(SEEN, node, id=identity)

    def fail(self, identity: str, node: int, why: str) -> None:
        self._note(FAILED, node, id=identity, why=why[:MAX_TEXT])

    def end(self, node: int, how: str, kinds: Sequence[str] | None = None) -> None:
        """End what is active on the node (`kinds`: only these). It is best effort: a node that is brought back comes back also
        where the disk is full."""
        for fault in read_faults(self._data_dir):
            if fault.node == node and fault.active and (kinds is None or fault.kind in kinds):
                self._note(ENDED, node, id=fault.id, how=how, who=self._by.who, door=self._by.door)

    def close(self, identity: str, node: int, how: str) -> None:
        """End this one."""
        self._note(ENDED, node, id=identity, how=how, who=self._by.who, door=self._by.door)

    def finish(self, identity: str, node: int) -> None:
        """End this one, which has done what it was asked for."""
        self.close(identity, node, "done")

    def _note(self, event: str, node: int, **facts: Any) -> None:
        with contextlib.suppress(OSError):
            self._write(event, node, **facts)

    def _write(self, event: str, node: int, **facts: Any) -> None:
        append(self._data_dir / LEDGER_NAME, event, node, self._max_bytes, **facts)
