"""The committed content of `__consumer_offsets`: what the next coordinator must find, and every client was promised.

`GroupWatch` reads each committed batch once, in order, and tells the group checkers what it changed. A partition that lost
something that it was allowed to lose is looked at no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from kraftlite.coordinator.coordinator import GroupDriver
from kraftlite.coordinator.core.placement import OFFSETS_TOPIC, partition_for
from kraftlite.coordinator.modern import records as modern
from kraftlite.coordinator.modern.member import Parts
from kraftlite.coordinator.modern.records import (
    CurrentKey,
    CurrentValue,
    EpochKey,
    MemberKey,
    RegexKey,
    TargetEpochKey,
    TargetKey,
)
from kraftlite.coordinator.records import (
    CommittedOffset,
    GroupKey,
    GroupValue,
    OffsetKey,
    decode_group,
    decode_key,
    decode_offset,
)
from kraftlite.log.batch import iter_batches, iter_records
from kraftlite.log.control import EndTxnMarker, decode_control
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.sim.checkers.base import Checker, World
from kraftlite.sim.checkers.replica_facts import ReplicaChecker, ReplicaFacts, replica_facts
from kraftlite.sim.checkers.replica_views import ReplicaView, Truth
from kraftlite.simhost.host import SimHost

NOTE: Final = "group facts"
_READ_BYTES: Final = 1 << 20


class Change(NamedTuple):
    """One record: its offset, its key, and the values before and after it; None: there is none."""

    offset: int
    key: Any
    old: Any
    new: Any


class Version(NamedTuple):
    """A committed offset as one record says it; `value` None: deleted."""

    at: int
    value: CommittedOffset | None


@dataclass(eq=False, slots=True)
class ConsumersInLog:
    """A group of the consumer protocol: its records by kind."""

    epoch: int = 0
    target_epoch: int = 0
    members: dict[str, modern.MemberValue] = field(default_factory=dict)
    current: dict[str, CurrentValue] = field(default_factory=dict)
    target: dict[str, Parts] = field(default_factory=dict)
    regexes: dict[str, modern.RegexValue] = field(default_factory=dict)

    def topics_of(self, member_id: str) -> tuple[str, ...]:
        member = self.members[member_id]
        found = self.regexes.get(member.regex)
        return (*member.topics, *(found.topics if found is not None else ()))


class GroupLog:
    """One partition of the topic, replayed up to `end`. `offsets` has all versions of each offset, oldest first. An offset of a
    transaction is a version from its commit marker on, unless there is a later record by then (TG-05, TG-06)."""

    def __init__(self, tp: TopicPartition) -> None:
        self.tp = tp
        self.end = 0
        self.lost = False
        self.offsets: dict[str, dict[TopicPartition, list[Version]]] = {}
        self.classic: dict[str, GroupValue] = {}
        self.consumers: dict[str, ConsumersInLog] = {}
        self.pending: dict[int, list[tuple[int, OffsetKey, CommittedOffset]]] = {}
        """Producer id → what its open transaction has written, with the offsets of the records."""

    def end_transaction(self, producer_id: int, *, commit: bool) -> list[Change]:
        """Replay a marker."""
        changes = []
        for offset, key, value in self.pending.pop(producer_id, ()):
            versions = self.offsets.setdefault(key.group_id, {}).setdefault(key.tp, [])
            if commit and (not versions or versions[-1].at < offset):
                changes.append(Change(offset, key, versions[-1].value if versions else None, value))
                versions.append(Version(offset, value))
        return changes

    def apply(self, offset: int, key_bytes: bytes, value_bytes: bytes | None, producer_id: int | None = None) -> Change | None:
        """Replay a record; `producer_id`: it is in a transaction. None for one that is no concern of the checkers."""
        key = modern.decode_key(key_bytes)
        if key is not None:
            return self._consumer(offset, key, None if value_bytes is None else modern.decode_value(key, value_bytes))
        plain = decode_key(key_bytes)
        if isinstance(plain, OffsetKey) and producer_id is not None and value_bytes is not None:
            self.pending.setdefault(producer_id, []).append((offset, plain, decode_offset(value_bytes)))
            return None
        if isinstance(plain, OffsetKey):
            versions = self.offsets.setdefault(plain.group_id, {}).setdefault(plain.tp, [])
            old = versions[-1].value if versions else None
            new = None if value_bytes is None else decode_offset(value_bytes)
            versions.append(Version(offset, new))
            return Change(offset, plain, old, new)
        if isinstance(plain, GroupKey):
            before = self.classic.pop(plain.group_id, None)
            after = None if value_bytes is None else decode_group(value_bytes)
            if after is not None:
                self.classic[plain.group_id] = after
            return Change(offset, plain, before, after)
        return None

    def _consumer(self, offset: int, key: modern.ConsumerKey, value: Any) -> Change | None:
        group = self.consumers.get(key.group_id)
        if isinstance(key, EpochKey):
            old = None if group is None else group.epoch
            if value is None:
                self.consumers.pop(key.group_id, None)
                return Change(offset, key, old, None)
            if group is None:
                group = self.consumers[key.group_id] = ConsumersInLog()
            group.epoch = value.epoch
            return Change(offset, key, old, value.epoch)
        if group is None:
            if value is None:
                return None
            group = self.consumers[key.group_id] = ConsumersInLog()
        if isinstance(key, TargetEpochKey):
            change = Change(offset, key, group.target_epoch, None if value is None else value.epoch)
            group.target_epoch = 0 if value is None else value.epoch
            return change
        if isinstance(key, MemberKey):
            return _put(group.members, offset, key, key.member_id, value)
        if isinstance(key, CurrentKey):
            return _put(group.current, offset, key, key.member_id, value)
        if isinstance(key, TargetKey):
            return _put(group.target, offset, key, key.member_id, None if value is None else value.partitions)
        if isinstance(key, RegexKey):
            return _put(group.regexes, offset, key, key.regex, value)
        return None

    # --- looking

    def committed(self, group_id: str) -> dict[TopicPartition, CommittedOffset]:
        found = self.offsets.get(group_id, {})
        return {tp: versions[-1].value for tp, versions in found.items() if versions and versions[-1].value is not None}

    def members(self, group_id: str) -> dict[str, int]:
        """Member id → generation or member epoch, as stored; empty for a group without members."""
        consumers = self.consumers.get(group_id)
        if consumers is not None:
            return {it: consumers.current[it].epoch if it in consumers.current else 0 for it in consumers.members}
        classic = self.classic.get(group_id)
        return {} if classic is None else {it.member_id: classic.generation for it in classic.members}


def _put(found: dict[str, Any], offset: int, key: Any, name: str, value: Any) -> Change:
    old = found.pop(name, None)
    if value is not None:
        found[name] = value
    return Change(offset, key, old, value)


class GroupFacts:
    """Shared by all group checkers of a world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.logs: dict[TopicPartition, GroupLog] = {}
        self.checkers: list[GroupChecker] = []
        self.told: dict[tuple[str, TopicPartition], int] = {}
        """By group and partition, the log offset of the latest version that was acknowledged or answered."""

        self.stale: dict[str, None] = {}
        """Groups whose offsets somebody was told, as stable ones, by a coordinator that was replaced and did not know it yet."""

    @property
    def replicas(self) -> ReplicaFacts:
        return replica_facts(self.world)

    def log_of(self, group_id: str) -> GroupLog | None:
        """The log that has this group; None while the topic is not there, or when it may have lost something."""
        size = len({tp for tp in self.logs if tp.topic == OFFSETS_TOPIC})
        if not size:
            return None
        log = self.logs.get(TopicPartition(OFFSETS_TOPIC, partition_for(group_id, self.partitions)))
        return None if log is None or self.is_lost(log) else log

    @property
    def partitions(self) -> int:
        topic = self.replicas.metadata.history.latest.topic_named(OFFSETS_TOPIC)
        return 1 if topic is None else len(topic[1].partitions)

    def is_lost(self, log: GroupLog) -> bool:
        log.lost = log.lost or log.tp in self.world.losses.excused
        return log.lost

    def driver(self, node: SimHost, group_id: str) -> GroupDriver | None:
        """The coordination of a group on this node."""
        broker = None if node.node is None else node.node.broker
        if broker is None:
            return None
        return broker.groups.led.get(partition_for(group_id, self.partitions))

    def is_current(self, driver: GroupDriver | None, node: SimHost) -> bool:
        """Return whether the controller's last word makes this node the coordinator that it takes itself for."""
        if driver is None:
            return False
        found = self.replicas.metadata.history.latest.topic_named(OFFSETS_TOPIC)
        registration = None if found is None else found[1].partitions.get(driver.tp.partition)
        return (
            registration is not None and registration.leader == node.node_id and registration.leader_epoch == driver.leader_epoch
        )


def coordination(node: SimHost, group_id: str) -> GroupDriver | None:
    """Return what coordinates a group of either protocol on this node, has read its log and knows the group."""
    broker = None if node.node is None else node.node.broker
    for driver in () if broker is None else broker.groups.led.drivers():
        if driver.loaded and (group_id in driver.shard.groups.by_id or group_id in driver.shard.consumers.by_id):
            return driver
    return None


def group_facts(world: World) -> GroupFacts:
    found = world.notes.get(NOTE)
    if found is None:
        found = world.notes[NOTE] = GroupFacts(world)
    assert isinstance(found, GroupFacts)
    return found


class GroupChecker(Checker):
    """A checker on top of `GroupFacts`. Needs a `GroupWatch` before it."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.groups = group_facts(world)
        if type(self).on_records is not GroupChecker.on_records:
            self.groups.checkers.append(self)

    def on_records(self, log: GroupLog, changes: Sequence[Change]) -> None:
        """A batch is committed; `log` has what it says already."""

    def fail_in(self, log: GroupLog, change: Change, text: str) -> None:
        self.fail(f"{log.tp}: the record at offset {change.offset} {text}")


class GroupWatch(ReplicaChecker):
    """Reads what is committed of `__consumer_offsets`. Comes before all group checkers."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.groups = group_facts(world)

    def on_truth(self, truth: Truth) -> None:
        if truth.tp.topic != OFFSETS_TOPIC:
            return
        log = self.groups.logs.get(truth.tp)
        if log is None:
            log = self.groups.logs[truth.tp] = GroupLog(truth.tp)
        if truth.floor >= 0 or self.groups.is_lost(log):
            log.lost = True
            return
        views = self.facts.views.get(truth.key, {})
        view = next((it for it in views.values() if it.leader is not None and it.hw >= truth.hw), None)
        if view is not None:
            with view.node.disk.undisturbed():
                self._read(log, view, truth.hw)

    def _read(self, log: GroupLog, view: ReplicaView, hw: int) -> None:
        assert view.log is not None
        while log.end < hw:
            data = view.log.read(log.end, _READ_BYTES, up_to=hw)
            before = log.end
            for header, raw in iter_batches(data):
                if header.next_offset > hw or header.base_offset < log.end:
                    break
                changes: list[Change] = []
                producer_id = header.producer_id if header.is_transactional else None
                for record in iter_records(raw):
                    if header.is_control:
                        marker = decode_control(record)
                        if isinstance(marker, EndTxnMarker):
                            changes += log.end_transaction(header.producer_id, commit=marker.commit)
                    elif record.key is not None:
                        offset = header.base_offset + record.offset_delta
                        change = log.apply(offset, bytes(record.key), record.value, producer_id)
                        if change is not None:
                            changes.append(change)
                log.end = header.next_offset
                for it in self.groups.checkers:
                    it.on_records(log, changes)
            if log.end == before:
                return  # what is there is not what was committed: others say so
