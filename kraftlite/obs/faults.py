"""The ledger of faults: what was done to nodes on purpose, by whom, when it was asked for, when it was seen, and when it ended.

A ledger is a list of entries, each an event of its own in the shape of a line of a trace file, so that tools read both alike:

    {"ts": 1795317028310, "node": 4, "event": "fault.asked", "id": "6f1c…", "kind": "kill", "who": "anna", "door": "cli"}
    {"ts": 1795317028330, "node": 4, "event": "fault.seen", "id": "6f1c…"}
    {"ts": 1795317041002, "node": 4, "event": "fault.ended", "id": "6f1c…", "how": "restart", "who": "anna", "door": "page"}

A fault that could not be done has `fault.failed` with `why` instead. One that a node causes to itself (`model/faults`) says in
`what` the rest of it and in `for_ms` for how long; the node notes its end, and when that cannot be it ends with its time.
Pure: no files, no clocks.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from kraftlite.model.faults import CLIENTS
from kraftlite.model.faults import KINDS as INJECTIONS
from kraftlite.obs.explain_events import Recorded

ASKED: Final = "fault.asked"
SEEN: Final = "fault.seen"
ENDED: Final = "fault.ended"
FAILED: Final = "fault.failed"
EVENTS: Final = frozenset((ASKED, SEEN, ENDED, FAILED))
SILENCING: Final = ("kill", "pause")
"""The kinds after which a node says nothing more."""
INJECTED: Final = tuple(INJECTIONS)
"""The kinds that a node causes to itself."""
KINDS: Final = (*SILENCING, "stop", "restart", "resume", "start", *INJECTED)
LASTING: Final = (*SILENCING, "stop", *INJECTED)
"""The kinds that go on until something ends them."""
MAX_TEXT: Final = 200
OVERDUE_MS: Final = 2_000
"""The time after its end at which a fault counts as ended also when the node has not said so."""
_PAST: Final = {
    "kill": "killed",
    "pause": "paused",
    "stop": "told to stop",
    "restart": "restarted",
    "cut": "cut off from {other}",
    "cut-one-way": "cut off in one direction from {other}",
    "refuse": "made to refuse connections with {other}",
    "slow": "given a slow link to {other}",
    "lossy": "given a lossy link to {other}",
    "disk-slow": "given a slow disk",
    "disk-stall": "given a disk that stalls",
    "disk-full": "given a full disk",
    "disk-error": "given a failing disk",
    "wall-jump": "given a wrong wall clock",
    "api-error": "told to answer {what}",
    "api-slow": "told to answer late",
}


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
    other: int | None = None
    """The other end of a link: a node, or -1 for the clients."""
    what: str = ""
    """The rest of what was asked for, such as the code that an API answers with."""
    for_ms: int | None = None
    amount: int = 0
    """The measure of it, in the unit of its kind (`model/faults`)."""

    @property
    def active(self) -> bool:
        """It was done and has not ended. A resume, a start and a restart end by themselves."""
        return self.failed is None and self.ended_ms is None and self.kind in LASTING

    @property
    def about(self) -> str:
        """`cut of node 4 from node 1`."""
        ends = "" if self.other is None else " and its clients" if self.other == CLIENTS else f" and node {self.other}"
        return f"{self.kind} of node {self.node}{ends}{f' ({self.what})' if self.what else ''}"

    @property
    def done(self) -> str:
        """`killed by anna (cli)`."""
        return self.done_for(self.node)

    def done_for(self, node: int) -> str:
        """`cut off from node 1 by anna (cli)`, for one of its nodes."""
        return f"{self.done_to(node)} by {self.by}"

    def done_to(self, node: int) -> str:
        """Return what it did to one of its nodes: `cut off from node 1`, `killed`."""
        other = self.node if node == self.other else self.other
        named = "its clients" if other == CLIENTS else f"node {other}"
        return _PAST.get(self.kind, self.kind).format(other=named, what=self.what)

    @property
    def family(self) -> str:
        """The part of a node that it hits: process, network, disk, clock or api."""
        found = INJECTIONS.get(self.kind)
        return "process" if found is None else found.family

    def lasts(self, from_ms: int, until_ms: int) -> bool:
        """Return whether it was there at some time in between."""
        if self.failed is not None or self.kind not in LASTING:
            return False
        return self.asked_ms <= until_ms and (self.ended_ms is None or self.ended_ms > from_ms)

    def silences(self, from_ms: int, until_ms: int) -> bool:
        """Return whether the node was silent for this fault at some time in between."""
        return self.kind in SILENCING and self.lasts(from_ms, until_ms)

    def disturbs(self, node: int, from_ms: int, until_ms: int, others: Container[int]) -> bool:
        """Return whether it kept the node from `others`, or from its disk, at some time in between: a reason for its silence that
        is no end of its process."""
        if not self.lasts(from_ms, until_ms):
            return False
        if self.family == "disk":
            return node == self.node
        ends = (self.node, self.other)
        return self.family == "network" and node in ends and any(it in others for it in ends if it is not None and it != node)

    def to_dict(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "kind": self.kind,
            "node": self.node,
            "other": self.other,
            "what": self.what,
            "for_ms": self.for_ms,
            "amount": self.amount,
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


def overdue_ms(faults: Iterable[Fault]) -> int | None:
    """The next time at which one of these counts as ended because its time is over; None when none does by itself."""
    return min((end + OVERDUE_MS for it in faults if it.active and (end := _end_ms(it)) is not None), default=None)


def _end_ms(fault: Fault) -> int | None:
    return None if fault.for_ms is None else (fault.seen_ms or fault.asked_ms) + fault.for_ms


def faults_of(events: Iterable[Recorded], now_ms: int | None = None) -> list[Fault]:
    """The faults that these events tell of, in the order in which they were asked for. An event of a fault whose beginning is
    not there, or that lacks what it must have, is left out. `now_ms`: those whose time is long over have ended, also where
    nobody says so."""
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
    return sorted((_overdue(fault, now_ms) for fault in found.values()), key=lambda fault: fault.asked_ms)


def _overdue(fault: Fault, now_ms: int | None) -> Fault:
    end_ms = _end_ms(fault)
    if now_ms is None or end_ms is None or not fault.active or now_ms < end_ms + OVERDUE_MS:
        return fault
    return replace(fault, ended_ms=end_ms, ended_how="its time was over", ended_by=Author(who=f"node {fault.node}", door="node"))


def _asked(identity: str, event: Recorded) -> Fault | None:
    kind = event.get("kind")
    if kind not in KINDS:
        return None
    other, for_ms, amount = event.get("other"), event.get("for_ms"), event.get("amount")
    return Fault(
        id=_text(identity),
        kind=kind,
        node=event.node,
        by=_author(event.facts),
        asked_ms=event.ms,
        other=other if isinstance(other, int) else None,
        what=_text(event.get("what") or ""),
        for_ms=for_ms if isinstance(for_ms, int) and for_ms >= 0 else None,
        amount=amount if isinstance(amount, int) and abs(amount) < 1 << 63 else 0,
    )


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
