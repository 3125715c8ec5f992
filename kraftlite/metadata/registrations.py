"""Brokers, controllers and partitions as the metadata log describes them; shared by controller state and images."""

from __future__ import annotations

from dataclasses import dataclass, replace
from uuid import UUID

from kraftlite.metadata.records import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
)
from kraftlite.model.ids import MIGRATING_DIR, UNCHANGED, NodeId
from kraftlite.model.messages.controller import FeatureRange, ListenerInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistration:
    """One broker incarnation. Source: Kafka's BrokerRegistration."""

    broker_id: NodeId
    broker_epoch: int
    incarnation_id: UUID
    listeners: tuple[ListenerInfo, ...]
    features: tuple[FeatureRange, ...]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    log_dirs: tuple[UUID, ...]
    cordoned_log_dirs: tuple[UUID, ...] | None = None
    is_migrating_zk_broker: bool = False

    def listener(self, name: str) -> ListenerInfo | None:
        return next((listener for listener in self.listeners if listener.name == name), None)

    @property
    def active(self) -> bool:
        """Neither fenced nor in controlled shutdown: may lead and may join an ISR (CM-14)."""
        return not self.fenced and not self.in_controlled_shutdown

    @property
    def is_cordoned(self) -> bool:
        """Every directory is cordoned: no new replica is placed here (KIP-1066)."""
        cordoned = self.cordoned_log_dirs
        return bool(self.log_dirs) and cordoned is not None and all(directory in cordoned for directory in self.log_dirs)

    def to_record(self) -> RegisterBrokerRecord:
        return RegisterBrokerRecord(
            broker_id=self.broker_id,
            incarnation_id=self.incarnation_id,
            broker_epoch=self.broker_epoch,
            listeners=self.listeners,
            features=self.features,
            rack=self.rack,
            fenced=self.fenced,
            in_controlled_shutdown=self.in_controlled_shutdown,
            log_dirs=self.log_dirs,
            cordoned_log_dirs=self.cordoned_log_dirs,
            is_migrating_zk_broker=self.is_migrating_zk_broker,
        )

    @classmethod
    def from_record(cls, record: RegisterBrokerRecord) -> BrokerRegistration:
        return cls(
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

    def merge(self, change: BrokerRegistrationChangeRecord) -> BrokerRegistration:
        return replace(
            self,
            fenced=self.fenced if change.fenced is UNCHANGED else change.fenced,
            in_controlled_shutdown=(
                self.in_controlled_shutdown if change.in_controlled_shutdown is UNCHANGED else change.in_controlled_shutdown
            ),
            log_dirs=self.log_dirs if change.log_dirs is UNCHANGED else tuple(sorted(change.log_dirs)),
            cordoned_log_dirs=self.cordoned_log_dirs if change.cordoned_log_dirs is UNCHANGED else change.cordoned_log_dirs,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerRegistration:
    controller_id: NodeId
    incarnation_id: UUID
    listeners: tuple[ListenerInfo, ...]
    features: tuple[FeatureRange, ...]
    zk_migration_ready: bool = False

    def to_record(self) -> RegisterControllerRecord:
        return RegisterControllerRecord(
            controller_id=self.controller_id,
            incarnation_id=self.incarnation_id,
            listeners=self.listeners,
            features=self.features,
            zk_migration_ready=self.zk_migration_ready,
        )

    @classmethod
    def from_record(cls, record: RegisterControllerRecord) -> ControllerRegistration:
        return cls(
            controller_id=record.controller_id,
            incarnation_id=record.incarnation_id,
            listeners=record.listeners,
            features=record.features,
            zk_migration_ready=record.zk_migration_ready,
        )


@dataclass(slots=True, kw_only=True, unsafe_hash=True)
class PartitionRegistration:
    """A partition at one moment of the metadata log. Tuples of ids are in assignment order. Nobody changes it once it is made:
    each change of a partition makes a new one on every node, two on a controller (ADR 11).

    Invariants (20, 21): isr ⊆ replicas; leader None or ∈ isr; epochs never decrease, each change raises the partition epoch
    by exactly one. `elr`: replicas out of the ISR that have everything below the HW; `last_known_elr`: who led last, while nobody
    does (KIP-966).
    """

    replicas: tuple[NodeId, ...]
    isr: tuple[NodeId, ...]
    leader: NodeId | None
    leader_epoch: int
    partition_epoch: int
    recovering: bool = False
    removing_replicas: tuple[NodeId, ...] = ()
    adding_replicas: tuple[NodeId, ...] = ()
    directories: tuple[UUID, ...] = ()
    elr: tuple[NodeId, ...] = ()
    last_known_elr: tuple[NodeId, ...] = ()

    @property
    def preferred_leader(self) -> NodeId:
        return self.replicas[0]

    def directory_of(self, broker_id: NodeId) -> UUID:
        """Return the directory assigned to the replica of a broker; MIGRATING_DIR where none is known."""
        if len(self.directories) != len(self.replicas) or broker_id not in self.replicas:
            return MIGRATING_DIR
        return self.directories[self.replicas.index(broker_id)]

    @classmethod
    def from_record(cls, record: PartitionRecord) -> PartitionRegistration:
        return cls(
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

    def to_record(self, topic_id: UUID, partition: int) -> PartitionRecord:
        return PartitionRecord(
            topic_id=topic_id,
            partition=partition,
            replicas=self.replicas,
            isr=self.isr,
            leader=self.leader,
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
            recovering=self.recovering,
            removing_replicas=self.removing_replicas,
            adding_replicas=self.adding_replicas,
            directories=self.directories,
            elr=self.elr,
            last_known_elr=self.last_known_elr,
        )

    def without_elr(self) -> PartitionRegistration | None:
        """The partition after a ClearElrRecord; None: it has nothing to forget."""
        if not self.elr and not self.last_known_elr:
            return None
        return replace(self, elr=(), last_known_elr=(), partition_epoch=self.partition_epoch + 1)

    def merge(self, change: PartitionChangeRecord) -> PartitionRegistration:
        """The partition after `change` (CM-26, ML-16)."""
        leader, leader_epoch = self.leader, self.leader_epoch
        if change.leader is not UNCHANGED:  # the present leader is named where only the epoch is to rise
            leader, leader_epoch = change.leader, leader_epoch + 1
        return PartitionRegistration(
            replicas=self.replicas if change.replicas is UNCHANGED else change.replicas,
            isr=self.isr if change.isr is UNCHANGED else change.isr,
            leader=leader,
            leader_epoch=leader_epoch,
            partition_epoch=self.partition_epoch + 1,
            recovering=self.recovering if change.recovering is UNCHANGED else change.recovering,
            removing_replicas=self.removing_replicas if change.removing_replicas is UNCHANGED else change.removing_replicas,
            adding_replicas=self.adding_replicas if change.adding_replicas is UNCHANGED else change.adding_replicas,
            directories=self.directories if change.directories is UNCHANGED else change.directories,
            elr=self.elr if change.elr is UNCHANGED else change.elr,
            last_known_elr=self.last_known_elr if change.last_known_elr is UNCHANGED else change.last_known_elr,
        )
