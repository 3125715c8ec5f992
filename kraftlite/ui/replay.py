"""A recording as the page shows it: the state at each of its moments, by the same fold as the live page's. Pure.

A tape is all that the page needs, as one value of JSON. Its frames are the states, each as what has changed since the one before.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from kraftlite.obs.explain import Clock, History, Recorded, SecondsClock, Subject, UnknownSubject, WallClock
from kraftlite.obs.faults import EVENTS, Fault, faults_of, overdue_ms
from kraftlite.obs.recording import VIRTUAL, Header
from kraftlite.obs.recording_reader import (
    ClientSaid,
    Described,
    End,
    LeftOut,
    Line,
    Look,
    Note,
    RecordingError,
    Replicas,
    Silent,
    Status,
    Turn,
)
from kraftlite.ui.fold import Judge, page_of, quorum_of, state_of
from kraftlite.ui.quorum_tail import records, votes
from kraftlite.ui.reports import Reports, add_clients, outages
from kraftlite.ui.timeline import Span, epochs_of, lane_names, lanes_of, recent_stories, stories_of
from kraftlite.ui.words import NodeWords

MAX_FRAMES: Final = 6_000
"""States of one tape; of a recording with more moments every second, third … is left out."""
MAX_EVENTS: Final = 20_000
MAX_NOTES: Final = 500
MAX_SUBJECTS: Final = 60
"""Partitions of which a tape has the stories: those of which most events tell."""
_LANES: Final = 6

Lines = Callable[[], Iterable[Line]]
"""Reads the recording from its beginning."""


class Replay:
    """The words of all nodes, line by line."""

    def __init__(self, header: Header) -> None:
        self.nodes: dict[int, NodeWords] = {}
        self.judge = Judge()
        self.reports = Reports()
        self._every_ms = header.every_ms

    def take(self, line: Look) -> None:
        if isinstance(line, Turn):
            return
        if isinstance(line, ClientSaid):
            self.reports.take(line.report)
            return
        if isinstance(line, Described):
            words = self.nodes.get(line.node)
            if words is None:
                words = self.nodes[line.node] = NodeWords(id=line.node, roles=line.roles, every_ms=self._every_ms)
            words.process = line.process
            return
        words = self.nodes[line.node]
        match line:
            case Status():
                words.hear_status(line.status, line.at, line.rtt_ms)
            case Replicas():
                said = words.replicas
                if line.said or line.gone:
                    said = {key: it for key, it in said.items() if key not in line.gone}
                    said |= {(it.topic, it.partition): it for it in line.said}
                words.hear_replicas(said.values(), line.at)
            case Silent():
                words.fail(line.why)

    def sorted_nodes(self) -> list[NodeWords]:
        return [self.nodes[node_id] for node_id in sorted(self.nodes)]

    def judge_at(self, at_ms: int) -> None:
        """Remember since when everything stands as it does."""
        nodes = self.sorted_nodes()
        self.judge.partitions(nodes, at_ms)
        quorum_of(nodes, at_ms, self.judge.memory)

    def state(self, at_ms: int, faults: list[Fault], wanted: str = "") -> dict[str, Any]:
        """The `state` and the `partitions` of the page, in the shape in which the live page's stream has them."""
        nodes = self.sorted_nodes()
        parts = self.judge.partitions(nodes, at_ms)
        state = state_of(nodes, parts, faults, at_ms, self.judge.memory)
        add_clients(state, self.reports, at_ms)
        state.update(recorded=0, gone=None, self={"late_ms": 0, "every_ms": self._every_ms, "pages": 1})
        return {"state": state, "partitions": page_of(parts["rows"], wanted)}


@dataclass(slots=True)
class _Summary:
    """A recording, read once to know how long it is."""

    header: Header
    moments: int = 0
    begin_ms: int | None = None
    end_ms: int = 0
    events: deque[Recorded] = field(default_factory=lambda: deque(maxlen=MAX_EVENTS))
    ledger: list[Recorded] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    ended: dict[int, list[int]] = field(default_factory=dict)
    reports: Reports = field(default_factory=Reports)
    left_out: int = 0
    """Events that were too long for the recording."""
    end: End | None = None


def _summary(lines: Iterable[Line]) -> _Summary:
    walk = iter(lines)
    header = next(walk)
    assert isinstance(header, Header)
    found = _Summary(header)
    for line in walk:
        if isinstance(line, Recorded):
            found.events.append(line)
            if line.event in EVENTS and len(found.ledger) < MAX_EVENTS:
                found.ledger.append(line)
        elif isinstance(line, Note):
            if len(found.notes) < MAX_NOTES:
                found.notes.append(line)
        elif isinstance(line, LeftOut):
            found.left_out += 1
        elif isinstance(line, End):
            found.end = line
        elif not isinstance(line, Header):
            if isinstance(line, ClientSaid):
                found.reports.take(line.report)
            found.moments += found.begin_ms is None or line.ts != found.end_ms
            if isinstance(line, Described) and line.process == "stopped":
                found.ended.setdefault(line.node, []).append(line.ts)
            found.begin_ms, found.end_ms = line.ts if found.begin_ms is None else found.begin_ms, line.ts
    if found.begin_ms is None:
        raise RecordingError("the recording is empty: no node has said anything in it")
    found.ledger.sort(key=lambda event: event.ms)
    found.notes.sort(key=lambda note: note.ts)
    return found


def state_at(lines: Iterable[Line], ledger: list[Recorded], at_ms: int, wanted: str = "") -> dict[str, Any] | None:
    """The state at the last moment of the recording that is not after `at_ms`, with the partitions whose names have `wanted` in
    them; None when it begins later. All moments before are judged: a verdict may depend on how long it has lasted."""
    walk = iter(lines)
    header = next(walk)
    assert isinstance(header, Header)
    replay, ts = Replay(header), None
    for line in walk:
        if isinstance(line, Recorded | Note | LeftOut | End | Header):
            continue
        if line.ts > at_ms:
            break
        if ts is not None and line.ts != ts:
            replay.judge_at(ts)
        ts = line.ts
        replay.take(line)
    if ts is None:
        return None
    faults = faults_of([event for event in ledger if event.ms <= ts], ts)
    found = replay.state(ts, faults, wanted)
    return {**found["state"], **found["partitions"]}


def states(lines: Iterable[Line], ledger: list[Recorded], keep_every: int = 1) -> Iterator[tuple[int, dict[str, Any]]]:
    """The state at each moment at which the recording says something, or at every `keep_every`-th and the last one."""
    walk = iter(lines)
    header = next(walk)
    assert isinstance(header, Header)
    replay = Replay(header)
    times = [event.ms for event in ledger]
    known, faults, ts, number = -1, list[Fault](), None, 0
    over_ms: int | None = None

    def now(at_ms: int) -> tuple[int, dict[str, Any]]:
        nonlocal known, faults, over_ms
        told = bisect_right(times, at_ms)
        if told != known or (over_ms is not None and at_ms >= over_ms):
            known, faults = told, faults_of(ledger[:told], at_ms)
            over_ms = overdue_ms(faults)
        return at_ms, replay.state(at_ms, faults)

    for line in walk:
        if isinstance(line, Recorded | Note | LeftOut | End | Header):
            continue
        if ts is not None and line.ts != ts:
            if number % keep_every == 0:
                yield now(ts)
            number += 1
        ts = line.ts
        replay.take(line)
    if ts is not None:
        yield now(ts)


def tape_of(lines: Lines, *, max_frames: int = MAX_FRAMES, max_subjects: int = MAX_SUBJECTS) -> dict[str, Any]:
    """All of a recording for the page. Raises RecordingError."""
    about = _summary(lines())
    keep_every = -(-about.moments // max_frames)
    frames: list[list[Any]] = []
    last: Any = None
    for ts, state in states(lines(), about.ledger, keep_every):
        frames.append([ts, change(last, state)])
        last = state
    names = [row["name"] for row in last["partitions"]["rows"]]
    happened = Counter(event.partition for event in about.events)
    names.sort(key=lambda name: (name.startswith("__"), -happened[name]))
    try:
        told = _told(about, names[:max_subjects])
    except (TypeError, ValueError, KeyError, AttributeError, IndexError, OverflowError) as error:
        # Each event is sound by itself; together they may be what no cluster has ever recorded.
        raise RecordingError(f"the events of the recording contradict each other: {type(error).__name__}: {error}") from error
    return {
        "cluster": _cluster(about, last["state"]["nodes"]),
        "frames": frames,
        **told,
        "notes": [[note.ts, note.text, note.until_ms] for note in about.notes],
    }


def _cluster(about: _Summary, nodes: list[dict[str, Any]]) -> dict[str, Any]:
    """In the shape of the live page's `/api/v1/cluster`, and what kind of recording it is."""
    end = about.end
    return {
        "cluster_id": about.header.cluster_id,
        "controllers": sum("controller" in node["roles"] for node in nodes),
        "brokers": sum("broker" in node["roles"] for node in nodes),
        "role": "viewer",
        "faults": [],
        "timings_ms": {},
        "recording": {
            "source": about.header.source,
            "clock": about.header.clock,
            "title": about.header.title,
            "made_by": about.header.made_by,
            "plan": about.header.plan,
            "begin": about.begin_ms,
            "end": about.end_ms,
            "left_out": about.left_out,
            "clients": about.reports.count,
            "outcome": None if end is None else end.outcome,
            "text": "" if end is None else end.text,
        },
    }


def _told(about: _Summary, names: list[str]) -> dict[str, Any]:
    """All that follows from the events: stories, lanes, outages, votes and the metadata log."""
    clock: Clock = SecondsClock() if about.header.clock == VIRTUAL else WallClock()
    history = History(about.events, ended=about.ended)
    stories: dict[str, Any] = {"": recent_stories(history, [it for it in names if not it.startswith("__")], 0, clock)}
    for key, subject in [("controller", Subject("controller")), *((it, Subject("partition", it)) for it in names)]:
        try:
            stories[key] = stories_of(history, subject, 0, clock)
        except UnknownSubject:
            stories[key] = []
    shown = names[:_LANES]
    spans = [_note_span(note) for note in about.notes] + lanes_of(history, 0, shown)
    named, missed = lane_names(history, shown), about.reports.spans(0)
    if missed:
        named.insert(1, "clients")
    lanes = {"since": about.begin_ms, "until": about.end_ms, "lanes": named, "spans": [*spans, *missed]}
    return {
        "stories": stories,
        "lanes": lanes,
        "outages": outages(about.reports.gaps(), history, clock),
        "quorum": {"votes": votes(history), "records": records(history)},
        "epochs": {name: found for name in names if (found := epochs_of(history, name))},
    }


def _note_span(note: Note) -> dict[str, Any]:
    until_ms = note.ts if note.until_ms is None else note.until_ms
    return Span(lane="faults", kind="fault", label=note.text, from_ms=note.ts, until_ms=until_ms).to_dict()


# --- what has changed from one value of JSON to the next


def change(old: Any, new: Any) -> Any:
    """The change that makes `new` of `old`: `[value]` puts another in its place; `{"k": {name: change}, "x": [names]}` changes an
    object, of which `x` are gone; `{"i": {index: change}}` changes a list that stays as long; None: nothing."""
    if old == new and type(old) is type(new):
        return None
    if isinstance(old, dict) and isinstance(new, dict):
        inner = {name: found for name, value in new.items() if (found := _inner(old, name, value)) is not None}
        gone = [name for name in old if name not in new]
        return {"k": inner, **({"x": gone} if gone else {})}
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        pairs = enumerate(zip(old, new, strict=True))
        return {"i": {str(at): found for at, (was, now) in pairs if (found := change(was, now)) is not None}}
    return [new]


def _inner(old: dict[str, Any], name: str, value: Any) -> Any:
    return change(old[name], value) if name in old else [value]
