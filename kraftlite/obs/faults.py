"""The ledger of faults: what was done to nodes on purpose, by whom, when it was asked for, when it was seen, and when it ended.

A ledger is a list of entries, each an event of its own in the shape of a line of a trace file, so that tools read both alike:

    {"ts": 1795317028310, "node": 4, "event": "fault.asked", "id": "6f1c…", "kind": "kill", "who": "anna", "door": "cli"}
    {"ts": 1795317028330, "node": 4, "event": "fault.seen", "id": "6f1c…"}
    {"ts": 1795317041002, "node": 4, "event": "fault.ended", "id": "6f1c…", "how": "restart", "who": "anna", "door": "page"}

A fault that could not be done has `fault.failed` with `why` instead. Pure: no files, no clocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from kraftlite.obs.explain_events import Recorded

ASKED: Final = "fault.asked"
SEEN: Final = "fault.seen"
ENDED: Final = "fault.ended"
FAILED: Final = "fault.failed"
EVENTS: Final = frozenset((ASKED, SEEN, ENDED, FAILED))
SILENCING: Final = ("kill", "pause")
"""The kinds after which a node says nothing more."""
KINDS: Final = (*SILENCING, "stop", "restart", "resume", "start")
MAX_TEXT: Final = 200
_PAST: Final = {"kill": "killed", "pause": "paused", "stop": "told to stop", "restart": "restarted"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Author:
    """The one who asks for a fault, and the door: cli, page, api, demo, python."""

    who: str
    door: str

    def __str__(self) -> str:
        return f"{self.who} ({self.door})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault, as far as the ledger tells. Times are wall milliseconds; None: it has not happened, or nobody saw it."""

    id: str
    kind: str
    node: int
    by: Author
    asked_ms: int
    seen_ms: int | None = None
    ended_ms: int | None = None
    ended_how: str | None = None
    ended_by: Author | None = None
    failed: str | None = None

    @property
    def active(self) -> bool:
        """It was done and has not ended. A resume, a start and a restart end by themselves."""
        return self.failed is None and self.ended_ms is None and self.kind in (*SILENCING, "stop")

    @property
    def done(self) -> str:
        """`killed by anna (cli)`."""
        return f"{_PAST.get(self.kind, self.kind)} by {self.by}"

    def silences(self, from_ms: int, until_ms: int) -> bool:
        """Return whether the node was silent for this fault at some time in between."""
        if self.kind not in SILENCING or self.failed is not None:
            return False
        return self.asked_ms <= until_ms and (self.ended_ms is None or self.ended_ms > from_ms)

    def to_dict(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "kind": self.kind,
            "node": self.node,
            "who": self.by.who,
            "door": self.by.door,
            "asked_ms": self.asked_ms,
            "seen_ms": self.seen_ms,
            "ended_ms": self.ended_ms,
            "ended_how": self.ended_how,
            "ended_by": None if self.ended_by is None else str(self.ended_by),
            "failed": self.failed,
            "active": self.active,
        }


def faults_of(events: Iterable[Recorded]) -> list[Fault]:
    """The faults that these events tell of, in the order in which they were asked for. An event of a fault whose beginning is
    not there, or that lacks what it must have, is left out."""
    found: dict[str, Fault] = {}
    for event in events:
        identity = event.get("id")
        if event.event not in EVENTS or not isinstance(identity, str):
            continue
        if event.event == ASKED:
            if (fault := _asked(identity, event)) is not None:
                found.setdefault(identity, fault)
        elif (fault := found.get(identity)) is not None:
            found[identity] = _follow(fault, event)
    return sorted(found.values(), key=lambda fault: fault.asked_ms)


def _asked(identity: str, event: Recorded) -> Fault | None:
    kind = event.get("kind")
    if kind not in KINDS:
        return None
    return Fault(id=_text(identity), kind=kind, node=event.node, by=_author(event.facts), asked_ms=event.ms)


def _follow(fault: Fault, event: Recorded) -> Fault:
    if event.event == SEEN:
        return fault if fault.seen_ms is not None else replace(fault, seen_ms=event.ms)
    if event.event == FAILED:
        return replace(fault, failed=_text(event.get("why") or "it is not said why"))
    if fault.ended_ms is not None:
        return fault
    return replace(fault, ended_ms=event.ms, ended_how=_text(event.get("how") or "ended"), ended_by=_author(event.facts))


def _author(facts: Mapping[str, Any]) -> Author:
    return Author(who=_text(facts.get("who") or "somebody"), door=_text(facts.get("door") or "unknown"))


def _text(value: object) -> str:
    return str(value)[:MAX_TEXT]
