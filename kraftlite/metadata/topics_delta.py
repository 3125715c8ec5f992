"""Changes to topics, and what they mean for one broker.

Source: Kafka's TopicsDelta and LocalReplicaChanges; ML-12, ML-16, ML-17, ML-18.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from uuid import UUID

from kraftlite.metadata.image import TopicImage, TopicsImage
from kraftlite.metadata.records import (
    ClearElrRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from kraftlite.metadata.registrations import PartitionRegistration
from kraftlite.model.errors import Fault
from kraftlite.model.ids import NodeId
from kraftlite.model.topic_partition import TopicIdPartition, TopicPartition


@dataclass(slots=True, unsafe_hash=True)
class LocalPartition:
    """A local replica after a change. `offset`: of the last record that changed it; None when it came with a snapshot. A failure
    makes one for every replica of a broker (ADR 11)."""

    topic_id: UUID
    registration: PartitionRegistration
    offset: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalChanges:
    """The changes that a delta asks of one broker (ML-17). Apply `deletes` first: a topic that was deleted and created again
    under the same name is in `deletes` with its old id and in `leaders` or `followers` with its new one (ML-18).

    `elected_leaders` ⊆ `leaders`: those whose leader epoch changed too. `directories`: the assigned log directory changed.
    """

    deletes: tuple[tuple[TopicPartition, UUID], ...] = ()
    leaders: Mapping[TopicPartition, LocalPartition] = field(default_factory=dict)
    elected_leaders: Mapping[TopicPartition, LocalPartition] = field(default_factory=dict)
    followers: Mapping[TopicPartition, LocalPartition] = field(default_factory=dict)
    directories: Mapping[TopicIdPartition, UUID] = field(default_factory=dict)


class _Found:
    """LocalChanges under construction."""

    def __init__(self) -> None:
        self.deletes: list[tuple[TopicPartition, UUID]] = []
        self.leaders: dict[TopicPartition, LocalPartition] = {}
        self.elected: dict[TopicPartition, LocalPartition] = {}
        self.followers: dict[TopicPartition, LocalPartition] = {}
        self.directories: dict[TopicIdPartition, UUID] = {}

    def changes(self) -> LocalChanges:
        return LocalChanges(
            deletes=tuple(self.deletes),
            leaders=self.leaders,
            elected_leaders=self.elected,
            followers=self.followers,
            directories=self.directories,
        )


def _part(collect: Callable[[NodeId, _Found], None], broker_id: NodeId) -> LocalChanges:
    found = _Found()
    collect(broker_id, found)
    return found.changes()


class TopicDelta:
    """Changes to the partitions of one topic. `image` is the topic before; one without partitions for a new topic."""

    def __init__(self, image: TopicImage) -> None:
        self.image = image
        self.partition_changes: dict[int, PartitionRegistration] = {}
        self.offsets: dict[int, int] = {}
        """The offset of the last record that changed a partition, where it is known."""
        self.removed_partitions: tuple[int, ...] = ()
        """Only a metadata snapshot can drop a partition without its topic."""

    @property
    def name(self) -> str:
        return self.image.name

    @property
    def topic_id(self) -> UUID:
        return self.image.topic_id

    def partition(self, index: int) -> PartitionRegistration | None:
        """The partition as changed so far."""
        found = self.partition_changes.get(index)
        return found if found is not None else self.image.partitions.get(index)

    def replay(self, record: PartitionRecord | PartitionChangeRecord, offset: int | None = None) -> None:
        if offset is not None:
            self.offsets[record.partition] = offset
        if isinstance(record, PartitionRecord):
            self.partition_changes[record.partition] = PartitionRegistration.from_record(record)
            return
        before = self.partition(record.partition)
        if before is None:
            raise Fault(f"the metadata log changes partition {self.name}-{record.partition}, which does not exist")
        self.partition_changes[record.partition] = before.merge(record)

    def replay_clear_elr(self, offset: int | None = None) -> None:
        for index in {**self.image.partitions, **self.partition_changes}:
            registration = self.partition(index)
            cleared = None if registration is None else registration.without_elr()
            if cleared is not None:
                self.partition_changes[index] = cleared
                if offset is not None:
                    self.offsets[index] = offset

    def finish_snapshot(self) -> bool:
        """Drop partitions that the snapshot does not name and changes that change nothing. Returns whether any is left."""
        before = self.image.partitions
        self.removed_partitions = tuple(index for index in before if index not in self.partition_changes)
        self.partition_changes = {index: now for index, now in self.partition_changes.items() if before.get(index) != now}
        return bool(self.partition_changes or self.removed_partitions)

    def apply(self) -> TopicImage:
        if not self.partition_changes and not self.removed_partitions:
            return self.image
        partitions = self.image.partitions.update(self.partition_changes, self.removed_partitions)
        return TopicImage(name=self.name, topic_id=self.topic_id, partitions=partitions)

    def collect_local_changes(self, broker_id: NodeId, found: _Found) -> None:
        before_all = self.image.partitions
        for index, now in sorted(self.partition_changes.items()):
            before = before_all.get(index)
            if broker_id in now.replicas:
                self._collect_replica(broker_id, index, before, now, found)
            elif before is not None and broker_id in before.replicas:
                found.deletes.append((TopicPartition(self.name, index), self.topic_id))
        for index in self.removed_partitions:
            if broker_id in before_all[index].replicas:
                found.deletes.append((TopicPartition(self.name, index), self.topic_id))

    def _collect_replica(
        self, broker_id: NodeId, index: int, before: PartitionRegistration | None, now: PartitionRegistration, found: _Found
    ) -> None:
        if before is None or before.partition_epoch != now.partition_epoch:
            tp = TopicPartition(self.image.name, index)
            local = LocalPartition(self.image.topic_id, now, self.offsets.get(index))
            if now.leader != broker_id:
                found.followers[tp] = local
            else:
                found.leaders[tp] = local
                if before is None or before.leader_epoch != now.leader_epoch:
                    found.elected[tp] = local
        if before is not None and now.directories is before.directories and now.replicas is before.replicas:
            return  # neither of which a failure changes
        directory = _directory(now, broker_id)
        if directory is not None and (before is None or _directory(before, broker_id) != directory):
            found.directories[TopicIdPartition(self.topic_id, index)] = directory


def _directory(registration: PartitionRegistration, broker_id: NodeId) -> UUID | None:
    if broker_id not in registration.replicas or len(registration.directories) != len(registration.replicas):
        return None
    return registration.directories[registration.replicas.index(broker_id)]


class TopicsDelta:
    """Changes to topics. `changed` and `deleted` are in the order of the log; read them, do not write them."""

    def __init__(self, image: TopicsImage) -> None:
        self.image = image
        self.changed: dict[UUID, TopicDelta] = {}
        self.deleted: dict[UUID, TopicImage] = {}
        """Topics of `image` that are gone. A topic both created and deleted within this delta leaves no trace."""
        self._seen: set[UUID] = set()

    @classmethod
    def merged(cls, deltas: Sequence[TopicsDelta]) -> TopicsDelta:
        """Make of deltas that follow one another the one that takes the image before the first to the image after the last.

        None of them may drop partitions without their topic, which only a metadata snapshot does.
        """
        result = cls(deltas[0].image)
        for delta in deltas:
            for topic_id in delta.deleted:
                result.changed.pop(topic_id, None)
                before = result.image.topic_by_id(topic_id)
                if before is not None:
                    result.deleted[topic_id] = before
            for topic_id, changed in delta.changed.items():
                assert not changed.removed_partitions, f"{changed.name} lost partitions by a metadata snapshot"
                known = result.changed.get(topic_id)
                if known is None:
                    known = result.changed[topic_id] = TopicDelta(changed.image)
                known.partition_changes.update(changed.partition_changes)
                known.offsets.update(changed.offsets)
        return result

    @property
    def drops_partitions(self) -> bool:
        """Return whether a topic stays and some of its partitions do not, which only a metadata snapshot can say."""
        return any(changed.removed_partitions for changed in self.changed.values())

    def replay_topic(self, record: TopicRecord) -> None:
        """A new topic; or, in a metadata snapshot, one that is there already and stays."""
        before = self.image.topic_by_id(record.topic_id)
        if before is None or before.name != record.name:
            before = TopicImage(name=record.name, topic_id=record.topic_id)
        self.changed[record.topic_id] = TopicDelta(before)
        self._seen.add(record.topic_id)

    def replay_remove(self, record: RemoveTopicRecord) -> str:
        """Returns the name of the topic that is gone."""
        created = self.changed.pop(record.topic_id, None)
        before = self.image.topic_by_id(record.topic_id)
        if before is not None and record.topic_id not in self.deleted:
            self.deleted[record.topic_id] = before
            return before.name
        if created is None:
            raise Fault(f"the metadata log removes topic id {record.topic_id}, which does not exist")
        return created.name

    def replay_partition(self, record: PartitionRecord | PartitionChangeRecord, offset: int | None = None) -> None:
        delta = self.changed.get(record.topic_id)
        if delta is None:
            topic = self.image.topic_by_id(record.topic_id)
            if topic is None or record.topic_id in self.deleted:
                raise Fault(
                    f"the metadata log changes partition {record.partition} of topic id {record.topic_id}, which does not exist"
                )
            delta = self.changed[record.topic_id] = TopicDelta(topic)
        delta.replay(record, offset)

    def replay_clear_elr(self, record: ClearElrRecord, offset: int | None = None) -> None:
        """Forget the eligible leader replicas of one topic, or of all."""
        names = {topic_id: topic.name for topic_id, topic in self.image.by_id.items() if topic_id not in self.deleted}
        names |= {topic_id: delta.name for topic_id, delta in self.changed.items()}
        cleared = [topic_id for topic_id, name in names.items() if record.topic_name in ("", name)]
        if record.topic_name and not cleared:
            raise Fault(
                f"the metadata log clears the eligible leader replicas of topic {record.topic_name}, which does not exist"
            )
        for topic_id in cleared:
            delta = self.changed.get(topic_id) or TopicDelta(self.image.by_id[topic_id])
            delta.replay_clear_elr(offset)
            if delta.partition_changes:
                self.changed[topic_id] = delta

    def finish_snapshot(self) -> None:
        """Delete what the snapshot did not name; what it named unchanged is no change (ML-12)."""
        for topic_id in self.image.by_id:
            if topic_id not in self._seen:
                self.changed.pop(topic_id, None)
                self.deleted[topic_id] = self.image.by_id[topic_id]
        for topic_id, delta in list(self.changed.items()):
            if not delta.finish_snapshot() and self.image.topic_by_id(topic_id) is delta.image:
                del self.changed[topic_id]

    def apply(self) -> TopicsImage:
        if not self.changed and not self.deleted:
            return self.image
        changed = {topic_id: delta.apply() for topic_id, delta in self.changed.items()}
        old_names = [topic.name for topic in self.deleted.values()]
        return TopicsImage(
            by_id=self.image.by_id.update(changed, self.deleted),
            by_name=self.image.by_name.update({topic.name: topic for topic in changed.values()}, old_names),
        )

    def deleted_partitions(self) -> Iterator[tuple[TopicPartition, UUID, PartitionRegistration]]:
        for topic_id, topic in self.deleted.items():
            for index, registration in topic.partitions.items():
                yield TopicPartition(topic.name, index), topic_id, registration

    def local_changes(self, broker_id: NodeId) -> LocalChanges:
        found = _Found()
        self._collect_deleted(broker_id, found)
        for delta in self.changed.values():
            delta.collect_local_changes(broker_id, found)
        return found.changes()

    def local_parts(self, broker_id: NodeId) -> Iterator[tuple[int, Callable[[], LocalChanges]]]:
        """`local_changes` in parts, to be asked for in this order: what goes with its topic, and then topic by topic. Each with
        the number of partitions that it looks at."""
        if self.deleted:
            count = sum(len(topic.partitions) for topic in self.deleted.values())
            yield count, partial(_part, self._collect_deleted, broker_id)
        for delta in self.changed.values():
            count = len(delta.partition_changes) + len(delta.removed_partitions)
            yield count, partial(_part, delta.collect_local_changes, broker_id)

    def _collect_deleted(self, broker_id: NodeId, found: _Found) -> None:
        for tp, topic_id, registration in self.deleted_partitions():
            if broker_id in registration.replicas:
                found.deletes.append((tp, topic_id))
