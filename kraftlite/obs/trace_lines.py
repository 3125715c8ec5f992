"""Lines of trace files as events: a damaged one is told from one that is none, by the types of the event vocabulary."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from kraftlite.obs import recording_checks as checks
from kraftlite.obs.explain_events import Recorded, from_line
from kraftlite.obs.explain_history import RECORD, RECORDS

_ROLE: Final = frozenset(("tp", "leader_epoch", "partition_epoch"))
_NEEDED: Final[Mapping[str, frozenset[str]]] = {
    RECORD: frozenset(("offset",)),
    RECORDS: frozenset(("last_offset", "count")),
    "partition.leader_started": _ROLE,
    "partition.follower_started": _ROLE,
    "partition.isr_committed": frozenset(("tp", "partition_epoch")),
    "raft.leader_elected": frozenset(("raft_epoch",)),
    "node.stalled": frozenset(("stalled_ms",)),
    "partition.hw_stalled": frozenset(("stalled_ms",)),
    "partition.hw_resumed": frozenset(("stalled_ms",)),
    "transaction.ended": frozenset(("marking_ms", "open_ms", "count")),
}
"""The facts without which an event has no place in a history, or no story."""


class TraceLines:
    """Makes events of lines, and counts those that are damaged: an event of this software that has facts of another type, or that
    nobody can place. An event that is not known, perhaps of a later version, stays if nobody can stumble over it."""

    def __init__(self) -> None:
        self.damaged = 0
        self.first_damage: str | None = None
        """The fault of the first of them, in words."""

    def sound(self, event: Recorded) -> bool:
        try:
            _check(event)
        except ValueError as error:
            self.damaged += 1
            self.first_damage = self.first_damage or str(error)
            return False
        return True

    def events(self, lines: Iterable[Mapping[str, Any]]) -> Iterator[Recorded]:
        """Those of the lines that are sound events of a node."""
        return (event for event in map(from_line, lines) if event is not None and self.sound(event))

    def problem(self) -> str | None:
        """In words, for who reads them; None: there is none."""
        if not self.damaged:
            return None
        many = "a line of the trace is" if self.damaged == 1 else f"{self.damaged} lines of the trace are"
        return f"{many} damaged and left out: {self.first_damage}"


def _check(event: Recorded) -> None:
    """Raises ValueError."""
    checks.NODE(event.node)
    checks.event_facts(event.event, event.told, _NEEDED.get(event.event, frozenset()))
    for name, check in (("tp", checks.partition), ("partition", _name)):  # also where the event is one that has no such fact
        if name in event.facts:
            check(event.facts[name])


def _name(value: Any) -> None:
    """A partition is told by its number or its name."""
    if not isinstance(value, str | int):
        raise ValueError("partition: allowed is a name or a number")
