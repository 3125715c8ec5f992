"""Makes stories of recorded events: what happened to a partition, a topic, a node, the controller, a transactional id or a
record, and why.

    explain(events, Subject.parse("partition", "orders-0"), since_ms=…, until_ms=…).text()

`events` are those of all nodes, in any order (`from_line`, `from_trace`). Nothing is guessed: every step of a chain is a recorded
event, or the silence between two. Pure: no files, no clocks.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kraftlite.model.numbers import whole
from kraftlite.model.shown import shown
from kraftlite.obs import (
    explain_acl,
    explain_levels,
    explain_log,
    explain_node,
    explain_partition,
    explain_quorum,
    explain_transaction,
)
from kraftlite.obs.explain_causes import tell_cause
from kraftlite.obs.explain_events import Recorded, from_line, from_trace
from kraftlite.obs.explain_history import History
from kraftlite.obs.explain_node import fencing_story
from kraftlite.obs.explain_partition import isr_story, leader_story
from kraftlite.obs.explain_story import Clock, Explanation, SecondsClock, Step, Story, Telling, WallClock

__all__ = [
    "Clock",
    "Explanation",
    "History",
    "Recorded",
    "SecondsClock",
    "Step",
    "Story",
    "Subject",
    "UnknownSubject",
    "WallClock",
    "explain",
    "from_line",
    "from_trace",
]

KINDS: Final = ("partition", "topic", "node", "controller", "cluster", "transaction", "record", "acl")
_NAMELESS: Final = {"controller": "it is the quorum of all controllers", "cluster": "there is only one"}
_LISTED: Final = 20
_SUGGESTED: Final = 5


class UnknownSubject(Exception):
    """There is nothing recorded of it; the message says what there is."""


@dataclass(frozen=True, slots=True)
class Subject:
    """The subject to explain: `partition orders-0`, `topic orders`, `node 2`, `controller` (the quorum), `cluster` (all of it),
    `transaction payments` (a transactional id), `record 1841`, `acl` (all refusals) or `acl User:alice`."""

    kind: str
    name: str = ""

    @classmethod
    def parse(cls, kind: str, name: str | None = None) -> Subject:
        """Raises ValueError, with what is allowed."""
        if kind not in KINDS:
            raise ValueError(f"{kind}: allowed are {', '.join(KINDS)}")
        if kind in _NAMELESS:
            if name:
                raise ValueError(f"{kind} takes no name, not {name}: {_NAMELESS[kind]}")
            return cls(kind)
        if not name and kind == "acl":
            return cls(kind)
        if not name:
            raise ValueError(f"{kind} needs a name: {kind} {_EXAMPLES[kind]}")
        name = name.removeprefix("@") if kind == "record" else name
        name = f"User:{name}" if kind == "acl" and ":" not in name else name
        if kind in ("node", "record") and whole(name) is None:
            raise ValueError(f"{kind} {shown(name)}: allowed is a number")
        return cls(kind, name)

    def __str__(self) -> str:
        return f"{self.kind} {self.name}".rstrip()


_EXAMPLES: Final = {"partition": "orders-0", "topic": "orders", "node": "2", "transaction": "payments", "record": "1841"}


def explain(
    events: Iterable[Recorded] | History,
    subject: Subject,
    *,
    since_ms: int | None = None,
    until_ms: int | None = None,
    clock: Clock | None = None,
) -> Explanation:
    """The stories of `subject` that touch the range, which is inclusive and by default all that is recorded.

    What lies before the range is still used to explain what is in it. Raises UnknownSubject.
    """
    history = events if isinstance(events, History) else History(events)
    clock = clock if clock is not None else SecondsClock()
    _check(history, subject)
    begin_ms = history.begin_ms if since_ms is None else since_ms
    end_ms = history.end_ms if until_ms is None else until_ms
    found = [story for story in _stories(history, subject, clock) if _touches(story, begin_ms, end_ms)]
    found.sort(key=lambda story: (story.at_ms, story.from_ms))
    return Explanation(
        subject=str(subject),
        since_ms=begin_ms,
        until_ms=end_ms,
        standing=_standing(history, subject, end_ms),
        stories=tuple(found),
        clock=clock,
        missing=explain_log.missing(subject.kind) if history.log_only else (),
    )


def _touches(story: Story, since_ms: int, until_ms: int) -> bool:
    return story.from_ms <= until_ms and (story.until_ms is None or story.until_ms >= since_ms)


def _check(history: History, subject: Subject) -> None:
    if not history.events:
        raise UnknownSubject("nothing is recorded")
    match subject.kind:
        case "partition":
            known: Sequence[object] = history.partitions()
        case "topic":
            known = history.topics()
        case "node":
            known = _nodes(history)
        case "transaction":
            known = explain_transaction.transactional_ids(history)
        case "acl":
            if not subject.name:
                return
            known = explain_acl.principals(history)
        case "record":
            if history.batch_of(int(subject.name)) is not None:
                return
            known = sorted(history.records)
        case _:
            return
    if subject.name not in map(str, known):
        of = subject if subject.kind != "acl" else f"a refusal of {subject.name}"
        raise UnknownSubject(f"nothing is recorded of {of}; {_list(subject, known)}")


def _nodes(history: History) -> list[int]:
    """Nodes that recorded something, and brokers that records speak of: a node's own trace may be gone."""
    named = {record.detail.get("broker_id") for record in history.records.values()}
    return sorted({*history.nodes(), *(int(node) for node in named if isinstance(node, int))})


def _list(subject: Subject, known: Sequence[object]) -> str:
    """List what there is instead: the names that are most like it, else a few and how many more."""
    if not known:
        return f"there is no {subject.kind}" if subject.kind != "acl" else "nobody was refused anything"
    if subject.kind == "record":
        return f"recorded are @{known[0]} to @{known[-1]}, without those that the quorum wrote for itself"
    names = [str(name) for name in known]
    close = difflib.get_close_matches(subject.name, names, n=_SUGGESTED) if len(names) > _SUGGESTED else []
    if close:
        return f"did you mean {' or '.join(close)}?"
    more = f" and {len(names) - _SUGGESTED} more" if len(names) > _SUGGESTED else ""
    there = "something was refused to" if subject.kind == "acl" else "there are:"
    return f"{there} {', '.join(names[:_SUGGESTED])}{more}"


def _stories(history: History, subject: Subject, clock: Clock) -> Iterator[Story]:
    match subject.kind:
        case "partition":
            yield from _partition_stories(history, subject.name, clock)
        case "topic":
            yield from _topic_stories(history, subject.name, clock)
        case "node":
            yield from explain_node.node_stories(history, int(subject.name), clock)
            if history.log_only:
                yield from explain_log.node_stories(history, int(subject.name), clock)
        case "controller":
            yield from explain_quorum.quorum_stories(history, clock)
            yield from explain_levels.voter_stories(history, clock)
            yield from explain_levels.feature_stories(history, clock)
        case "cluster":
            yield from explain_log.cluster_stories(history, clock)
        case "transaction":
            yield from explain_transaction.transaction_stories(history, subject.name, clock)
        case "acl":
            yield from explain_acl.acl_stories(history, subject.name, clock)
        case _:
            yield _record_story(history, int(subject.name), clock)


def _standing(history: History, subject: Subject, until_ms: int) -> str:
    match subject.kind:
        case "partition":
            return explain_partition.standing(history, subject.name, until_ms)
        case "topic":
            partitions = history.partitions_of(subject.name)
            found = [f"{name} {explain_partition.standing(history, name, until_ms)}" for name in partitions[:_LISTED]]
            return "; ".join(found) or "no partition of it is recorded"
        case "node":
            tell = explain_log.node_standing if history.log_only else explain_node.standing
            return tell(history, int(subject.name), until_ms)
        case "controller":
            return explain_quorum.standing(history, until_ms)
        case "cluster":
            return explain_log.cluster_standing(history, until_ms)
        case "transaction":
            return explain_transaction.standing(history, subject.name, until_ms)
        case "acl":
            return explain_acl.standing(history, subject.name, until_ms)
        case _:
            record = history.records.get(int(subject.name))
            return "one of many of an operation" if record is None else str(record.get("record"))


# --- partitions, topics and records


def _partition_stories(history: History, name: str, clock: Clock) -> Iterator[Story]:
    yield from explain_partition.partition_stories(history, name, clock)
    if history.log_only:
        yield from explain_log.partition_stories(history, name, clock)


def _topic_stories(history: History, topic: str, clock: Clock) -> Iterator[Story]:
    """The topic's own records, and what happened to its partitions."""
    for _, record in sorted(history.records.items()):
        detail = record.detail
        match record.get("record"):
            case "Topic":
                concerned = detail.get("name") == topic
            case "RemoveTopic":
                concerned = record.get("detail") == topic
            case "Config":
                concerned = detail.get("resource_name") == topic and record.operation != "create_topics"
            case _:
                concerned = False
        if concerned:
            yield _plain_story(history, record, clock)
    for name in history.partitions_of(topic):
        for story in _partition_stories(history, name, clock):
            if story.kind not in ("created", "deleted"):
                yield story


def _record_story(history: History, offset: int, clock: Clock) -> Story:
    record = history.records.get(offset)
    if record is None:
        return _untraced_story(history, offset, clock)
    change = history.change_at(offset)
    if change is not None and change.moves_leader:
        return leader_story(history, change, clock)
    if change is not None and (change.lost or change.joined):
        return isr_story(history, change, clock)
    if record.get("record") == "BrokerRegistrationChange" and "fenced" in record.detail:
        return fencing_story(history, record, clock)
    return _plain_story(history, record, clock)


def _plain_story(history: History, record: Recorded, clock: Clock) -> Story:
    """Tell why the record was written, what was written with it, and what nodes made of it."""
    telling = Telling(clock)
    step: Step | None = tell_cause(telling, history, record)
    offset = int(record.get("offset"))
    name = f"{record.get('record')} {record.get('detail', '')}".rstrip()
    step = telling.note(record, name, because=step, brief=f"{_upper(str(record.get('record')))} @{offset}")
    for sibling in history.siblings(record):
        if sibling is not record:
            words = f"{sibling.get('record')} {sibling.get('detail', '')}".rstrip()
            telling.note(sibling, f"of the same operation: {words}", because=step)
    _tell_consequences(telling, history, offset, step)
    return telling.story("record", name, record.ms, record=offset, operation=record.operation)


def _untraced_story(history: History, offset: int, clock: Clock) -> Story:
    batch = history.batch_of(offset)
    assert batch is not None, "checked before"
    telling = Telling(clock)
    step: Step | None = tell_cause(telling, history, batch)
    last = int(batch.get("last_offset"))
    what = f"one of the {batch.get('count')} records up to @{last}, which are not all recorded by themselves"
    step = telling.add(batch.ms, batch.node, what, because=step, brief=f"record @{offset}", record=offset, event=batch.event)
    _tell_consequences(telling, history, offset, step)
    return telling.story("record", f"a record of {batch.operation}", batch.ms, record=offset, operation=batch.operation)


def _tell_consequences(telling: Telling, history: History, offset: int, because: Step) -> None:
    for event in history.by_cause.get(offset, ()):
        name = "" if event.partition is None else f"{event.partition}: "
        telling.note(event, f"{name}{event.event} on node {event.node}", because=because)


def _upper(name: str) -> str:
    """`PARTITION_CHANGE`, as `kraftlite log dump` says it."""
    return "".join(f"_{letter}" if letter.isupper() and position else letter for position, letter in enumerate(name)).upper()
