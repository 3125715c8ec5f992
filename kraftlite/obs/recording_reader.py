"""Reads a recording, which may come from anybody: everything is checked, and what is wrong is named with its line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn
from uuid import UUID

import kraftlite
from kraftlite.client.opening import open_at_once
from kraftlite.model.messages.introspection import REPLICA_FIELDS, NodeStatusResponse, ReplicaState
from kraftlite.obs import recording_checks as c
from kraftlite.obs.client_report import checked
from kraftlite.obs.explain_events import Recorded
from kraftlite.obs.recording import (
    EMBEDDED,
    LIVE,
    MAX_BYTES,
    MAX_LINE,
    SIMULATED,
    STATUS_FIELDS,
    VERSION,
    VIRTUAL,
    WALL,
    Header,
)

MAX_NODES: Final = 200
MAX_REPLICAS: Final = 20_000
"""Replicas of one node."""
_MARK: Final = "kraftlite_recording"


class RecordingError(Exception):
    """A recording cannot be read: one line that says which file, which line of it, and what is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    ts: int
    node: int
    roles: tuple[str, ...]
    process: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """A node was heard at `at`. `status` is whole, also where only its changes were written."""

    ts: int
    node: int
    at: int
    rtt_ms: int
    status: NodeStatusResponse


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicas:
    """The replicas of which a broker said something new, whole, and those that it does not have any more."""

    ts: int
    node: int
    at: int
    said: tuple[ReplicaState, ...]
    gone: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Silent:
    ts: int
    node: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSaid:
    """The report of a client: see `client_report`."""

    ts: int
    report: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    ts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    ts: int
    text: str
    until_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """An event of a node that is not in the recording, because it had so many bytes, which is more than a line may have; or a
    line that was not read (node -1 where it is no event): it is too long, or of another version of kraftlite."""

    ts: int
    node: int
    event: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    ts: int
    outcome: str
    text: str


Look = Described | Status | Replicas | Silent | ClientSaid | Turn
"""A line that goes forward in time."""
Line = Header | Look | Note | LeftOut | End | Recorded

_HEADER: Final = {
    "made_by": c.text(100),
    "source": c.one_of(LIVE, EMBEDDED, SIMULATED),
    "clock": c.one_of(WALL, VIRTUAL),
    "cluster_id": c.text(100),
    "every_ms": c.whole(1, 3_600_000),
    "title": c.text(1000),
}
_ID: Final = c.whole(0, (1 << 31) - 1)
_STATUS: Final = {
    "broker_state": c.maybe(c.text(60)),
    "broker_epoch": c.maybe(c.OFFSET),
    "raft_state": c.text(60),
    "raft_epoch": c.EPOCH,
    "leader_id": c.maybe(_ID),
    "raft_high_watermark": c.maybe(c.OFFSET),
    "raft_leo": c.OFFSET,
    "metadata_offset": c.OFFSET,
    "active_controller": c.flag,
}
_REPLICA: Final = {
    "topic": c.TOPIC,
    "partition": c.whole(0, (1 << 31) - 1),
    "topic_id": lambda value: UUID(c.text(36)(value)),
    "is_leader": c.flag,
    "leader_epoch": c.EPOCH,
    "partition_epoch": c.EPOCH,
    "isr": c.many(_ID, MAX_NODES),
    "log_start_offset": c.OFFSET,
    "hw": c.OFFSET,
    "leo": c.OFFSET,
    "size_bytes": c.OFFSET,
    "leader_id": c.maybe(_ID),
    "replicas": c.many(_ID, MAX_NODES),
    "min_isr": c.whole(0, (1 << 31) - 1),
    "followers": c.many(_ID, MAX_NODES),
    "follower_leos": c.many(c.OFFSET, MAX_NODES),
    "maximal_isr": c.many(_ID, MAX_NODES),
    "epoch_start_offset": c.maybe(c.OFFSET),
}
_LATER: Final = {"followers": (), "follower_leos": (), "maximal_isr": (), "epoch_start_offset": None}
"""The fields that recordings of earlier versions do not have, and what they are there."""
_LINES: Final[dict[str, dict[str, c.Check]]] = {
    "node": {"node": _ID, "roles": c.many(c.one_of("broker", "controller"), 2), "process": c.text(20)},
    "status": {"node": _ID, "at": c.TIME, "rtt": c.whole(0, 1 << 31)},
    "replicas": {"node": _ID, "at": c.TIME},
    "silent": {"node": _ID, "why": c.text(300)},
    "client": {"report": checked},
    "turn": {},
    "left-out": {"node": c.NODE, "name": c.text(100), "bytes": c.whole(0, (1 << 63) - 1)},
    "note": {"text": c.text(1000), "until": c.maybe(c.TIME)},
    "end": {"outcome": c.text(40), "text": c.text(150)},
}


def read(path: Path, *, max_bytes: int = MAX_BYTES) -> Iterator[Line]:
    """The header, then every line that is known, as it is reached. A last line without its end was being written when its
    recorder was killed, and is left out. Raises RecordingError."""
    try:
        with open_at_once(path) as file:
            yield from _lines(_raw(path, file, max_bytes), path.name)
    except OSError as error:
        raise RecordingError(f"{path}: {error.strerror or error}") from None


def read_bytes(data: bytes, name: str = "the recording") -> Iterator[Line]:
    """The same of a recording that is in memory."""
    *whole, _rest = data.split(b"\n")
    return _lines((line + b"\n" for line in whole), name)


def _raw(path: Path, file: Any, max_bytes: int) -> Iterator[bytes]:
    left = max_bytes
    while line := file.readline(MAX_LINE + 1):
        left -= len(line)
        if left < 0:
            raise RecordingError(f"{path.name}: it has more than {max_bytes} bytes, which is the most that is read")
        yield line


def _lines(raw: Iterable[bytes], name: str) -> Iterator[Line]:
    reader = _Reader()
    number = 1
    skipped = 0
    for line in raw:
        whole = line.endswith(b"\n")
        if skipped or len(line) > MAX_LINE:
            if reader.header is None:
                raise RecordingError(f"{name} line {number}: it has more than {MAX_LINE} bytes")
            skipped += len(line)
            if whole:
                yield reader.skip(number, skipped)
                number, skipped = number + 1, 0
            continue
        if not whole:
            break
        try:
            found = reader.take(line)
        except (ValueError, RecursionError) as error:
            raise RecordingError(f"{name} line {number}: {_reason(error)}") from None
        number += 1
        if found is not None:
            yield found
    if reader.header is None:
        raise RecordingError(f"{name} line 1: it is not a recording of kraftlite")


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError | UnicodeDecodeError):
        return "it is not JSON"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    return "a number has too many digits" if "integer string conversion" in str(error) else str(error)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")


class _Reader:
    """The words of all nodes so far, of which later lines tell the changes."""

    def __init__(self) -> None:
        self.header: Header | None = None
        self._ts = 0
        self._statuses: dict[int, dict[str, Any]] = {}
        self._replicas: dict[int, dict[tuple[str, int], dict[str, Any]]] = {}
        self._nodes: dict[int, tuple[str, ...]] = {}
        self._over = False
        self._skipped = False

    def skip(self, number: int, size: int) -> LeftOut:
        """A line is not read, as it is too long. What it may have said of a replica is not known from here on."""
        self._skipped = True
        return LeftOut(ts=self._ts, node=-1, event=f"line {number}", size=size)

    def take(self, raw: bytes) -> Line | None:
        """None for a line of a kind that is not known. Raises ValueError. Of another version's recording, events and kinds of
        lines that are not as here are left out (docs/PUBLIC.md)."""
        value = c.obj(json.loads(raw, parse_constant=_no_constant))
        if self.header is None:
            self.header = self._header(value)
            return self.header
        ts = _needed({"ts": c.TIME}, value)["ts"]
        kind = value.get("k")
        ours = self.header.made_by == kraftlite.__version__
        if kind is None:
            return self._event(ts, value) if ours else self._event_of_others(ts, value, len(raw))
        table = _LINES.get(kind) if isinstance(kind, str) else None
        if table is None:
            return None if ours else LeftOut(ts=ts, node=-1, event=str(kind)[:100], size=len(raw))
        found = _needed(table, value)
        if kind == "note":
            return Note(ts=ts, text=found["text"], until_ms=found["until"])
        if kind == "left-out":
            return LeftOut(ts=ts, node=found["node"], event=found["name"], size=found["bytes"])
        if self._over:
            raise ValueError("there is a line behind the one that ends the recording")
        if ts < self._ts:
            raise ValueError(f"ts {ts}: allowed is {self._ts} or later, because lines go forward in time")
        self._ts = ts
        if kind == "end":
            self._over = True
            return End(ts=ts, outcome=found["outcome"], text=found["text"])
        return self._look(ts, kind, found, value)

    def _header(self, value: dict[str, Any]) -> Header:
        version = value.get(_MARK)
        if version is None:
            raise ValueError("it is not a recording of kraftlite")
        if version != VERSION or isinstance(version, bool):
            raise ValueError(f"the recording has version {str(version)[:20]}; this kraftlite reads version {VERSION}")
        return Header(**_needed(_HEADER, value), plan=c.text(c.MAX_TEXT)(value.get("plan", "")))

    def _event(self, ts: int, value: dict[str, Any]) -> Recorded | None:
        told = _needed({"node": c.NODE, "event": c.text(100)}, value)
        given = {name: it for name, it in value.items() if name not in ("ts", "node", "event")}
        facts = c.event_facts(told["event"], given)
        if facts is None:
            return None
        cause = facts.pop("cause", None)
        return Recorded(ms=ts, node=told["node"], event=told["event"], facts=facts, cause=cause)

    def _event_of_others(self, ts: int, value: dict[str, Any], size: int) -> Recorded | LeftOut:
        """An event of another version, which may have other facts here."""
        told = _needed({"node": c.NODE, "event": c.text(100)}, value)
        try:
            event = self._event(ts, value)
        except ValueError:
            event = None
        return event if event is not None else LeftOut(ts=ts, node=told["node"], event=told["event"], size=size)

    def _look(self, ts: int, kind: str, found: dict[str, Any], value: dict[str, Any]) -> Look:
        if kind == "turn":
            return Turn(ts=ts)
        if kind == "client":
            return ClientSaid(ts=ts, report=found["report"])
        node = found["node"]
        if kind == "node":
            if node not in self._nodes and len(self._nodes) >= MAX_NODES:
                raise ValueError(f"node {node}: allowed are {MAX_NODES} nodes")
            self._nodes[node] = tuple(found["roles"])
            return Described(ts=ts, node=node, roles=self._nodes[node], process=found["process"])
        if node not in self._nodes:
            raise ValueError(f"node {node} has not been described before")
        if kind == "silent":
            return Silent(ts=ts, node=node, why=found["why"])
        if found["at"] > ts:
            raise ValueError(f"at {found['at']}: allowed is {ts} or earlier")
        if kind == "status":
            return Status(ts=ts, node=node, at=found["at"], rtt_ms=found["rtt"], status=self._status(node, value.get("status")))
        return self._held(ts, node, found["at"], value)

    def _status(self, node: int, news: Any) -> NodeStatusResponse:
        said = self._statuses.setdefault(node, {})
        said.update(c.each(_STATUS, c.obj({} if news is None else news)))
        _complete(said, STATUS_FIELDS, f"the status of node {node}")
        return NodeStatusResponse(node_id=node, cluster_id="", roles=self._nodes[node], **said)  # type: ignore[arg-type]

    def _held(self, ts: int, node: int, at: int, value: dict[str, Any]) -> Replicas:
        held = self._replicas.setdefault(node, {})
        gone = c.many(c.partition, MAX_REPLICAS)(value.get("gone", []))
        for key in gone:
            held.pop(key, None)
        said = []
        for news in c.many(c.obj, MAX_REPLICAS)(value.get("set", [])):
            checked = c.each(_REPLICA, news)
            _complete(checked, ("topic", "partition"), "a replica")
            key = checked.pop("topic"), checked.pop("partition")
            now = held.setdefault(key, {})
            now.update(checked)
            for name, nothing in _LATER.items():
                now.setdefault(name, nothing)
            if self._skipped and any(name not in now for name in REPLICA_FIELDS):
                continue
            _complete(now, REPLICA_FIELDS, f"the replica of {key[0]}-{key[1]}")
            values: dict[str, Any] = {name: tuple(it) if isinstance(it, list) else it for name, it in now.items()}
            said.append(ReplicaState(topic=key[0], partition=key[1], **values))
        if len(held) > MAX_REPLICAS:
            raise ValueError(f"node {node} has {len(held)} replicas: allowed are {MAX_REPLICAS}")
        return Replicas(ts=ts, node=node, at=at, said=tuple(said), gone=tuple(gone))


def _needed(table: dict[str, c.Check], value: dict[str, Any]) -> dict[str, Any]:
    found = c.each(table, value)
    _complete(found, table, "it")
    return found


def _complete(found: dict[str, Any], names: Iterable[str], what: str) -> None:
    missing = [name for name in names if name not in found]
    if missing:
        raise ValueError(f"{what} has no {', '.join(missing)}")
