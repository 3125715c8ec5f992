"""The controller service: broker lifecycle, ISR changes, producer ids, and the admin operations that brokers forward.

A controller that is not active refuses each of these with ApiError(NOT_CONTROLLER); an event that waits longer than its
`timeout_ms` ends with REQUEST_TIMED_OUT. Source: KIP-631, KIP-730, KIP-497; CM-01 to CM-55, BL-01 to BL-28.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.choices import AlterConfigOp as AlterConfigOp
from kraftlite.model.messages.choices import ConfigResourceType as ConfigResourceType
from kraftlite.model.messages.choices import ElectionType as ElectionType
from kraftlite.model.messages.choices import FeatureUpgradeType as FeatureUpgradeType
from kraftlite.model.messages.requester import RequesterInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerInfo:
    """An advertised listener. `security_protocol`: PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL, GRPC or GRPC_TLS."""

    name: str
    host: str
    port: int
    security_protocol: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureRange:
    name: str
    min_level: int
    max_level: int


# --- broker lifecycle -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistrationRequest:
    broker_id: NodeId
    cluster_id: str
    incarnation_id: UUID
    listeners: tuple[ListenerInfo, ...]
    features: tuple[FeatureRange, ...]
    rack: str | None
    log_dirs: tuple[UUID, ...]
    previous_broker_epoch: int | None
    """The epoch from the clean-shutdown markers; None after an unclean stop (BL-13)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistrationResponse:
    broker_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerHeartbeatRequest:
    broker_id: NodeId
    broker_epoch: int
    current_metadata_offset: int
    want_fence: bool
    want_shut_down: bool
    offline_log_dirs: tuple[UUID, ...]
    cordoned_log_dirs: tuple[UUID, ...] | None = None
    """None: the broker does not know yet (KIP-1066)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerHeartbeatResponse:
    is_caught_up: bool
    is_fenced: bool
    should_shut_down: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterBrokerRequest:
    broker_id: NodeId
    timeout_ms: int
    requester: RequesterInfo | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerRegistrationRequest:
    controller_id: NodeId
    cluster_id: str
    incarnation_id: UUID
    listeners: tuple[ListenerInfo, ...]
    features: tuple[FeatureRange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Empty:
    """The response that only says that it is done."""


# --- partitions -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrMember:
    broker_id: NodeId
    broker_epoch: int | None
    """Epoch in the member's last fetch; None skips the eligibility check of CM-31."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartitionItem:
    topic_id: UUID
    partition: int
    leader_epoch: int
    partition_epoch: int
    new_isr: tuple[IsrMember, ...]
    recovering: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartitionRequest:
    broker_id: NodeId
    broker_epoch: int
    partitions: tuple[AlterPartitionItem, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartitionResult:
    topic_id: UUID
    partition: int
    error: ErrorCode
    leader_id: NodeId | None = None
    leader_epoch: int = -1
    isr: tuple[NodeId, ...] = ()
    recovering: bool = False
    partition_epoch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartitionResponse:
    partitions: tuple[AlterPartitionResult, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaDirectory:
    """The log directory in which the sender has its replica of a partition; LOST_DIR when it cannot tell (KIP-858)."""

    topic_id: UUID
    partition: int
    directory_id: UUID
    instead_of: UUID | None = None
    """A directory that the sender has named before and takes back: the replica has never been there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignReplicasToDirsRequest:
    broker_id: NodeId
    broker_epoch: int
    replicas: tuple[ReplicaDirectory, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignReplicaResult:
    topic_id: UUID
    partition: int
    error: ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignReplicasToDirsResponse:
    replicas: tuple[AssignReplicaResult, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionName:
    topic: str
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectLeadersRequest:
    election_type: int
    """An ElectionType; any other number is refused with INVALID_REQUEST (CM-38)."""
    partitions: tuple[PartitionName, ...] | None
    """None: every partition; then those that need no election are left out of the answer."""
    timeout_ms: int
    requester: RequesterInfo | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectLeadersResult:
    topic: str
    partition: int
    error: ErrorCode
    message: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectLeadersResponse:
    results: tuple[ElectLeadersResult, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocateProducerIdsRequest:
    broker_id: NodeId
    broker_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocateProducerIdsResponse:
    first_producer_id: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReassignablePartition:
    topic: str
    partition: int
    replicas: tuple[NodeId, ...] | None
    """The wanted replicas, preferred leader first; None cancels the reassignment under way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartitionReassignmentsRequest:
    partitions: tuple[ReassignablePartition, ...]
    allow_replication_factor_change: bool
    timeout_ms: int
    requester: RequesterInfo | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReassignmentResult:
    topic: str
    partition: int
    error: ErrorCode
    message: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartitionReassignmentsResponse:
    results: tuple[ReassignmentResult, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPartitionReassignmentsRequest:
    partitions: tuple[PartitionName, ...] | None
    """None: all that are under way."""
    timeout_ms: int
    requester: RequesterInfo | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OngoingReassignment:
    topic: str
    partition: int
    replicas: tuple[NodeId, ...]
    adding: tuple[NodeId, ...]
    removing: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPartitionReassignmentsResponse:
    reassignments: tuple[OngoingReassignment, ...]


# --- topics -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaAssignment:
    partition: int
    broker_ids: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigPair:
    name: str
    value: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatableTopic:
    name: str
    num_partitions: int
    """-1: the cluster's default (`num.partitions`)."""
    replication_factor: int
    """-1: the cluster's default (`default.replication.factor`)."""
    assignments: tuple[ReplicaAssignment, ...]
    configs: tuple[ConfigPair, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MutationClient:
    """The client whose quota a change of topics is charged to (KIP-599). `strict`: it knows THROTTLING_QUOTA_EXCEEDED."""

    user: str
    client_id: str
    strict: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopicsRequest:
    topics: tuple[CreatableTopic, ...]
    validate_only: bool
    timeout_ms: int
    requester: RequesterInfo | None = None
    quota: MutationClient | None = None
    """None: nobody is charged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfigValue:
    """One effective config of a new topic, as CreateTopics v5+ reports it (CP-59). `source`: Kafka's ConfigSource."""

    name: str
    value: str | None
    read_only: bool
    source: int
    is_sensitive: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatableTopicResult:
    name: str
    error: ErrorCode
    message: str | None = None
    topic_id: UUID | None = None
    num_partitions: int = -1
    replication_factor: int = -1
    configs: tuple[TopicConfigValue, ...] = ()
    configs_error: ErrorCode = ErrorCode.NONE
    """The reason why the settings are left out (KIP-525)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopicsResponse:
    topics: tuple[CreatableTopicResult, ...]
    throttle_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSelector:
    """A topic by name or by id; both or neither is INVALID_REQUEST for that entry (CM-25)."""

    name: str | None
    topic_id: UUID | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopicsRequest:
    topics: tuple[TopicSelector, ...]
    timeout_ms: int
    requester: RequesterInfo | None = None
    quota: MutationClient | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopicResult:
    name: str | None
    topic_id: UUID | None
    error: ErrorCode
    message: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopicsResponse:
    topics: tuple[DeleteTopicResult, ...]
    throttle_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePartitionsTopic:
    name: str
    count: int
    """The new total."""
    assignments: tuple[ReplicaAssignment, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePartitionsRequest:
    topics: tuple[CreatePartitionsTopic, ...]
    validate_only: bool
    timeout_ms: int
    requester: RequesterInfo | None = None
    quota: MutationClient | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePartitionsResult:
    name: str
    error: ErrorCode
    message: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePartitionsResponse:
    topics: tuple[CreatePartitionsResult, ...]
    throttle_ms: int = 0


# --- configs and features ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigChange:
    name: str
    op: int
    """An AlterConfigOp; any other number is INVALID_REQUEST."""
    value: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigResourceChange:
    resource_type: int
    resource_name: str
    changes: tuple[ConfigChange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class IncrementalAlterConfigsRequest:
    resources: tuple[ConfigResourceChange, ...]
    validate_only: bool
    timeout_ms: int
    requester: RequesterInfo | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LegacyConfigResource:
    resource_type: int
    resource_name: str
    configs: tuple[ConfigPair, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterConfigsRequest:
    """The legacy call: replaces the whole set of a resource (CM-50)."""

    resources: tuple[LegacyConfigResource, ...]
    validate_only: bool
    timeout_ms: int
    requester: RequesterInfo | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterConfigsResult:
    resource_type: int
    resource_name: str
    error: ErrorCode
    message: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterConfigsResponse:
    resources: tuple[AlterConfigsResult, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureUpdate:
    name: str
    level: int
    upgrade_type: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateFeaturesRequest:
    updates: tuple[FeatureUpdate, ...]
    validate_only: bool
    timeout_ms: int
    requester: RequesterInfo | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateFeatureResult:
    name: str
    error: ErrorCode
    message: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateFeaturesResponse:
    """All or nothing (CM-53): a refusal of the whole is an ApiError; `results` has one entry per update."""

    results: tuple[UpdateFeatureResult, ...]
