"""Lanes of the timeline, from recorded events and the ledger of faults. Pure.

A span of a belief begins with what a node recorded when it took it up, and ends with what the same node recorded when it gave it
up. So two nodes that believed to lead at once are two spans above each other, also when nobody asked them in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from kraftlite.obs.explain import Clock, History, Subject, UnknownSubject, WallClock, explain
from kraftlite.obs.explain_events import Recorded
from kraftlite.obs.explain_story import Story

MAX_SPANS: Final = 400
MAX_STORIES: Final = 80
MAX_STEPS: Final = 60
MAX_EPOCHS: Final = 12
_OVERVIEW: Final = frozenset(
    {"fenced", "unfenced", "died", "paused", "faulted", "log_dir_failed", "fault", "elected", "resigned", "leader_changed"}
    | {"truncated", "stopped", "started", "not_writable", "hw_stalled", "log_damaged", "voters", "level"}
)
"""The kinds of stories that the overview lists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A stretch of a lane. `until_ms` None: it goes on as far as is recorded."""

    lane: str
    kind: str
    label: str
    from_ms: int
    until_ms: int | None

    def to_dict(self) -> dict[str, Any]:
        return {"lane": self.lane, "kind": self.kind, "label": self.label, "from": self.from_ms, "until": self.until_ms}


def lane_names(history: History, partitions: Iterable[str]) -> list[str]:
    """The lanes from top to bottom."""
    return ["faults", "quorum", *(f"node {node}" for node in history.nodes()), *partitions]


def lanes_of(history: History, since_ms: int, partitions: Iterable[str]) -> list[dict[str, Any]]:
    """Faults, the quorum, every node, and these partitions; spans that ended before `since_ms` are left out."""
    kept = [span for span in every_span(history, partitions) if span.until_ms is None or span.until_ms >= since_ms]
    kept.sort(key=lambda span: span.from_ms)
    return [span.to_dict() for span in kept[-MAX_SPANS:]]


def every_span(history: History, partitions: Iterable[str]) -> Iterator[Span]:
    """All that is recorded of faults, the quorum, every node, and these partitions."""
    yield from _faults(history)
    yield from _quorum(history)
    for node in history.nodes():
        yield from _node(history, node)
    for name in partitions:
        yield from _partition(history, name)


def _faults(history: History) -> Iterator[Span]:
    for fault in history.faults:
        if fault.failed is None and fault.kind not in ("resume", "start"):  # those end others
            until_ms = fault.ended_ms if fault.ended_ms is not None or fault.active else fault.seen_ms or fault.asked_ms
            label = f"{fault.kind} {fault.node} by {fault.by}"
            yield Span(lane="faults", kind="fault", label=label, from_ms=fault.asked_ms, until_ms=until_ms)


def _ends(history: History, node: int, since_ms: int, names: tuple[str, ...], **facts: Any) -> int | None:
    """The time at which the node gave up what it took up at `since_ms`: by one of these events, or by the end of its process,
    which is known from its last word where a new process has started."""
    restart = history.start_after(node, since_ms)
    stopped = history.first("node.stopped", node=node, since_ms=since_ms)
    given_up = history.first(*names, node=node, since_ms=since_ms, **facts) if names else None
    last = None
    if restart is not None:
        before = history.before(node, restart.ms)
        last = restart.ms if before is None else before.ms
    kill = history.fault_on(node, since_ms, since_ms + (1 << 40))
    killed = kill.seen_ms or kill.asked_ms if kill is not None and kill.kind == "kill" else None
    times = [event.ms for event in (given_up, stopped) if event is not None]
    times += [ms for ms in history.ended.get(node, ()) if ms >= since_ms][:1]
    times += [time for time in (last, killed) if time is not None]
    return min(times) if times else None


def _quorum(history: History) -> Iterator[Span]:
    for event in history.by_name.get("controller.claimed", []):
        until_ms = _ends(history, event.node, event.ms, ("controller.renounced",))
        label = f"{event.node} active, epoch {event.get('raft_epoch')}"
        yield Span(lane="quorum", kind="leads", label=label, from_ms=event.ms, until_ms=until_ms)


def _node(history: History, node: int) -> Iterator[Span]:
    for event in history.by_node[node]:
        if event.event == "node.starting":
            until_ms = _ends(history, node, event.ms, ())
            yield Span(lane=f"node {node}", kind="up", label="runs", from_ms=event.ms, until_ms=until_ms)
        elif event.event == "node.stalled":
            stalled_ms = int(event.get("stalled_ms"))
            label = f"nothing ran for {stalled_ms / 1000:.1f} s"
            yield Span(lane=f"node {node}", kind="stalled", label=label, from_ms=event.ms - stalled_ms, until_ms=event.ms)
    yield from _fenced(history, node)


def _fenced(history: History, node: int) -> Iterator[Span]:
    began: Recorded | None = None
    for record in history.registrations(node):
        fenced = record.detail.get("fenced")
        if fenced is True and began is None:
            began = record
        elif fenced is False and began is not None:
            yield _fence(node, began, record.ms)
            began = None
    if began is not None:
        yield _fence(node, began, None)


def _fence(node: int, began: Recorded, until_ms: int | None) -> Span:
    return Span(lane=f"node {node}", kind="fenced", label=f"fenced @{began.get('offset')}", from_ms=began.ms, until_ms=until_ms)


def _partition(history: History, name: str) -> Iterator[Span]:
    own = history.by_partition.get(name, [])
    for event in own:
        if event.event != "partition.leader_started":
            continue
        later = (
            other.ms
            for other in own
            if other.node == event.node
            and other.ms >= event.ms
            and other is not event
            and other.event in ("partition.leader_started", "partition.follower_started", "partition.removed")
        )
        ended = _ends(history, event.node, event.ms, ())
        times = [time for time in (next(later, None), ended) if time is not None]
        label = f"{event.node} leads, epoch {event.get('leader_epoch')}"
        yield Span(lane=name, kind="leads", label=label, from_ms=event.ms, until_ms=min(times) if times else None)


def epochs_of(history: History, name: str) -> list[dict[str, Any]]:
    """The leader epochs of a partition, with the offset at which each begins, as its leader recorded it; by epoch, the newest."""
    found: dict[int, dict[str, Any]] = {}
    for event in history.by_partition.get(name, []):
        epoch, start = event.get("leader_epoch"), event.get("epoch_start_offset")
        if event.event == "partition.leader_started" and epoch is not None and start is not None:  # its line may be damaged
            found.setdefault(epoch, {"ts": event.ms, "epoch": epoch, "start": start, "leader": event.node})
    return [found[epoch] for epoch in sorted(found)][-MAX_EPOCHS:]


def stories_of(history: History, subject: Subject, since_ms: int, clock: Clock | None = None) -> list[dict[str, Any]]:
    """The stories of one subject, the newest first; `clock` is a wall clock if not given. Raises UnknownSubject."""
    found = explain(history, subject, since_ms=since_ms, clock=clock or WallClock()).stories
    return [_shown(story, str(subject)) for story in sorted(found, key=lambda story: -story.at_ms)[:MAX_STORIES]]


def recent_stories(
    history: History, partitions: Iterable[str], since_ms: int, clock: Clock | None = None
) -> list[dict[str, Any]]:
    """The latest stories of the quorum, of all nodes, and of these partitions, the newest first, each once."""
    subjects = [Subject("controller"), *(Subject("node", str(node)) for node in history.nodes())]
    subjects += [Subject("partition", name) for name in partitions]
    found: dict[tuple[str, int, str], dict[str, Any]] = {}
    for subject in subjects:
        try:
            told = explain(history, subject, since_ms=since_ms, clock=clock or WallClock()).stories
        except UnknownSubject:
            continue
        for story in told:
            if story.kind in _OVERVIEW:
                found.setdefault((story.kind, story.at_ms, story.title), _shown(story, str(subject)))
    return sorted(found.values(), key=lambda story: -story["at_ms"])[:MAX_STORIES]


def _shown(story: Story, subject: str) -> dict[str, Any]:
    told = story.to_dict()
    steps = told["steps"]
    assert isinstance(steps, list)
    return {
        "subject": subject,
        **{name: told[name] for name in ("kind", "title", "at_ms", "from_ms", "until_ms", "chain")},
        "steps": steps[:MAX_STEPS],
        "more": max(0, len(steps) - MAX_STEPS),
    }
