"""The metadata records: the only way in which hard state changes (CE-05, ML-01).

Names and meaning as in Kafka's metadata log, where each has Kafka's own encoding (`metadata/kafka_records`). A field that is
`UNCHANGED` in a change record leaves the old value; `None` sets "none" (ML-16).
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from kraftlite.model.acls import AclBinding
from kraftlite.model.ids import UNCHANGED, NodeId, Unchanged
from kraftlite.model.messages.controller import (
    FeatureRange,
    ListenerInfo,
)
from kraftlite.model.messages.security import (
    QuotaEntityPart,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureLevelRecord:
    """Finalizes a feature at a level; level 0 removes it. `metadata.version` is the first record of every log."""

    name: str
    level: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBrokerRecord:
    """A broker incarnation. Its epoch is this record's offset (CM-02)."""

    broker_id: NodeId
    incarnation_id: UUID
    broker_epoch: int
    listeners: tuple[ListenerInfo, ...]
    features: tuple[FeatureRange, ...]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    log_dirs: tuple[UUID, ...]
    cordoned_log_dirs: tuple[UUID, ...] | None = None
    """Those that get no new replicas; None: the broker does not tell (KIP-1066)."""
    is_migrating_zk_broker: bool = False
    """Brokers of Kafka before 4.0 say so while their cluster leaves ZooKeeper (KIP-866)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterBrokerRecord:
    broker_id: NodeId
    broker_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceBrokerRecord:
    """Written by clusters older than 3.3; a BrokerRegistrationChangeRecord says it since."""

    broker_id: NodeId
    broker_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfenceBrokerRecord:
    """Written by clusters older than 3.3; a BrokerRegistrationChangeRecord says it since."""

    broker_id: NodeId
    broker_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistrationChangeRecord:
    """On disk there is neither a change to no log directories nor one out of a controlled shutdown."""

    broker_id: NodeId
    broker_epoch: int
    fenced: bool | Unchanged = UNCHANGED
    in_controlled_shutdown: bool | Unchanged = UNCHANGED
    log_dirs: tuple[UUID, ...] | Unchanged = UNCHANGED
    cordoned_log_dirs: tuple[UUID, ...] | Unchanged = UNCHANGED


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterControllerRecord:
    controller_id: NodeId
    incarnation_id: UUID
    listeners: tuple[ListenerInfo, ...]
    features: tuple[FeatureRange, ...]
    zk_migration_ready: bool = False
    """Said by controllers of Kafka before 4.0 (KIP-866)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ZkMigrationStateRecord:
    """The progress of a cluster that leaves ZooKeeper (KIP-866). Changes nothing."""

    state: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRecord:
    name: str
    topic_id: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveTopicRecord:
    """Removes the topic, its partitions and its configs."""

    topic_id: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRecord:
    """A whole partition. Tuples of node ids are in assignment order; `directories` is parallel to `replicas`."""

    topic_id: UUID
    partition: int
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


@dataclass(slots=True, kw_only=True, unsafe_hash=True)
class PartitionChangeRecord:
    """A change of one partition. Replaying it raises the partition epoch by one, always; and the leader epoch by one when
    `leader` is not UNCHANGED (CM-26). Nobody changes it once it is made: a failure makes one for every partition (ADR 11)."""

    topic_id: UUID
    partition: int
    isr: tuple[NodeId, ...] | Unchanged = UNCHANGED
    leader: NodeId | Unchanged | None = UNCHANGED
    recovering: bool | Unchanged = UNCHANGED
    replicas: tuple[NodeId, ...] | Unchanged = UNCHANGED
    removing_replicas: tuple[NodeId, ...] | Unchanged = UNCHANGED
    adding_replicas: tuple[NodeId, ...] | Unchanged = UNCHANGED
    directories: tuple[UUID, ...] | Unchanged = UNCHANGED
    elr: tuple[NodeId, ...] | Unchanged = UNCHANGED
    last_known_elr: tuple[NodeId, ...] | Unchanged = UNCHANGED


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearElrRecord:
    """Forgets the eligible leader replicas, and those last known, of a topic; of all topics when `topic_name` is "" (KIP-966)."""

    topic_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigRecord:
    """Sets one dynamic config key of a resource; `value` None removes it. Broker resource name "": cluster default."""

    resource_type: int
    resource_name: str
    name: str
    value: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UserScramCredentialRecord:
    """The salt and keys against which a SCRAM exchange is checked; never the password (CM-59). `mechanism`: 1 SHA-256, 2
    SHA-512."""

    name: str
    mechanism: int
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveUserScramCredentialRecord:
    name: str
    mechanism: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessControlEntryRecord:
    """One access control entry (KIP-801), in Kafka's numbers."""

    id: UUID
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int

    @property
    def binding(self) -> AclBinding:
        """Return the entry without its id."""
        return AclBinding(
            resource_type=self.resource_type,
            resource_name=self.resource_name,
            pattern_type=self.pattern_type,
            principal=self.principal,
            host=self.host,
            operation=self.operation,
            permission_type=self.permission_type,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveAccessControlEntryRecord:
    id: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationTokenRecord:
    """A token that was issued, without its secret (KIP-900). A later one with the same id replaces it."""

    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp_ms: int
    max_timestamp_ms: int
    expiration_timestamp_ms: int
    token_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveDelegationTokenRecord:
    token_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientQuotaRecord:
    """Sets one quota of a client entity; `value` None removes it. `entity` is sorted by type (CM-61).

    A value is the shortest decimal text of a double, as `repr` gives it: nothing computes with it here.
    """

    entity: tuple[QuotaEntityPart, ...]
    key: str
    value: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdsRecord:
    """All producer ids below `next_producer_id` have been handed out (CM-55)."""

    broker_id: NodeId
    broker_epoch: int
    next_producer_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NoOpRecord:
    """Changes nothing; makes an idle log advance (CE-24)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginTransactionRecord:
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransactionRecord:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortTransactionRecord:
    reason: str | None = None


MetadataRecord = (
    FeatureLevelRecord
    | RegisterBrokerRecord
    | UnregisterBrokerRecord
    | FenceBrokerRecord
    | UnfenceBrokerRecord
    | BrokerRegistrationChangeRecord
    | RegisterControllerRecord
    | ZkMigrationStateRecord
    | TopicRecord
    | RemoveTopicRecord
    | PartitionRecord
    | PartitionChangeRecord
    | ClearElrRecord
    | ConfigRecord
    | AccessControlEntryRecord
    | RemoveAccessControlEntryRecord
    | DelegationTokenRecord
    | RemoveDelegationTokenRecord
    | ClientQuotaRecord
    | UserScramCredentialRecord
    | RemoveUserScramCredentialRecord
    | ProducerIdsRecord
    | NoOpRecord
    | BeginTransactionRecord
    | EndTransactionRecord
    | AbortTransactionRecord
)
