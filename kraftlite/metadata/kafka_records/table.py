"""Every metadata record that Kafka 4.3 knows, at every version: the one description of what is on disk.

To add a record: its dataclass in `metadata/records`, its layout here. Source: the schemas of Kafka 4.3, `MetadataVersion` for the
levels; KIP-631, KIP-455, KIP-704, KIP-746, KIP-778, KIP-841, KIP-858, KIP-868, KIP-900, KIP-919, KIP-966, KIP-1066.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kraftlite.metadata import records as r
from kraftlite.metadata.kafka_records.layout import Kind, Layout, Meaning, Numbers, f
from kraftlite.model.ids import UNCHANGED
from kraftlite.model.messages.controller import FeatureRange, ListenerInfo
from kraftlite.model.messages.security import QuotaEntityPart

INT8, INT16, UINT16, INT32, INT64 = Kind.INT8, Kind.INT16, Kind.UINT16, Kind.INT32, Kind.INT64
FLOAT64, BOOL, UUID, STRING, BYTES = Kind.FLOAT64, Kind.BOOL, Kind.UUID, Kind.STRING, Kind.BYTES
INT32S, UUIDS, STRINGS, STRUCTS = Kind.INT32S, Kind.UUIDS, Kind.STRINGS, Kind.STRUCTS

LEADER: Final = Meaning("(-1 if {0} is None else {0})", "(None if {0} == -1 else {0})")
CHANGED_LEADER: Final = Meaning(
    "(-2 if {0} is UNCHANGED else -1 if {0} is None else {0})", "(UNCHANGED if {0} == -2 else None if {0} == -1 else {0})"
)
CHANGED: Final = Meaning("(None if {0} is UNCHANGED else {0})", "(UNCHANGED if {0} is None else {0})")
"""Null leaves the old value."""
CHANGED_IF_ANY: Final = Meaning("(() if {0} is UNCHANGED else SOME({0}))", "({0} or UNCHANGED)")
"""An empty array leaves the old value, so that none can be set."""
IN_ORDER: Final = Meaning(read="tuple(sorted({0}))")
"""The elements of a map, which come in any order."""
NONE_IF_EMPTY: Final = Meaning("({0} or None)", "({0} or ())")
RECOVERING: Final = Numbers({0: False, 1: True})
CHANGED_RECOVERING: Final = Numbers({-1: UNCHANGED, 0: False, 1: True})
CHANGED_FENCED: Final = Numbers({0: UNCHANGED, 1: True, -1: False})
CHANGED_SHUTDOWN: Final = Numbers({0: UNCHANGED, 1: True})
"""A broker leaves its controlled shutdown by registering anew."""

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""Kafka's security protocols by their number."""
GRPC_TAG: Final = 10_000
"""The tag of a field of our own in an endpoint: 1 says that what listens there speaks gRPC, in plain text or with TLS. Kafka
takes it for a listener that speaks its own protocol; clients are never told of it, because it has a name of its own."""

_ENDPOINT: Final = (
    f("name", STRING),
    f("host", STRING),
    f("port", UINT16),
    f("securityProtocol", INT16, meaning=Meaning("PROTOCOL_NUMBERS[{0}]")),
    f("grpc", INT8, "security_protocol", tag=GRPC_TAG, default=0, own=True, meaning=Meaning("GRPC_NUMBERS[{0}]")),
)
_PROTOCOL_NAME: Final = {"security_protocol": "PROTOCOL_NAMES[{securityProtocol}, {grpc}]"}
_ENDPOINTS: Final = f("endPoints", STRUCTS, "listeners", parts=_ENDPOINT, made=ListenerInfo, joined=_PROTOCOL_NAME)
_FEATURES: Final = f(
    "features",
    STRUCTS,
    parts=(f("name", STRING), f("minSupportedVersion", INT16, "min_level"), f("maxSupportedVersion", INT16, "max_level")),
    made=FeatureRange,
)

_BROKERS: Final = (
    Layout(
        api_key=0,
        made=r.RegisterBrokerRecord,
        versions=((30, 4), (17, 3), (8, 2), (7, 1), (0, 0)),
        fields=(
            f("brokerId", INT32),
            f("isMigratingZkBroker", BOOL, since=2, default=False),
            f("incarnationId", UUID),
            f("brokerEpoch", INT64),
            _ENDPOINTS,
            _FEATURES,
            f("rack", STRING, nullable=True),
            f("fenced", BOOL),
            f("inControlledShutdown", BOOL, since=1, default=False),
            f("logDirs", UUIDS, since=3, tag=0, default=()),
            f("cordonedLogDirs", UUIDS, since=4, tag=1, default=None, nullable=True),
        ),
    ),
    Layout(api_key=1, made=r.UnregisterBrokerRecord, fields=(f("brokerId", INT32), f("brokerEpoch", INT64))),
    Layout(api_key=7, made=r.FenceBrokerRecord, fields=(f("id", INT32, "broker_id"), f("epoch", INT64, "broker_epoch"))),
    Layout(api_key=8, made=r.UnfenceBrokerRecord, fields=(f("id", INT32, "broker_id"), f("epoch", INT64, "broker_epoch"))),
    Layout(
        api_key=17,
        made=r.BrokerRegistrationChangeRecord,
        versions=((30, 3), (17, 2), (7, 1), (6, 0)),
        lowest=True,
        fields=(
            f("brokerId", INT32),
            f("brokerEpoch", INT64),
            f("fenced", INT8, tag=0, default=0, meaning=CHANGED_FENCED),
            f("inControlledShutdown", INT8, since=1, tag=1, default=0, meaning=CHANGED_SHUTDOWN),
            f("logDirs", UUIDS, since=2, tag=2, default=(), meaning=CHANGED_IF_ANY),
            f("cordonedLogDirs", UUIDS, since=3, tag=3, default=None, nullable=True, meaning=CHANGED),
        ),
    ),
    Layout(
        api_key=27,
        made=r.RegisterControllerRecord,
        versions=((15, 0),),
        fields=(
            f("controllerId", INT32),
            f("incarnationId", UUID),
            f("zkMigrationReady", BOOL),
            _ENDPOINTS,
            _FEATURES,
        ),
    ),
    Layout(api_key=21, made=r.ZkMigrationStateRecord, fields=(f("zkMigrationState", INT8, "state"),)),
)

_DIRECTORIES_FROM: Final = ((23, 2), (17, 1), (0, 0))
"""Levels of `metadata.version` with log directories (1) and with eligible leader replicas (2)."""

_TOPICS: Final = (
    Layout(api_key=2, made=r.TopicRecord, fields=(f("name", STRING), f("topicId", UUID))),
    Layout(api_key=9, made=r.RemoveTopicRecord, fields=(f("topicId", UUID),)),
    Layout(
        api_key=3,
        made=r.PartitionRecord,
        versions=_DIRECTORIES_FROM,
        fields=(
            f("partitionId", INT32, "partition"),
            f("topicId", UUID),
            f("replicas", INT32S),
            f("isr", INT32S),
            f("removingReplicas", INT32S),
            f("addingReplicas", INT32S),
            f("leader", INT32, meaning=LEADER),
            f("leaderRecoveryState", INT8, "recovering", tag=0, default=0, meaning=RECOVERING),
            f("leaderEpoch", INT32),
            f("partitionEpoch", INT32),
            f("directories", UUIDS, since=1, default=(), lossless="not any([it.int for it in {0}])"),
            f("eligibleLeaderReplicas", INT32S, "elr", since=2, tag=1, default=None, nullable=True, meaning=NONE_IF_EMPTY),
            f("lastKnownElr", INT32S, since=2, tag=2, default=None, nullable=True, meaning=NONE_IF_EMPTY),
        ),
    ),
    Layout(
        api_key=5,
        made=r.PartitionChangeRecord,
        versions=_DIRECTORIES_FROM,
        fields=(
            f("partitionId", INT32, "partition"),
            f("topicId", UUID),
            f("isr", INT32S, tag=0, default=None, nullable=True, meaning=CHANGED),
            f("leader", INT32, tag=1, default=-2, meaning=CHANGED_LEADER),
            f("replicas", INT32S, tag=2, default=None, nullable=True, meaning=CHANGED),
            f("removingReplicas", INT32S, tag=3, default=None, nullable=True, meaning=CHANGED),
            f("addingReplicas", INT32S, tag=4, default=None, nullable=True, meaning=CHANGED),
            f("leaderRecoveryState", INT8, "recovering", tag=5, default=-1, meaning=CHANGED_RECOVERING),
            f("directories", UUIDS, since=1, tag=8, default=None, nullable=True, meaning=CHANGED),
            f("eligibleLeaderReplicas", INT32S, "elr", since=2, tag=6, default=None, nullable=True, meaning=CHANGED),
            f("lastKnownElr", INT32S, since=2, tag=7, default=None, nullable=True, meaning=CHANGED),
        ),
    ),
    Layout(api_key=28, made=r.ClearElrRecord, versions=((23, 0),), fields=(f("topicName", STRING),)),
)

_OTHERS: Final = (
    Layout(
        api_key=4,
        made=r.ConfigRecord,
        fields=(f("resourceType", INT8), f("resourceName", STRING), f("name", STRING), f("value", STRING, nullable=True)),
    ),
    Layout(
        api_key=14,
        made=r.ClientQuotaRecord,
        joined={"value": "(None if {remove} else repr({value}))"},
        fields=(
            f(
                "entity",
                STRUCTS,
                parts=(f("entityType", STRING, "type"), f("entityName", STRING, "name", nullable=True)),
                made=QuotaEntityPart,
                meaning=IN_ORDER,
            ),
            f("key", STRING),
            f("value", FLOAT64, meaning=Meaning("(0.0 if {0} is None else float({0}))")),
            f("remove", BOOL, "value", meaning=Meaning("({0} is None)")),
        ),
    ),
    Layout(api_key=12, made=r.FeatureLevelRecord, fields=(f("name", STRING), f("featureLevel", INT16, "level"))),
    Layout(
        api_key=15,
        made=r.ProducerIdsRecord,
        fields=(f("brokerId", INT32), f("brokerEpoch", INT64), f("nextProducerId", INT64)),
    ),
    Layout(api_key=20, made=r.NoOpRecord, versions=((5, 0),)),
    Layout(
        api_key=23,
        made=r.BeginTransactionRecord,
        versions=((13, 0),),
        fields=(f("name", STRING, tag=0, default=None, nullable=True),),
    ),
    Layout(api_key=24, made=r.EndTransactionRecord, versions=((13, 0),)),
    Layout(
        api_key=25,
        made=r.AbortTransactionRecord,
        versions=((13, 0),),
        fields=(f("reason", STRING, tag=0, default=None, nullable=True),),
    ),
)

_SECURITY: Final = (
    Layout(
        api_key=11,
        made=r.UserScramCredentialRecord,
        versions=((11, 0),),
        fields=(
            f("name", STRING),
            f("mechanism", INT8),
            f("salt", BYTES),
            f("storedKey", BYTES),
            f("serverKey", BYTES),
            f("iterations", INT32),
        ),
    ),
    Layout(
        api_key=22,
        made=r.RemoveUserScramCredentialRecord,
        versions=((11, 0),),
        fields=(f("name", STRING), f("mechanism", INT8)),
    ),
    Layout(
        api_key=18,
        made=r.AccessControlEntryRecord,
        fields=(
            f("id", UUID),
            f("resourceType", INT8),
            f("resourceName", STRING),
            f("patternType", INT8),
            f("principal", STRING),
            f("host", STRING),
            f("operation", INT8),
            f("permissionType", INT8),
        ),
    ),
    Layout(api_key=19, made=r.RemoveAccessControlEntryRecord, fields=(f("id", UUID),)),
    Layout(
        api_key=10,
        made=r.DelegationTokenRecord,
        versions=((14, 0),),
        fields=(
            f("owner", STRING),
            f("requester", STRING),
            f("renewers", STRINGS),
            f("issueTimestamp", INT64, "issue_timestamp_ms"),
            f("maxTimestamp", INT64, "max_timestamp_ms"),
            f("expirationTimestamp", INT64, "expiration_timestamp_ms"),
            f("tokenId", STRING),
        ),
    ),
    Layout(api_key=26, made=r.RemoveDelegationTokenRecord, versions=((14, 0),), fields=(f("tokenId", STRING),)),
)

LAYOUTS: Final[Mapping[int, Layout]] = MappingProxyType(
    {it.api_key: it for it in sorted((*_BROKERS, *_TOPICS, *_OTHERS, *_SECURITY), key=lambda it: it.api_key)}
)
"""By type, which is Kafka's "api key" of a record."""
