"""Stories that a metadata log tells without a trace, and those of a whole cluster.

A log has what was decided, and when. What led to it, and what the nodes made of it, is in traces alone (`missing`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final

from kraftlite.obs import explain_levels, explain_node, explain_partition, explain_quorum
from kraftlite.obs.explain_causes import tell_cause
from kraftlite.obs.explain_events import Recorded
from kraftlite.obs.explain_history import RECORD, Change, History
from kraftlite.obs.explain_story import Clock, Step, Story, Telling, ids, seconds, who

_NAMED: Final = 8
_TOLD: Final = frozenset(
    {"maybe_fence_stale_broker", "broker_heartbeat", "register_broker", "unregister_broker", "alter_partition_reassignments"}
)
"""Operations that are told as the story of a broker or of a reassignment, with the partitions that they changed."""

_PARTITION: Final = (
    "since when its leader was silent before it was replaced, and when the new one began to serve",
    "when the first produce was acknowledged again, and for how long the HW stood still",
    "how far behind a replica was that left the ISR, and what logs lost when they were truncated",
)
_NODE: Final = (
    "when its process started, stopped, was killed, paused or cut off",
    "its last heartbeat before it was fenced, and why none followed",
)
_QUORUM: Final = ("why an election was held: who timed out or resigned, who stood for it, which rounds were lost",)
_RECORD: Final = ("which request or timer made the controller write it, and what brokers made of it",)
_MISSING: Final = {
    "partition": _PARTITION,
    "topic": _PARTITION,
    "node": _NODE,
    "controller": _QUORUM,
    "cluster": (*_QUORUM, *_NODE, *_PARTITION),
    "record": _RECORD,
}


def missing(kind: str) -> tuple[str, ...]:
    """Name the facts that a trace would add to the stories of such a subject."""
    return _MISSING.get(kind, ())


# --- partitions


def partition_stories(history: History, name: str, clock: Clock) -> Iterator[Story]:
    """The times without a leader, and the reassignments."""
    changes = history.changes.get(name, [])
    for lost, found in _without_leader(changes):
        yield _gap(history, name, lost, found, clock)
    yield from reassignment_stories(history, name, clock)


def _without_leader(changes: list[Change]) -> Iterator[tuple[Change, Change | None]]:
    """The changes after which nobody led, each with the one that ended that."""
    lost: Change | None = None
    for change in changes:
        if change.leader is None and not change.new:
            lost = lost or change
        elif lost is not None:
            yield lost, change
            lost = None
    if lost is not None:
        yield lost, None


def _gap(history: History, name: str, lost: Change, found: Change | None, clock: Clock) -> Story:
    telling = Telling(clock)
    step = explain_partition.tell_change(telling, history, lost)
    if found is not None:
        cause = tell_cause(telling, history, found.record, found)
        what = f"broker {found.leader} leads in epoch {found.leader_epoch}"
        brief = f"broker {found.leader} elected {clock.short(found.ms)}"
        telling.add(found.ms, found.node, what, because=cause or step, brief=brief, record=found.offset)
    return _not_writable(telling, name, lost, found, partition=name)


def _not_writable(telling: Telling, whose: str, lost: Change, found: Change | None, **facts: object) -> Story:
    since = telling.clock.short(lost.ms)
    if found is None:
        what = f"no leader since {since}, as far as the log goes"
    else:
        what = f"no leader for {seconds(found.ms - lost.ms)} from {since}"
    return telling.story(
        "not_writable",
        f"{whose}: {what}",
        lost.ms,
        from_ms=lost.ms,
        until_ms=None if found is None else found.ms,
        goes_on=found is None,
        **facts,
        reason="no leader",
        record=lost.offset,
    )


def reassignment_stories(history: History, name: str, clock: Clock) -> Iterator[Story]:
    """From the record that gives a partition other replicas to the one after which nothing is added or removed any more."""
    begun: Recorded | None = None
    for event in history.by_partition.get(name, ()):
        if event.event != RECORD or event.get("old_replicas") is None or history.records.get(event.get("offset")) is not event:
            continue
        moving = bool(event.get("adding") or event.get("removing"))
        if begun is None and (moving or event.get("replicas") != event.get("old_replicas")):
            begun = event
        if begun is not None and not moving:
            yield _reassigned(history, name, begun, event, clock)
            begun = None
    if begun is not None:
        yield _reassigned(history, name, begun, None, clock)


def _reassigned(history: History, name: str, begun: Recorded, ended: Recorded | None, clock: Clock) -> Story:
    telling = Telling(clock)
    old, now = begun.get("old_replicas"), (ended or begun).get("replicas")
    step: Step | None = tell_cause(telling, history, begun)
    moving = [f"{word} {ids(begun.get(key))}" for key, word in (("adding", "adding"), ("removing", "removing")) if begun.get(key)]
    what = f"{name}: replicas {ids(old)}→{ids(begun.get('replicas'))}" + (f", {', '.join(moving)}" if moving else "")
    step = telling.note(begun, what, because=step, brief=f"REASSIGN @{begun.get('offset')} {', '.join(moving)}".rstrip())
    if ended is not None and ended is not begun:
        for change in history.changes.get(name, []):
            if begun.ms <= change.ms < ended.ms and change.joined and change.record is not begun:
                step = telling.note(change.record, f"{ids(change.joined)} joined the ISR", because=step)
        what = f"replicas {ids(now)}, ISR {ids(ended.get('isr'))}; nothing is added or removed any more"
        telling.note(ended, what, because=step, brief=f"done @{ended.get('offset')}")
    cancelled = ended is not None and ended is not begun and set(now) == set(old)
    span = " at once" if ended is begun else "" if ended is None else f" in {seconds(ended.ms - begun.ms)}"
    how = "is under way yet" if ended is None else f"was cancelled{span}" if cancelled else f"was done{span}"
    target = now if ended is not None else [it for it in now if it not in (begun.get("removing") or ())]
    return telling.story(
        "reassigned",
        f"{name}: the reassignment of {ids(old)} to {ids(target)} {how}",
        begun.ms,
        from_ms=begun.ms,
        until_ms=None if ended is None else ended.ms,
        goes_on=ended is None,
        partition=name,
        old_replicas=list(old),
        replicas=list(target),
        record=begun.get("offset"),
    )


# --- nodes


def node_stories(history: History, node: int, clock: Clock) -> Iterator[Story]:
    """The broker's registrations: a new process each, and controlled shutdowns."""
    for record in history.registrations(node):
        detail = record.detail
        if record.get("record") == "RegisterBroker":
            telling = Telling(clock)
            replaced = record.reasons.get("replaces")
            what = f"broker {node} registers, a new process" + (
                "" if replaced is None else f" in place of that of epoch {replaced}"
            )
            step = telling.note(record, what, brief=f"REGISTER @{record.get('offset')}")
            explain_node.tell_partitions(telling, history, record, step)
            title = f"broker {node} registered: its process has started"
            yield telling.story("started", title, record.ms, node=node, record=record.get("offset"))
        elif detail.get("in_controlled_shutdown") is True:
            telling = Telling(clock)
            what = f"broker {node} asks for a controlled shutdown: its leaderships move first"
            step = telling.note(record, what, brief=f"CONTROLLED_SHUTDOWN @{record.get('offset')}")
            explain_node.tell_partitions(telling, history, record, step)
            title = f"broker {node} began a controlled shutdown"
            yield telling.story("stopped", title, record.ms, node=node, record=record.get("offset"))


def node_standing(history: History, node: int, until_ms: int) -> str:
    """The broker by its last record."""
    known = [record for record in history.registrations(node) if record.ms <= until_ms]
    if not known:
        return "no record of it is in the log before the end of this time"
    last = known[-1]
    return f"the last record of it is @{last.get('offset')}, {last.get('record')} {last.get('detail')}"


# --- the cluster


def cluster_stories(history: History, clock: Clock) -> Iterator[Story]:
    """Elections of the quorum, what brokers went through, and changes of partitions that follow from neither."""
    yield from explain_quorum.quorum_stories(history, clock)
    yield from explain_levels.voter_stories(history, clock)
    yield from explain_levels.feature_stories(history, clock)
    for node in brokers(history):
        for story in explain_node.node_stories(history, node, clock):
            if story.kind not in ("elected", "resigned", "truncated"):
                yield story
        if history.log_only:
            yield from node_stories(history, node, clock)
    yield from _gaps(history, clock)
    yield from _reassignments(history, clock)
    rest = [
        change
        for changes in history.changes.values()
        for change in changes
        if _matters(change) and (change.record.operation not in _TOLD or explain_partition.is_unclean(change))
    ]
    rest.sort(key=lambda change: (change.offset or 0, change.partition))
    for (_, kind), found in groupby(rest, key=lambda change: (_batch(change), _kind(change))):
        yield _together(history, kind, list(found), clock)


def _matters(change: Change) -> bool:
    """Return whether the change is one of the leader or of the ISR; losses of leaders are told by themselves."""
    moved = change.old_leader != change.leader
    return not change.new and change.leader is not None and bool(moved or change.lost or change.joined)


def _gaps(history: History, clock: Clock) -> Iterator[Story]:
    """The times without a leader, those together that began and ended together."""
    found: dict[tuple[object, object], list[tuple[Change, Change | None]]] = {}
    for changes in history.changes.values():
        for lost, ended in _without_leader(changes) if history.log_only else ():
            key = (_batch(lost), None if ended is None else _batch(ended))
            found.setdefault(key, []).append((lost, ended))
    for gaps in found.values():
        lost, ended = gaps[0]
        if len(gaps) == 1:
            yield _gap(history, lost.partition, lost, ended, clock)
            continue
        telling = Telling(clock)
        step = tell_cause(telling, history, lost.record, lost)
        names = [change.partition for change, _ in gaps]
        named = ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
        brief = f"{len(gaps)} partitions without a leader {clock.short(lost.ms)}"
        step = telling.add(lost.ms, lost.node, f"nobody leads {named}", because=step, brief=brief, record=lost.offset)
        if ended is not None:
            cause = tell_cause(telling, history, ended.record, ended)
            brief = f"leaders elected {clock.short(ended.ms)}"
            telling.add(ended.ms, ended.node, "all of them have leaders", because=cause or step, brief=brief, record=ended.offset)
        yield _not_writable(telling, f"{len(gaps)} partitions", lost, ended, partitions=names)


def _batch(change: Change) -> object:
    return change.record.get("batch", change.offset)


def _reassignments(history: History, clock: Clock) -> Iterator[Story]:
    """The reassignments; only the first ones of many that began together: `explain topic` has all of them."""
    told: dict[int, int] = {}
    for name in history.partitions() if history.log_only else ():
        for story in reassignment_stories(history, name, clock):
            told[story.at_ms] = told.get(story.at_ms, 0) + 1
            if told[story.at_ms] <= _NAMED:
                yield story
    for at_ms, count in told.items():
        if count > _NAMED:
            telling = Telling(clock)
            what = f"{count - _NAMED} more reassignments begin: `explain topic` tells of them"
            telling.add(at_ms, -1, what, brief=f"{count - _NAMED} more")
            yield telling.story("reassigned", f"{count - _NAMED} more reassignments began", at_ms, count=count)


def _kind(change: Change) -> str:
    if change.old_leader != change.leader:
        return "unclean" if explain_partition.is_unclean(change) else "leader_changed"
    return "isr_shrunk" if change.lost else "isr_expanded"


_WORDS: Final = {
    "unclean": "a leader from outside of the ISR",
    "leader_changed": "another leader",
    "isr_shrunk": "a smaller ISR",
    "isr_expanded": "a larger ISR",
}


def _together(history: History, kind: str, changes: list[Change], clock: Clock) -> Story:
    if len(changes) == 1:
        change = changes[0]
        tell = explain_partition.leader_story if change.old_leader != change.leader else explain_partition.isr_story
        return tell(history, change, clock)
    telling = Telling(clock)
    first = changes[0]
    step = tell_cause(telling, history, first.record, first)
    for change in changes[:_NAMED]:
        words = f"leader {who(change.old_leader)}→{who(change.leader)}, " if change.moves_leader else ""
        telling.note(change.record, f"{change.partition}: {words}ISR {ids(change.old_isr or ())}→{ids(change.isr)}", because=step)
    unnamed = f"; {len(changes) - _NAMED} are not named here" if len(changes) > _NAMED else ""
    what = f"{len(changes)} partitions have {_WORDS[kind]}{unnamed}"
    brief = f"PARTITION_CHANGE @{first.offset} and {len(changes) - 1} more"
    telling.add(first.ms, first.node, what, because=step, brief=brief, record=first.offset)
    kind = "leader_changed" if kind == "unclean" else kind
    names = [change.partition for change in changes]
    return telling.story(kind, f"{what.partition(';')[0]} at once", first.ms, partitions=names, record=first.offset)


def brokers(history: History) -> list[int]:
    """The brokers that the recorded registrations are of."""
    named = {record.detail.get("broker_id") for record in history.records.values()}
    return sorted(int(node) for node in named if isinstance(node, int) and history.registrations(node))


def cluster_standing(history: History, until_ms: int) -> str:
    """Tell who is the controller, which brokers are fenced, and how many partitions have no leader."""
    words = [explain_quorum.standing(history, until_ms)]
    fenced = [node for node in brokers(history) if _fenced(history.registrations(node), until_ms)]
    words.append(f"of brokers {ids(brokers(history))} {ids(fenced)} {'are' if len(fenced) != 1 else 'is'} fenced")
    last = [found[-1] for name in history.partitions() if (found := [c for c in history.changes[name] if c.ms <= until_ms])]
    words.append(
        f"{sum(change.leader is None for change in last)} of {len(last)} partitions with recorded changes have no leader"
    )
    return "; ".join(words)


def _fenced(records: Iterable[Recorded], until_ms: int) -> bool:
    fenced = False
    for record in records:
        if record.ms <= until_ms:
            fenced = bool(record.detail.get("fenced", fenced))
    return fenced
