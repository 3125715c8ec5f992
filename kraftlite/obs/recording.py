"""A recording: what every node of a cluster said, and when, and the events that it recorded, in one file of JSON lines.

The same lines come from a live cluster, from one inside a test, and from a simulated one. The first line is the header. Then
each line has `ts`, in milliseconds of the recording's clock, and is one of these (docs/RECORDINGS.md has all fields):

    {"ts": 1795317028310, "k": "node", "node": 4, "roles": ["broker"], "process": "running"}
    {"ts": 1795317028310, "k": "status", "node": 4, "at": 1795317028150, "rtt": 3, "status": {"raft_epoch": 1, …}}
    {"ts": 1795317028310, "k": "replicas", "node": 4, "at": …, "set": [{"topic": "orders", "partition": 0, "leo": 5, …}]}
    {"ts": 1795317028310, "k": "silent", "node": 4, "why": "DEADLINE_EXCEEDED"}
    {"ts": 1795317028310, "k": "client", "report": {"client": "page", "topic": "orders", "sent": 120, …}}
    {"ts": 1795317028310, "node": 4, "event": "partition.leader_started", …}

The last is a line of a trace file, or of the ledger of faults. A status and a replica have the fields that have changed since
they were written last. Lines with `k` go forward in time; events may come late. Pure: the writing is a function that is given.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import kraftlite
from kraftlite.model.messages.introspection import REPLICA_FIELDS, NodeStatusResponse, ReplicaState
from kraftlite.obs.explain_history import HOT

VERSION: Final = 1
MAX_LINE: Final = 1 << 20
"""Bytes of one line."""
MAX_BYTES: Final = 64 << 20
"""Bytes of a recording, if not told otherwise, and the most that is read."""
_LAST_WORDS: Final = 1 << 10
"""Bytes that are kept for the line that says why the recording ends."""
_TURN_MS: Final = 1_000
_AT_ONCE: Final = 1_000
"""Replicas in one line."""
_STAMP: Final = 100
"""The bytes of a line's `ts` and of its end, and some more."""
LIVE, EMBEDDED, SIMULATED = "live", "embedded", "simulated"
WALL, VIRTUAL = "wall", "virtual"
STATUS_FIELDS: Final = (
    "broker_state",
    "broker_epoch",
    "raft_state",
    "raft_epoch",
    "leader_id",
    "raft_high_watermark",
    "raft_leo",
    "metadata_offset",
    "active_controller",
)
_encode = json.JSONEncoder(default=str, separators=(",", ":")).encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """`source`: live, embedded or simulated. `clock`: wall (milliseconds since 1970) or virtual (since the start of a run).
    `every_ms`: the time between two looks at a node. `plan`: what decides a simulated run, as `kraftlite sim --plan` takes it;
    empty where there is none."""

    source: str
    clock: str
    cluster_id: str
    every_ms: int
    title: str = ""
    made_by: str = kraftlite.__version__
    plan: str = ""

    def to_dict(self) -> dict[str, Any]:
        return {
            "kraftlite_recording": VERSION,
            "made_by": self.made_by,
            "source": self.source,
            "clock": self.clock,
            "cluster_id": self.cluster_id,
            "every_ms": self.every_ms,
            "title": self.title,
            **({"plan": self.plan} if self.plan else {}),
        }


@dataclass(slots=True)
class _Node:
    """The last that was written of a node."""

    described: tuple[tuple[str, ...], str] | None = None
    heard_ms: int | None = None
    replicas_ms: int | None = None
    why: str | None = None
    status: dict[str, Any] = field(default_factory=dict)
    replicas: dict[tuple[str, int], ReplicaState] = field(default_factory=dict)


class Recorder:
    """Writes what has changed. At `max_bytes` it writes a line that says so, and nothing more: `full`."""

    def __init__(self, header: Header, write: Callable[[bytes], object], *, max_bytes: int = MAX_BYTES) -> None:
        self._write = write
        self._room = max_bytes - _LAST_WORDS
        self._limit = max_bytes
        self._nodes: dict[int, _Node] = {}
        self._ts = 0
        self._written_ms: int | None = None
        self.full = False
        self.reached = False
        """It is full because of `max_bytes`, and not because it has ended."""
        self._line(0, header.to_dict(), stamped=False)

    # --- what nodes said. `ts` is when it is written down, `at` when it was heard.

    def node(self, ts: int, node: int, roles: Sequence[str], process: str) -> None:
        """`process`: running, paused, stopped, or unknown."""
        said = self._of(node)
        if said.described != (tuple(roles), process):
            said.described = tuple(roles), process
            self._line(ts, {"k": "node", "node": node, "roles": list(roles), "process": process})

    def status(self, ts: int, node: int, at: int, rtt_ms: int, status: NodeStatusResponse) -> None:
        said = self._of(node)
        now = {name: getattr(status, name) for name in STATUS_FIELDS}
        news = {name: value for name, value in now.items() if name not in said.status or said.status[name] != value}
        if said.heard_ms == at and not news:
            return
        said.status, said.heard_ms, said.why = now, at, None
        self._line(ts, {"k": "status", "node": node, "at": at, "rtt": rtt_ms, **({"status": news} if news else {})})

    def replicas(self, ts: int, node: int, at: int, replicas: Iterable[ReplicaState]) -> None:
        said = self._of(node)
        now = {(it.topic, it.partition): it for it in replicas}
        news = []
        for key, it in now.items():
            before = said.replicas.get(key)
            if before is it or before == it:
                continue
            names = [name for name in REPLICA_FIELDS if before is None or getattr(before, name) != getattr(it, name)]
            changed = {name: getattr(it, name) for name in names}
            news.append({"topic": key[0], "partition": key[1], **changed})
        gone = [list(key) for key in said.replicas if key not in now]
        if said.replicas_ms == at and not news and not gone:
            return
        said.replicas, said.replicas_ms = now, at
        line: dict[str, Any] = {"k": "replicas", "node": node, "at": at}
        for start in range(0, max(len(news), len(gone), 1), _AT_ONCE):
            self._some_replicas(ts, line, news[start : start + _AT_ONCE], gone[start : start + _AT_ONCE])

    def _some_replicas(self, ts: int, line: dict[str, Any], news: list[Any], gone: list[Any]) -> None:
        """One line, or as many as it takes for each to be short enough for a reader."""
        whole = {**line, **({"set": news} if news else {}), **({"gone": gone} if gone else {})}
        if max(len(news), len(gone)) > 1 and len(_encode(whole)) > MAX_LINE - _STAMP:
            self._some_replicas(ts, line, news[: len(news) // 2], gone[: len(gone) // 2])
            self._some_replicas(ts, line, news[len(news) // 2 :], gone[len(gone) // 2 :])
        else:
            self._line(ts, whole)

    def silent(self, ts: int, node: int, why: str) -> None:
        """It was asked and did not answer."""
        said = self._of(node)
        if said.why != why:
            said.why = why
            self._line(ts, {"k": "silent", "node": node, "why": why[:300]})

    def client(self, ts: int, report: Mapping[str, Any]) -> None:
        """Write the report of a client, as `client_report.checked` has them."""
        self._line(ts, {"k": "client", "report": report})

    def turn(self, ts: int) -> None:
        """Somebody has looked at all nodes. Written once a second where nothing else is, so that silence is told from a gap."""
        if self._written_ms is None or ts - self._written_ms >= _TURN_MS:
            self._line(ts, {"k": "turn"})

    def note(self, ts: int, said: str, until_ms: int | None = None) -> None:
        """Something that was done to the cluster, where no ledger of faults tells it. As an event, it may come late."""
        self._raw({"ts": ts, "k": "note", "text": said[:1000], "until": until_ms})

    def event(self, ts: int, node: int, name: str, facts: Mapping[str, Any]) -> None:
        """One event of a node, or of the ledger of faults; those that no story needs are left out."""
        if name not in HOT:
            self._raw({"ts": max(0, ts), "node": node, "event": name, **facts})

    def end(self, ts: int, outcome: str, said: str = "") -> None:
        """The last line. `outcome` as the simulator names it, or `stopped`."""
        if not self.full:
            self._last(ts, outcome, said)

    # --- inside

    def _of(self, node: int) -> _Node:
        return self._nodes.setdefault(node, _Node())

    def _line(self, ts: int, value: dict[str, Any], *, stamped: bool = True) -> None:
        if stamped:
            self._ts = self._written_ms = max(self._ts, ts)  # a wall clock may be set back
            value = {"ts": self._ts, **value}
        self._raw(value)

    def _raw(self, value: dict[str, Any]) -> None:
        if self.full:
            return
        line = _encode(value).encode() + b"\n"
        if len(line) > MAX_LINE:  # an event with more facts than a reader takes; what nodes say is split before
            name = str(value.get("event") or value["k"])[:100]
            said = {"node": value.get("node", -1), "name": name, "bytes": len(line)}
            line = _encode({"ts": value["ts"], "k": "left-out", **said}).encode() + b"\n"
        if len(line) > self._room:
            self.reached = True
            self._last(int(value.get("ts", self._ts)), "full", f"the recording has reached its limit of {self._limit} bytes")
            return
        self._room -= len(line)
        self._write(line)

    def _last(self, ts: int, outcome: str, said: str) -> None:
        self.full = True
        self._ts = max(self._ts, ts)
        self._write(_encode({"ts": self._ts, "k": "end", "outcome": outcome, "text": said[:150]}).encode() + b"\n")
