"""Topics and partitions as the log has them, with the indexes that make fencing proportional to what it touches.

Source: Kafka's ReplicationControlManager.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from kraftlite.controller.config_control import ConfigControl
from kraftlite.metadata.records import (
    ClearElrRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from kraftlite.metadata.registrations import PartitionRegistration
from kraftlite.model.ids import NodeId
from kraftlite.timeline.collections import TimelineMap, TimelineSet, TimelineValue
from kraftlite.timeline.registry import TimelineRegistry

_PARTITION_BITS: Final = 24


class TopicInfo:
    """A topic and its partitions. `number` is local to this process: it makes partition keys that hash and sort fast."""

    __slots__ = ("__weakref__", "name", "number", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: UUID, number: int, registry: TimelineRegistry) -> None:
        self.name = name
        self.topic_id = topic_id
        self.number = number
        self.partitions: TimelineMap[int, PartitionRegistration] = TimelineMap(registry)

    def key(self, index: int) -> int:
        return self.number << _PARTITION_BITS | index


PartitionRef = tuple[TopicInfo, int]


class TopicsState:
    """Replays topic and partition records, and answers what is where. Nothing here decides anything.

    Indexes, all by partition key: broker → partitions with it in the ISR, the same for the ELR, broker → partitions that it
    leads, partitions without a leader, partitions whose leader is not the preferred one.
    """

    def __init__(self, registry: TimelineRegistry, configs: ConfigControl) -> None:
        self._registry = registry
        self._configs = configs
        self._next_number = 1
        self.topics: TimelineMap[UUID, TopicInfo] = TimelineMap(registry)
        self.topic_ids: TimelineMap[str, UUID] = TimelineMap(registry)
        self.collisions: TimelineMap[str, tuple[str, ...]] = TimelineMap(registry)
        """Names with "." or "_", by the name with all of them replaced: two such names share a metric (CM-15)."""
        self._isr_of: dict[NodeId, TimelineMap[int, PartitionRef]] = {}
        self._elr_of: dict[NodeId, TimelineMap[int, PartitionRef]] = {}
        self._led_by: dict[NodeId, TimelineSet[int]] = {}
        self._leaderless: TimelineMap[int, PartitionRef] = TimelineMap(registry)
        self._imbalanced: TimelineMap[int, PartitionRef] = TimelineMap(registry)
        self.partition_count: TimelineValue[int] = TimelineValue(registry, 0)
        self.unclean_elections = 0
        self.elections_from_elr = 0

    # --- questions

    def topic(self, name: str) -> TopicInfo | None:
        topic_id = self.topic_ids.get(name)
        return None if topic_id is None else self.topics[topic_id]

    def name_of(self, topic_id: UUID) -> str | None:
        info = self.topics.get(topic_id)
        return None if info is None else info.name

    def exists(self, name: str) -> bool:
        return name in self.topic_ids

    def partitions_with_broker_in_isr(self, broker_id: NodeId) -> list[PartitionRef]:
        """List them, those that it leads first: nobody can write there until somebody else leads, and the records of a failure
        are written and carried out in this order."""
        found, led = _in_order(self._isr_of.get(broker_id)), self._led_by.get(broker_id)
        if not led:
            return found
        return sorted(found, key=lambda reference: reference[0].key(reference[1]) not in led)

    def count_led(self, broker_id: NodeId) -> int:
        return len(self._led_by.get(broker_id, ()))

    def partitions_with_broker_in_elr(self, broker_id: NodeId) -> list[PartitionRef]:
        return _in_order(self._elr_of.get(broker_id))

    def partitions_without_leader(self) -> list[PartitionRef]:
        return _in_order(self._leaderless)

    @property
    def has_elr(self) -> bool:
        """Return whether any partition has eligible leader replicas, or remembers who led last."""
        if any(self._elr_of.values()):
            return True
        return any(info.partitions[index].last_known_elr for info, index in self._leaderless.values())

    def candidates(self, topic: str | None) -> list[MetadataRecord]:
        """The records that say again who is eligible to lead, of partitions of a topic (None: of all) with an empty ISR."""
        return [
            PartitionChangeRecord(
                topic_id=info.topic_id, partition=index, elr=partition.elr, last_known_elr=partition.last_known_elr
            )
            for info, index in self.partitions_without_leader()
            if (partition := info.partitions[index]).isr == () and (partition.elr or partition.last_known_elr)
            if topic in (None, info.name)
        ]

    def imbalanced_partitions(self) -> list[PartitionRef]:
        return _in_order(self._imbalanced)

    def has_leaderships(self, broker_id: NodeId) -> bool:
        return bool(self._led_by.get(broker_id))

    @property
    def leaderless_count(self) -> int:
        return len(self._leaderless)

    @property
    def imbalanced_count(self) -> int:
        """The number of partitions that their preferred replica does not lead, those without a leader among them."""
        return len(self._imbalanced) + len(self._leaderless)

    # --- replay

    def replay_topic(self, record: TopicRecord) -> None:
        if record.topic_id in self.topics or record.name in self.topic_ids:
            raise ValueError(f"cannot replay {record}: the topic exists")
        info = TopicInfo(record.name, record.topic_id, self._next_number, self._registry)
        self._next_number += 1
        self.topics[record.topic_id] = info
        self.topic_ids[record.name] = record.topic_id
        if has_collision_characters(record.name):
            unified = unify_collision_characters(record.name)
            self.collisions[unified] = (*(self.collisions.get(unified) or ()), record.name)

    def replay_partition(self, record: PartitionRecord) -> None:
        info = self._known_topic(record.topic_id, record)
        old = info.partitions.get(record.partition)
        new = PartitionRegistration.from_record(record)
        info.partitions[record.partition] = new
        if old is None:
            self.partition_count.set(self.partition_count.get() + 1)
        self._index(info, record.partition, old, new)

    def replay_partition_change(self, record: PartitionChangeRecord) -> None:
        info = self._known_topic(record.topic_id, record)
        old = info.partitions.get(record.partition)
        if old is None:
            raise ValueError(f"cannot replay {record}: no partition {info.name}-{record.partition}")
        new = old.merge(record)
        info.partitions[record.partition] = new
        if new.recovering and not old.recovering:
            self.unclean_elections += 1
        if new.leader is not None and new.leader in old.elr:
            self.elections_from_elr += 1
        self._index(info, record.partition, old, new)

    def replay_clear_elr(self, record: ClearElrRecord) -> None:
        if record.topic_name and record.topic_name not in self.topic_ids:
            raise ValueError(f"cannot replay {record}: there is no such topic")
        for info in list(self.topics.values()):
            for index, old in list(info.partitions.items()) if record.topic_name in ("", info.name) else ():
                new = old.without_elr()
                if new is not None:
                    info.partitions[index] = new
                    self._index(info, index, old, new)

    def replay_remove_topic(self, record: RemoveTopicRecord) -> None:
        info = self._known_topic(record.topic_id, record)
        for index, partition in info.partitions.items():
            self._index(info, index, partition, None)
        self.partition_count.set(self.partition_count.get() - len(info.partitions))
        del self.topics[record.topic_id]
        del self.topic_ids[info.name]
        if has_collision_characters(info.name):
            unified = unify_collision_characters(info.name)
            left = tuple(name for name in self.collisions.get(unified) or () if name != info.name)
            if left:
                self.collisions[unified] = left
            else:
                self.collisions.pop(unified)
        self._configs.remove_topic(info.name)

    def _known_topic(self, topic_id: UUID, record: object) -> TopicInfo:
        info = self.topics.get(topic_id)
        if info is None:
            raise ValueError(f"cannot replay {record}: no topic with that id")
        return info

    def _index(self, info: TopicInfo, index: int, old: PartitionRegistration | None, new: PartitionRegistration | None) -> None:
        key = info.number << _PARTITION_BITS | index
        was = () if old is None else old.isr
        now = () if new is None else new.isr
        if was != now:
            self._move(self._isr_of, was, now, key, (info, index))
        was = () if old is None else old.elr
        now = () if new is None else new.elr
        if was != now:
            self._move(self._elr_of, was, now, key, (info, index))
        led_before = None if old is None else old.leader
        led_after = None if new is None else new.leader
        if led_before != led_after:
            if led_before is not None:
                self._led_by[led_before].discard(key)
            if led_after is not None:
                self._led_set(led_after).add(key)
        if new is not None and led_after is None:
            if key not in self._leaderless:
                self._leaderless[key] = (info, index)
        elif old is not None and led_before is None:
            self._leaderless.pop(key)
        if new is not None and led_after is not None and led_after != new.replicas[0]:
            if key not in self._imbalanced:
                self._imbalanced[key] = (info, index)
        elif old is not None:
            self._imbalanced.pop(key)

    def _move(
        self,
        members: dict[NodeId, TimelineMap[int, PartitionRef]],
        was: tuple[NodeId, ...],
        now: tuple[NodeId, ...],
        key: int,
        reference: PartitionRef,
    ) -> None:
        for broker_id in was:
            if broker_id not in now:
                members[broker_id].pop(key)
        for broker_id in now:
            if broker_id not in was:
                found = members.get(broker_id)
                if found is None:
                    found = members[broker_id] = TimelineMap(self._registry)
                found[key] = reference

    def _led_set(self, broker_id: NodeId) -> TimelineSet[int]:
        found = self._led_by.get(broker_id)
        if found is None:
            found = self._led_by[broker_id] = TimelineSet(self._registry)
        return found

    def check(self) -> None:
        """Raise AssertionError when an invariant does not hold. Looks at every partition."""
        names = {topic_id: info.name for topic_id, info in self.topics.items()}
        by_name = {topic_id: name for name, topic_id in self.topic_ids.items()}
        assert names == by_name, f"topics {names}, by name {by_name}"
        for info in self.topics.values():
            for index, partition in info.partitions.items():
                _check_partition(f"{info.name}-{index}", partition)
        self.check_indexes()

    def check_indexes(self) -> None:
        """Recompute every index and compare. A difference is a bug."""
        isr: dict[NodeId, set[int]] = {}
        elr: dict[NodeId, set[int]] = {}
        led: dict[NodeId, set[int]] = {}
        leaderless, imbalanced, count = set(), set(), 0
        for info in self.topics.values():
            for index, partition in info.partitions.items():
                key = info.key(index)
                count += 1
                for member in partition.isr:
                    isr.setdefault(member, set()).add(key)
                for member in partition.elr:
                    elr.setdefault(member, set()).add(key)
                if partition.leader is None:
                    leaderless.add(key)
                else:
                    led.setdefault(partition.leader, set()).add(key)
                    if partition.leader != partition.replicas[0]:
                        imbalanced.add(key)
        found = {broker: set(keys) for broker, keys in self._isr_of.items() if keys}
        assert found == isr, f"the ISR index is {found}, the partitions say {isr}"
        found = {broker: set(keys) for broker, keys in self._elr_of.items() if keys}
        assert found == elr, f"the ELR index is {found}, the partitions say {elr}"
        found = {broker: set(keys) for broker, keys in self._led_by.items() if keys}
        assert found == led, f"the leader index is {found}, the partitions say {led}"
        without, skewed = set(self._leaderless), set(self._imbalanced)
        assert without == leaderless, f"the leaderless index is {without}, the partitions say {leaderless}"
        assert skewed == imbalanced, f"the imbalance index is {skewed}, the partitions say {imbalanced}"
        assert self.partition_count.get() == count, f"{self.partition_count.get()} partitions are counted, there are {count}"


def _check_partition(name: str, partition: PartitionRegistration) -> None:
    replicas, isr, leader = partition.replicas, partition.isr, partition.leader
    assert len(set(replicas)) == len(replicas) > 0, f"{name} has the replicas {replicas}"
    assert isr or leader is None, f"{name} is led by {leader} and has an empty ISR"
    assert not any(member in isr or member not in replicas for member in partition.elr), f"{name} has the ELR {partition.elr}"
    in_order = tuple(replica for replica in replicas if replica in isr)
    assert isr == in_order, f"{name} has the ISR {isr}, of its replicas in their order it should be {in_order}"
    assert leader is None or leader in isr, f"{name} is led by {leader}, who is not in its ISR {isr}"
    leader_epoch, epoch = partition.leader_epoch, partition.partition_epoch
    assert 0 <= leader_epoch <= epoch, f"{name} is in leader epoch {leader_epoch} and partition epoch {epoch}"


def _in_order(found: TimelineMap[int, PartitionRef] | None) -> list[PartitionRef]:
    if not found:
        return []
    return [reference for _, reference in sorted(found.items(), key=lambda item: item[0])]


def has_collision_characters(name: str) -> bool:
    return "." in name or "_" in name


def unify_collision_characters(name: str) -> str:
    return name.replace(".", "_")
