"""The story of a topic, read from the metadata log: who was fenced, who leads since when, when the ISRs were whole again.

Every batch of the metadata log carries the active controller's clock at its append, so the log alone tells the story, and each
sentence can name the record that it rests on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

from kraftlite.log.control import LeaderChange
from kraftlite.metadata.records import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from kraftlite.metadata.registrations import PartitionRegistration
from kraftlite.postmortem.reading import Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMove:
    """A change of one partition: before and after."""

    offset: int
    time_ms: int
    partition: int
    before: PartitionRegistration
    after: PartitionRegistration


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A broker or the quorum changed: `what` in words, with the record's offset."""

    offset: int
    time_ms: int
    what: str
    node: int


class History:
    """The metadata log's changes of one topic, and of brokers and the quorum."""

    def __init__(self, entries: Iterator[Entry], topic: str) -> None:
        self.moves: list[PartitionMove] = []
        self.changes: list[Change] = []
        self.partitions: dict[int, PartitionRegistration] = {}
        self._topic = topic
        self._topic_id: UUID | None = None
        for entry in entries:
            self._replay(entry)

    def _replay(self, entry: Entry) -> None:
        record = entry.record
        if isinstance(record, TopicRecord) and record.name == self._topic:
            self._topic_id = record.topic_id
            self.partitions.clear()
        elif isinstance(record, PartitionRecord) and record.topic_id == self._topic_id:
            self.partitions[record.partition] = PartitionRegistration.from_record(record)
        elif isinstance(record, PartitionChangeRecord) and record.topic_id == self._topic_id:
            before = self.partitions[record.partition]
            after = self.partitions[record.partition] = before.merge(record)
            self.moves.append(
                PartitionMove(offset=entry.offset, time_ms=entry.time_ms, partition=record.partition, before=before, after=after)
            )
        else:
            self._note(entry)

    def _note(self, entry: Entry) -> None:
        record = entry.record
        if isinstance(record, BrokerRegistrationChangeRecord) and isinstance(record.fenced, bool):
            self._change(entry, "fenced" if record.fenced else "unfenced", record.broker_id)
        elif isinstance(record, RegisterBrokerRecord):
            self._change(entry, "registered", record.broker_id)
        elif isinstance(record, LeaderChange):
            self._change(entry, f"leads the quorum in epoch {entry.epoch}", record.leader_id)

    def _change(self, entry: Entry, what: str, node: int) -> None:
        self.changes.append(Change(offset=entry.offset, time_ms=entry.time_ms, what=what, node=int(node)))

    def first(self, what: str, *, since_ms: int, node: int | None = None) -> Change | None:
        """The first such change at or after a time."""
        return next(
            (
                change
                for change in self.changes
                if change.time_ms >= since_ms and change.what.startswith(what) and (node is None or change.node == node)
            ),
            None,
        )

    def new_leaders(self, *, since_ms: int, until_ms: int, instead_of: int) -> list[PartitionMove]:
        """Moves of leadership away from a node in a span of time."""
        return [
            move
            for move in self.moves
            if since_ms <= move.time_ms <= until_ms and move.before.leader == instead_of and move.after.leader != instead_of
        ]

    def whole_since(self, *, after_ms: int) -> PartitionMove | None:
        """The change after which every ISR was whole for good; None when one is not, or none ever shrank after `after_ms`."""
        current: dict[int, PartitionRegistration] = {}
        for move in reversed(self.moves):
            current.setdefault(move.partition, move.after)
        if any(len(found.isr) < len(found.replicas) for found in current.values()):
            return None
        grown = [move for move in self.moves if move.time_ms >= after_ms and len(move.before.isr) < len(move.after.isr)]
        return grown[-1] if grown else None
