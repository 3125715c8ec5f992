"""The cluster's metadata as the checkers replay it: a second opinion on what every record means.

Written against docs/spec and not against `metadata` or `controller`: it shares with them the record and registration
dataclasses, and none of their code that merges or applies. Every state is kept, by the offset from which it holds.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias
from uuid import UUID

from kraftlite.metadata import records as r
from kraftlite.metadata.registrations import BrokerRegistration, ControllerRegistration, PartitionRegistration
from kraftlite.model.ids import LOST_DIR, RESERVED_UUID_COUNT, UNCHANGED, NodeId
from kraftlite.model.messages.controller import ConfigResourceType
from kraftlite.model.messages.security import QuotaEntityPart

TOPIC: Final = int(ConfigResourceType.TOPIC)
BROKER: Final = int(ConfigResourceType.BROKER)
_INERT: Final = "kraft.version"


Entity: TypeAlias = tuple[QuotaEntityPart, ...]


class Misfit(Exception):
    """A committed record that does not fit the records before it."""


@dataclass(frozen=True, slots=True)
class TopicState:
    name: str
    partitions: Mapping[int, PartitionRegistration]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataState:
    """Everything the log says up to one offset. Immutable; a part that did not change is the same object as before."""

    features: Mapping[str, int] = field(default_factory=dict)
    brokers: Mapping[NodeId, BrokerRegistration] = field(default_factory=dict)
    registered_at: Mapping[NodeId, int] = field(default_factory=dict)
    """Offset of the last RegisterBrokerRecord of each broker."""
    controllers: Mapping[NodeId, ControllerRegistration] = field(default_factory=dict)
    topics: Mapping[UUID, TopicState] = field(default_factory=dict)
    configs: Mapping[tuple[int, str], Mapping[str, str]] = field(default_factory=dict)
    quotas: Mapping[Entity, Mapping[str, str]] = field(default_factory=dict)
    credentials: Mapping[tuple[str, int], r.UserScramCredentialRecord] = field(default_factory=dict)
    """The credentials by user and mechanism."""
    next_producer_id: int = 0
    acls: Mapping[UUID, r.AccessControlEntryRecord] = field(default_factory=dict)
    tokens: Mapping[str, r.DelegationTokenRecord] = field(default_factory=dict)

    def partition(self, topic_id: UUID, index: int) -> PartitionRegistration | None:
        topic = self.topics.get(topic_id)
        return None if topic is None else topic.partitions.get(index)

    def topic_named(self, name: str) -> tuple[UUID, TopicState] | None:
        for topic_id, topic in self.topics.items():
            if topic.name == name:
                return topic_id, topic
        return None

    def topic_config(self, topic: str, key: str, node_id: NodeId | None = None) -> str | None:
        """The override, what is set for the node `node_id`, or the cluster-wide default; None when none of them is set."""
        own = self.configs.get((TOPIC, topic), {}).get(key)
        if own is None and node_id is not None:
            own = self.configs.get((BROKER, str(node_id)), {}).get(key)
        return own if own is not None else self.configs.get((BROKER, ""), {}).get(key)


def has_elr(state: MetadataState) -> bool:
    """Return whether eligible leader replicas are kept (KIP-966)."""
    return state.features.get("eligible.leader.replicas.version", 0) > 0


def in_online_directory(state: MetadataState, partition: PartitionRegistration, broker_id: NodeId) -> bool:
    """Return whether a replica can be used where metadata has it: in no directory that is known to be offline (KIP-858)."""
    broker, directory = state.brokers.get(broker_id), partition.directory_of(broker_id)
    if directory.int < RESERVED_UUID_COUNT or broker is None or not broker.log_dirs:
        return directory != LOST_DIR
    return directory in broker.log_dirs


def completes_a_move(old: PartitionRegistration, new: PartitionRegistration) -> bool:
    """Return whether the change ends a reassignment whose last replica its leader has found in sync: the leader is chosen
    among those that are in sync then, and the former leader may be none of them any more (CM-42, CM-43). Where a replica that is
    added was chosen uncleanly, whatever changes the partition next ends it."""
    moved = bool(old.adding_replicas or old.removing_replicas) and not (new.adding_replicas or new.removing_replicas)
    if not moved or (new.recovering and not old.recovering):
        return False
    if len(new.isr) == len(new.replicas):
        return True
    target = target_of(old)
    return new.replicas == target and all(it in new.isr for it in awaited(old.adding_replicas, old.removing_replicas, target))


def ends_a_move_uncleanly(old: PartitionRegistration, new: PartitionRegistration) -> bool:
    """Return whether a reassignment ends, because its replicas were in sync, with an unclean election by the same record: none of
    them could lead (CM-42)."""
    target = target_of(old)
    return (
        new.recovering
        and new.isr == (new.leader,)
        and new.leader not in old.isr
        and new.replicas == target
        and all(it in old.isr for it in awaited(old.adding_replicas, old.removing_replicas, target))
    )


def target_of(partition: PartitionRegistration) -> tuple[NodeId, ...]:
    """Return the replicas at the end of the move that is under way."""
    return tuple(it for it in partition.replicas if it not in partition.removing_replicas)


def awaited(adding: Collection[NodeId], removing: Collection[NodeId], target: Sequence[NodeId]) -> Collection[NodeId]:
    """Return who must be in sync before a move ends: those that it adds; all, where it takes away more than it adds (CM-42)."""
    return target if len(adding) < len(removing) else adding


def changed_partition(before: PartitionRegistration, change: r.PartitionChangeRecord) -> PartitionRegistration:
    """CM-26: the partition epoch always grows by one; the leader epoch when a leader is named, were it the present one."""
    values: dict[str, Any] = {}
    for name in (
        "isr", "leader", "recovering", "replicas", "removing_replicas", "adding_replicas", "directories", "elr", "last_known_elr",
    ):  # fmt: skip
        value = getattr(change, name)
        if value is not UNCHANGED:
            values[name] = value
    values["leader_epoch"] = before.leader_epoch + int("leader" in values)
    values["partition_epoch"] = before.partition_epoch + 1
    return replace(before, **values)


def apply(state: MetadataState, record: r.MetadataRecord, offset: int) -> MetadataState:
    """The state after `record`. Raises Misfit when it names what is not there, or makes what is there already."""
    handler = HANDLERS.get(type(record))
    if handler is None:
        raise Misfit(f"{type(record).__name__} is no record of this log")
    return handler(state, record, offset)


def _with(mapping: Mapping[Any, Any], key: Any, value: Any) -> dict[Any, Any]:
    """`mapping` with `key` set, or without it for None."""
    copy = dict(mapping)
    if value is None:
        copy.pop(key, None)
    else:
        copy[key] = value
    return copy


def _feature(state: MetadataState, record: r.FeatureLevelRecord, offset: int) -> MetadataState:
    if record.name == _INERT:
        return state
    return replace(state, features=_with(state.features, record.name, record.level or None))


def _register_broker(state: MetadataState, record: r.RegisterBrokerRecord, offset: int) -> MetadataState:
    registration = BrokerRegistration(
        broker_id=record.broker_id,
        broker_epoch=record.broker_epoch,
        incarnation_id=record.incarnation_id,
        listeners=record.listeners,
        features=record.features,
        rack=record.rack,
        fenced=record.fenced,
        in_controlled_shutdown=record.in_controlled_shutdown,
        log_dirs=tuple(sorted(record.log_dirs)),
        cordoned_log_dirs=record.cordoned_log_dirs,
        is_migrating_zk_broker=record.is_migrating_zk_broker,
    )
    return replace(
        state,
        brokers=_with(state.brokers, record.broker_id, registration),
        registered_at=_with(state.registered_at, record.broker_id, offset),
    )


def _registered(state: MetadataState, broker_id: NodeId, broker_epoch: int) -> BrokerRegistration:
    found = state.brokers.get(broker_id)
    if found is None or found.broker_epoch != broker_epoch:
        known = "not registered" if found is None else f"registered with epoch {found.broker_epoch}"
        raise Misfit(f"broker {broker_id} is {known}, the record says epoch {broker_epoch}")
    return found


def _unregister_broker(state: MetadataState, record: r.UnregisterBrokerRecord, offset: int) -> MetadataState:
    _registered(state, record.broker_id, record.broker_epoch)
    return replace(
        state,
        brokers=_with(state.brokers, record.broker_id, None),
        registered_at=_with(state.registered_at, record.broker_id, None),
    )


def _change_broker(state: MetadataState, record: r.BrokerRegistrationChangeRecord, offset: int) -> MetadataState:
    values: dict[str, Any] = {}
    for name in ("fenced", "in_controlled_shutdown", "log_dirs", "cordoned_log_dirs"):
        value = getattr(record, name)
        if value is not UNCHANGED:
            values[name] = tuple(sorted(value)) if name == "log_dirs" else value
    before = _registered(state, record.broker_id, record.broker_epoch)
    return replace(state, brokers=_with(state.brokers, record.broker_id, replace(before, **values)))


def _fence(state: MetadataState, record: r.FenceBrokerRecord | r.UnfenceBrokerRecord, offset: int) -> MetadataState:
    before = _registered(state, record.broker_id, record.broker_epoch)
    after = replace(before, fenced=isinstance(record, r.FenceBrokerRecord))
    return replace(state, brokers=_with(state.brokers, record.broker_id, after))


def _register_controller(state: MetadataState, record: r.RegisterControllerRecord, offset: int) -> MetadataState:
    registration = ControllerRegistration(
        controller_id=record.controller_id,
        incarnation_id=record.incarnation_id,
        listeners=record.listeners,
        features=record.features,
        zk_migration_ready=record.zk_migration_ready,
    )
    return replace(state, controllers=_with(state.controllers, record.controller_id, registration))


def _topic(state: MetadataState, record: r.TopicRecord, offset: int) -> MetadataState:
    if record.topic_id in state.topics or state.topic_named(record.name) is not None:
        raise Misfit(f"topic {record.name} ({record.topic_id}) exists already")
    return replace(state, topics=_with(state.topics, record.topic_id, TopicState(record.name, {})))


def _known_topic(state: MetadataState, topic_id: UUID) -> TopicState:
    found = state.topics.get(topic_id)
    if found is None:
        raise Misfit(f"there is no topic with id {topic_id}")
    return found


def _remove_topic(state: MetadataState, record: r.RemoveTopicRecord, offset: int) -> MetadataState:
    topic = _known_topic(state, record.topic_id)
    return replace(
        state,
        topics=_with(state.topics, record.topic_id, None),
        configs=_with(state.configs, (TOPIC, topic.name), None),
    )


def _set_partition(state: MetadataState, topic_id: UUID, index: int, value: PartitionRegistration) -> MetadataState:
    topic = _known_topic(state, topic_id)
    return replace(state, topics=_with(state.topics, topic_id, TopicState(topic.name, _with(topic.partitions, index, value))))


def _partition(state: MetadataState, record: r.PartitionRecord, offset: int) -> MetadataState:
    made = PartitionRegistration(
        replicas=record.replicas,
        isr=record.isr,
        leader=record.leader,
        leader_epoch=record.leader_epoch,
        partition_epoch=record.partition_epoch,
        recovering=record.recovering,
        removing_replicas=record.removing_replicas,
        adding_replicas=record.adding_replicas,
        directories=record.directories,
        elr=record.elr,
        last_known_elr=record.last_known_elr,
    )
    return _set_partition(state, record.topic_id, record.partition, made)


def _change_partition(state: MetadataState, record: r.PartitionChangeRecord, offset: int) -> MetadataState:
    before = _known_topic(state, record.topic_id).partitions.get(record.partition)
    if before is None:
        raise Misfit(f"topic {record.topic_id} has no partition {record.partition}")
    return _set_partition(state, record.topic_id, record.partition, changed_partition(before, record))


def _clear_elr(state: MetadataState, record: r.ClearElrRecord, offset: int) -> MetadataState:
    """KIP-966. Each partition that had something to forget changes, and so its epoch rises."""
    if record.topic_name and state.topic_named(record.topic_name) is None:
        raise Misfit(f"there is no topic {record.topic_name}")
    for topic_id, topic in state.topics.items():
        for index, before in topic.partitions.items() if record.topic_name in ("", topic.name) else ():
            if before.elr or before.last_known_elr:
                epoch = before.partition_epoch + 1
                state = _set_partition(state, topic_id, index, replace(before, elr=(), last_known_elr=(), partition_epoch=epoch))
    return state


def _config(state: MetadataState, record: r.ConfigRecord, offset: int) -> MetadataState:
    resource = (record.resource_type, record.resource_name)
    values = _with(state.configs.get(resource, {}), record.name, record.value)
    return replace(state, configs=_with(state.configs, resource, values or None))


def _quota(state: MetadataState, record: r.ClientQuotaRecord, offset: int) -> MetadataState:
    """CM-61. A value that is gone is removed again without harm: Kafka's record of a removal does not say that there was one."""
    values = _with(state.quotas.get(record.entity, {}), record.key, record.value)
    return replace(state, quotas=_with(state.quotas, record.entity, values or None))


def _credential(state: MetadataState, record: r.UserScramCredentialRecord, offset: int) -> MetadataState:
    return replace(state, credentials=_with(state.credentials, (record.name, record.mechanism), record))


def _remove_credential(state: MetadataState, record: r.RemoveUserScramCredentialRecord, offset: int) -> MetadataState:
    """CM-59."""
    key = (record.name, record.mechanism)
    if key not in state.credentials:
        raise Misfit(f"{record.name} has no SCRAM credential of mechanism {record.mechanism}")
    return replace(state, credentials=_with(state.credentials, key, None))


def _producer_ids(state: MetadataState, record: r.ProducerIdsRecord, offset: int) -> MetadataState:
    return replace(state, next_producer_id=record.next_producer_id)


def _acl(state: MetadataState, record: r.AccessControlEntryRecord, offset: int) -> MetadataState:
    return replace(state, acls=_with(state.acls, record.id, record))


def _remove_acl(state: MetadataState, record: r.RemoveAccessControlEntryRecord, offset: int) -> MetadataState:
    if record.id not in state.acls:
        raise Misfit(f"there is no access control entry {record.id}")
    return replace(state, acls=_with(state.acls, record.id, None))


def _token(state: MetadataState, record: r.DelegationTokenRecord, offset: int) -> MetadataState:
    return replace(state, tokens=_with(state.tokens, record.token_id, record))


def _remove_token(state: MetadataState, record: r.RemoveDelegationTokenRecord, offset: int) -> MetadataState:
    return replace(state, tokens=_with(state.tokens, record.token_id, None))


def _nothing(state: MetadataState, record: r.NoOpRecord | r.ZkMigrationStateRecord, offset: int) -> MetadataState:
    return state


HANDLERS: Final[Mapping[type[Any], Callable[[MetadataState, Any, int], MetadataState]]] = {
    r.FeatureLevelRecord: _feature,
    r.RegisterBrokerRecord: _register_broker,
    r.UnregisterBrokerRecord: _unregister_broker,
    r.BrokerRegistrationChangeRecord: _change_broker,
    r.RegisterControllerRecord: _register_controller,
    r.TopicRecord: _topic,
    r.RemoveTopicRecord: _remove_topic,
    r.PartitionRecord: _partition,
    r.PartitionChangeRecord: _change_partition,
    r.ClearElrRecord: _clear_elr,
    r.ConfigRecord: _config,
    r.ClientQuotaRecord: _quota,
    r.UserScramCredentialRecord: _credential,
    r.RemoveUserScramCredentialRecord: _remove_credential,
    r.ProducerIdsRecord: _producer_ids,
    r.FenceBrokerRecord: _fence,
    r.UnfenceBrokerRecord: _fence,
    r.AccessControlEntryRecord: _acl,
    r.RemoveAccessControlEntryRecord: _remove_acl,
    r.DelegationTokenRecord: _token,
    r.RemoveDelegationTokenRecord: _remove_token,
    r.ZkMigrationStateRecord: _nothing,
    r.NoOpRecord: _nothing,
}


class _Line:
    """States by the offset of the record that made them."""

    def __init__(self) -> None:
        self._offsets = [-1]
        self._states = [MetadataState()]

    @property
    def latest(self) -> MetadataState:
        return self._states[-1]

    def put(self, offset: int, state: MetadataState) -> None:
        if state is not self._states[-1]:
            self._offsets.append(offset)
            self._states.append(state)

    def at(self, offset: int) -> MetadataState:
        return self._states[bisect_right(self._offsets, offset) - 1]

    def between(self, begin: int, end: int) -> list[MetadataState]:
        return self._states[bisect_right(self._offsets, begin) - 1 : bisect_right(self._offsets, end)]


class MetadataHistory:
    """Every state the committed log went through. `applied` has the records of an open metadata transaction, `visible` not."""

    def __init__(self) -> None:
        self._applied = _Line()
        self._visible = _Line()
        self._before_transaction = MetadataState()
        self.transaction_start: int | None = None
        self._transactions: list[tuple[int, int]] = []

    @property
    def latest(self) -> MetadataState:
        """The state with everything that was committed, an open transaction's records too."""
        return self._applied.latest

    def replay(self, record: r.MetadataRecord, offset: int) -> tuple[MetadataState, MetadataState]:
        """Replay a record, and return the state before and after. Raises Misfit."""
        before = self._applied.latest
        if isinstance(record, r.BeginTransactionRecord):
            if self.transaction_start is not None:
                raise Misfit(f"a transaction begins inside the one of offset {self.transaction_start}")
            self.transaction_start, self._before_transaction = offset, before
            return before, before
        if isinstance(record, r.EndTransactionRecord | r.AbortTransactionRecord):
            if self.transaction_start is None:
                raise Misfit("a transaction ends, but none is open")
            self._transactions.append((self.transaction_start, offset))
            self.transaction_start = None
            after = self._before_transaction if isinstance(record, r.AbortTransactionRecord) else before
        else:
            after = apply(before, record, offset)
        self._applied.put(offset, after)
        if self.transaction_start is None:
            self._visible.put(offset, after)
        return before, after

    def visible(self, offset: int) -> MetadataState:
        """Return the state that a reader may see that has everything up to `offset`, inclusive."""
        return self._visible.at(offset)

    def applied(self, offset: int) -> MetadataState:
        """Return the state of a controller that applied every record up to `offset`, inclusive."""
        return self._applied.at(offset)

    def between(self, begin: int, end: int) -> list[MetadataState]:
        """Return every state, in order, of a controller that applied what is up to `begin`, and then up to `end`, inclusive."""
        return self._applied.between(begin, end)

    def in_transaction(self, offset: int) -> bool:
        """Return whether an image that ends with `offset` would show half a transaction."""
        if self.transaction_start is not None and offset >= self.transaction_start:
            return True
        return any(start <= offset < end for start, end in self._transactions)
