"""A metadata log as the events that its controllers would have traced, for `obs/explain`.

Records become `controller.record_appended`, with what was before; the first batch of an epoch becomes `raft.leader_elected`. What
a trace has besides (heartbeats, requests, what brokers made of a record) is not in a log.

Source: TO-42.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby
from typing import Any
from uuid import UUID

from kraftlite.controller.describe import describe, record_name
from kraftlite.log.control import KRaftVersion, KRaftVoters, LeaderChange
from kraftlite.metadata import records
from kraftlite.metadata.image import MetadataImage
from kraftlite.metadata.registrations import BrokerRegistration, PartitionRegistration
from kraftlite.model.ids import uuid_to_str
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.obs.explain_events import Recorded
from kraftlite.obs.explain_history import RECORD
from kraftlite.postmortem.causes import Item, conclude
from kraftlite.postmortem.reading import Entry

_IDLE = (records.NoOpRecord, records.BeginTransactionRecord, records.EndTransactionRecord, records.AbortTransactionRecord)
_FENCINGS = (records.FenceBrokerRecord, records.UnfenceBrokerRecord)
_BROKERS = (records.RegisterBrokerRecord, records.UnregisterBrokerRecord, records.BrokerRegistrationChangeRecord, *_FENCINGS)
_NOBODY = -1


def log_events(
    entries: Iterable[Entry], image: MetadataImage = MetadataImage.EMPTY, *, topic: str | None = None
) -> Iterator[Recorded]:
    """The events of the entries, in order. `image`: the state before the first of them. `topic`: the partitions of other topics
    are left out, which of a large cluster leaves little."""
    teller = _Teller(image, topic)
    for _, batch in groupby(entries, key=lambda entry: entry.batch):
        yield from teller.batch(list(batch))


class _Teller:
    """The part of the state that is needed to say what was before, over the image from which it began."""

    def __init__(self, image: MetadataImage, topic: str | None) -> None:
        self._image = image
        self._topic = topic
        self._topics: dict[UUID, str] = {}
        self._partitions: dict[tuple[UUID, int], PartitionRegistration] = {}
        self._brokers: dict[int, BrokerRegistration | None] = {}
        self._levels: dict[str, int] = {}
        self._leaders: dict[int, int] = {}
        self._kraft_version = 0

    def batch(self, entries: list[Entry]) -> Iterator[Recorded]:
        items = []
        for entry in entries:
            record = entry.record
            if isinstance(record, LeaderChange):
                self._leaders[entry.epoch] = int(record.leader_id)
                yield self._elected(entry, record)
            elif isinstance(record, KRaftVersion):
                self._kraft_version = record.kraft_version
            elif isinstance(record, KRaftVoters):
                yield self._voters(entry, record)
            elif type(record) in _KINDS and not self._left_out(record):
                items.append(self._item(entry))
        conclude(items)
        by_offset = {entry.offset: entry for entry in entries}
        for item in items:
            if not isinstance(item.record, _IDLE):
                yield self._event(by_offset[item.offset], item)

    def _left_out(self, record: Any) -> bool:
        of_partition = isinstance(record, records.PartitionRecord | records.PartitionChangeRecord)
        return self._topic is not None and of_partition and self._name(record.topic_id) != self._topic

    def _item(self, entry: Entry) -> Item:
        """The record with what was before; and the state after it."""
        record = entry.record
        item = Item(offset=entry.offset, record=record)
        if isinstance(record, records.TopicRecord):
            self._topics[record.topic_id] = record.name
        elif isinstance(record, records.PartitionRecord | records.PartitionChangeRecord):
            key = (record.topic_id, record.partition)
            item.old = self._partitions.get(key) or self._image.topics.partition(*key)
            if isinstance(record, records.PartitionRecord):
                item.new = PartitionRegistration.from_record(record)
            elif item.old is not None:
                item.new = item.old.merge(record)
            if item.new is not None:
                self._partitions[key] = item.new
        elif isinstance(record, records.ClearElrRecord):
            self._clear_elr(record)
        elif isinstance(record, _BROKERS):
            item.broker = self._broker(record)
        return item

    def _clear_elr(self, record: records.ClearElrRecord) -> None:
        known = dict(self._partitions)
        for topic in self._image.topics:
            for index, registration in topic.partitions.items():
                known.setdefault((topic.topic_id, index), registration)
        for key, registration in known.items():
            cleared = registration.without_elr() if record.topic_name in ("", self._name(key[0])) else None
            if cleared is not None:
                self._partitions[key] = cleared

    def _broker(self, record: Any) -> BrokerRegistration | None:
        """The broker before its record."""
        known = record.broker_id in self._brokers
        before = self._brokers[record.broker_id] if known else self._image.cluster.broker(record.broker_id)
        after: BrokerRegistration | None = None
        if isinstance(record, records.RegisterBrokerRecord):
            after = BrokerRegistration.from_record(record)
        elif isinstance(record, records.BrokerRegistrationChangeRecord) and before is not None:
            after = before.merge(record)
        elif isinstance(record, _FENCINGS) and before is not None:
            after = replace(before, fenced=isinstance(record, records.FenceBrokerRecord))
        self._brokers[record.broker_id] = after
        return before

    def _name(self, topic_id: UUID) -> str:
        found = self._topics.get(topic_id)
        if found is None:
            topic = self._image.topics.topic_by_id(topic_id)
            found = uuid_to_str(topic_id) if topic is None else topic.name
        return found

    def _elected(self, entry: Entry, record: LeaderChange) -> Recorded:
        facts = {
            "raft_epoch": entry.epoch,
            "granting_voters": tuple(map(int, record.granting_voters)),
            "epoch_start_offset": entry.offset,
        }
        return Recorded(ms=entry.time_ms, node=int(record.leader_id), event="raft.leader_elected", facts=facts)

    def _voters(self, entry: Entry, record: KRaftVoters) -> Recorded:
        voters = tuple(sorted(int(it.voter_id) for it in record.voters))
        facts = {"offset": entry.offset, "voters": voters, "kraft_version": self._kraft_version, "leo": entry.offset}
        node = self._leaders.get(entry.epoch, _NOBODY)
        return Recorded(ms=entry.time_ms, node=node, event="raft.voters_changed", facts=facts)

    def _event(self, entry: Entry, item: Item) -> Recorded:
        record = item.record
        facts: dict[str, Any] = {
            "record": record_name(record),
            "offset": entry.offset,
            "detail": describe(record, self._name),
            "first_offset": item.first,
            "batch": entry.batch,
        }
        if item.new is not None:
            old, new = item.old, item.new
            facts |= {
                "tp": TopicPartition(self._name(record.topic_id), record.partition),
                "old_leader": None if old is None else old.leader,
                "leader": new.leader,
                "old_leader_epoch": None if old is None else old.leader_epoch,
                "leader_epoch": new.leader_epoch,
                "old_isr": None if old is None else old.isr,
                "isr": new.isr,
                "partition_epoch": new.partition_epoch,
                "old_replicas": None if old is None else old.replicas,
                "replicas": new.replicas,
                "adding": new.adding_replicas,
                "removing": new.removing_replicas,
                "recovering": new.recovering,
            }
        if isinstance(record, records.FeatureLevelRecord):
            if self._image.cluster.brokers or self._brokers:  # it is in use, and does not begin with this level
                facts["old_level"] = self._levels.get(record.name, self._image.features.level(record.name))
            self._levels[record.name] = record.level
        node = self._leaders.get(entry.epoch, _NOBODY)
        return Recorded(ms=entry.time_ms, node=node, event=RECORD, facts=facts, cause=item.cause)


_KINDS = frozenset(records.MetadataRecord.__args__)
