"""The operation that each API needs, and what decides about it. Source: SE-40; Kafka's KafkaApis and ControllerApis.

An API without a guard is decided by its handler, step by step (the hot ones), or by the controller, which is told for whom it is
asked (SE-39). A listener does not start with an API that has no row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from kraftlite.model.acls import Operation, ResourceType
from kraftlite.wire.apis.call import Guard, Need
from kraftlite.wire.rights import cluster, configs, groups, topics, transactions
from kraftlite.wire.rights.cluster import empty, of_nothing, on_cluster
from kraftlite.wire.rights.groups import read_group
from kraftlite.wire.rights.topics import by_topic

_TOPIC, _GROUP, _CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
_TRANSACTION = ResourceType.TRANSACTIONAL_ID
_O = Operation

READ_TOPIC: Final = Need(_O.READ, _TOPIC)
WRITE_TOPIC: Final = Need(_O.WRITE, _TOPIC)
DESCRIBE_TOPIC: Final = Need(_O.DESCRIBE, _TOPIC)
READ_GROUP: Final = Need(_O.READ, _GROUP)
DESCRIBE_GROUP: Final = Need(_O.DESCRIBE, _GROUP)
WRITE_TRANSACTION: Final = Need(_O.WRITE, _TRANSACTION)
DESCRIBE_TRANSACTION: Final = Need(_O.DESCRIBE, _TRANSACTION)
ALTER_CLUSTER: Final = Need(_O.ALTER, _CLUSTER)
DESCRIBE_CLUSTER: Final = Need(_O.DESCRIBE, _CLUSTER)
CLUSTER_ACTION: Final = Need(_O.CLUSTER_ACTION, _CLUSTER)
DESCRIBE_CLUSTER_CONFIGS: Final = Need(_O.DESCRIBE_CONFIGS, _CLUSTER)
ALTER_CLUSTER_CONFIGS: Final = Need(_O.ALTER_CONFIGS, _CLUSTER)
_CONFIGURED: Final = (_TOPIC, _GROUP, _CLUSTER)


class Row(NamedTuple):
    """`needs`: all that some request of the API may need. `guard`: see `Api.guard`."""

    needs: tuple[Need, ...]
    guard: Guard | None = None


_HANDED_ON: Final[Mapping[int, Row]] = {
    19: Row((Need(_O.CREATE, _TOPIC),)),  # CreateTopics; CREATE on the cluster is as good
    20: Row((Need(_O.DELETE, _TOPIC),)),  # DeleteTopics; DELETE on the cluster is as good
    30: Row((ALTER_CLUSTER,)),  # CreateAcls
    31: Row((ALTER_CLUSTER,)),  # DeleteAcls
    37: Row((Need(_O.ALTER, _TOPIC),)),  # CreatePartitions
    43: Row((ALTER_CLUSTER,), of_nothing("topic_partitions", "replica_election_results")),  # ElectLeaders
    45: Row((ALTER_CLUSTER,), of_nothing("topics", "responses")),  # AlterPartitionReassignments
    46: Row((DESCRIBE_CLUSTER,)),  # ListPartitionReassignments
    49: Row((ALTER_CLUSTER_CONFIGS,)),  # AlterClientQuotas
    51: Row((ALTER_CLUSTER,)),  # AlterUserScramCredentials
    57: Row((ALTER_CLUSTER,), of_nothing("feature_updates", "results")),  # UpdateFeatures
    64: Row((ALTER_CLUSTER,)),  # UnregisterBroker
}
"""Rows of what the controller decides: `controller/authorization_driver`."""

_ALTER_CONFIGS: Final = tuple(Need(_O.ALTER_CONFIGS, kind) for kind in _CONFIGURED)
_DESCRIBE_CONFIGS: Final = tuple(Need(_O.DESCRIBE_CONFIGS, kind) for kind in _CONFIGURED)

_TOPICS: Final[Mapping[int, Row]] = {
    0: Row((WRITE_TOPIC, WRITE_TRANSACTION)),  # Produce
    1: Row((READ_TOPIC,)),  # Fetch
    2: Row((DESCRIBE_TOPIC,)),  # ListOffsets
    3: Row((DESCRIBE_TOPIC, Need(_O.CREATE, _TOPIC))),  # Metadata; CREATE for a topic that it is to create
    21: Row((Need(_O.DELETE, _TOPIC),), by_topic(_O.DELETE, lambda it: it.name, topics.deleted_records)),  # DeleteRecords
    23: Row((DESCRIBE_TOPIC,), topics.offsets_for_epochs),
    61: Row((READ_TOPIC,), by_topic(_O.READ, lambda it: it.name, topics.producers)),  # DescribeProducers
    75: Row((DESCRIBE_TOPIC,)),  # DescribeTopicPartitions
}

_GROUPS: Final[Mapping[int, Row]] = {
    8: Row((READ_GROUP, READ_TOPIC), groups.offset_commit),
    9: Row((DESCRIBE_GROUP, DESCRIBE_TOPIC), groups.offset_fetch),
    10: Row((DESCRIBE_GROUP, DESCRIBE_TRANSACTION), groups.find_coordinator),
    11: Row((READ_GROUP,), read_group(groups.not_joined)),  # JoinGroup
    12: Row((READ_GROUP,), read_group(groups.nothing)),  # Heartbeat
    13: Row((READ_GROUP,), read_group(groups.no_members)),  # LeaveGroup
    14: Row((READ_GROUP,), read_group(groups.not_synced)),  # SyncGroup
    15: Row((DESCRIBE_GROUP,), groups.describe_groups),
    16: Row((DESCRIBE_GROUP,), groups.list_groups),  # or DESCRIBE on the cluster
    42: Row((Need(_O.DELETE, _GROUP),), groups.delete_groups),
    47: Row((Need(_O.DELETE, _GROUP), READ_TOPIC), groups.offset_delete),
    68: Row((READ_GROUP, DESCRIBE_TOPIC), groups.consumer_heartbeat),
    69: Row((DESCRIBE_GROUP, DESCRIBE_TOPIC), groups.describe_consumer_groups),
}

_TRANSACTIONS: Final[Mapping[int, Row]] = {
    22: Row((WRITE_TRANSACTION, Need(_O.IDEMPOTENT_WRITE, _CLUSTER)), transactions.init_producer_id),
    24: Row((WRITE_TRANSACTION, WRITE_TOPIC, CLUSTER_ACTION), transactions.add_partitions),
    25: Row((WRITE_TRANSACTION, READ_GROUP), transactions.add_offsets),
    26: Row((WRITE_TRANSACTION,), transactions.end_txn),
    27: Row((ALTER_CLUSTER, CLUSTER_ACTION), on_cluster(_O.ALTER, _O.CLUSTER_ACTION, refused=cluster.markers)),  # either
    28: Row((WRITE_TRANSACTION, READ_GROUP, READ_TOPIC), transactions.txn_offset_commit),
    65: Row((DESCRIBE_TRANSACTION, DESCRIBE_TOPIC), transactions.describe_transactions),
    66: Row((DESCRIBE_TRANSACTION,), transactions.list_transactions),
}

_CLUSTERS: Final[Mapping[int, Row]] = {
    29: Row((DESCRIBE_CLUSTER,), on_cluster(_O.DESCRIBE, refused=empty("resources"))),  # DescribeAcls
    32: Row(_DESCRIBE_CONFIGS, configs.describe_configs),
    33: Row(_ALTER_CONFIGS),  # the old AlterConfigs is not for loggers, whoever asks
    34: Row((ALTER_CLUSTER,), on_cluster(_O.ALTER, refused=cluster.moved_replicas)),  # AlterReplicaLogDirs
    35: Row((DESCRIBE_CLUSTER,), on_cluster(_O.DESCRIBE, refused=empty("results"))),  # DescribeLogDirs
    44: Row(_ALTER_CONFIGS, configs.alter_loggers(_O.ALTER_CONFIGS)),
    48: Row((DESCRIBE_CLUSTER_CONFIGS,), on_cluster(_O.DESCRIBE_CONFIGS, refused=empty("entries", None))),
    50: Row((DESCRIBE_CLUSTER,), on_cluster(_O.DESCRIBE, refused=cluster.credentials)),  # DescribeUserScramCredentials
    55: Row((DESCRIBE_CLUSTER,), on_cluster(_O.DESCRIBE, refused=cluster.quorum)),
    60: Row(()),  # DescribeCluster; the operations that it tells need DESCRIBE on the cluster
    74: Row((DESCRIBE_CLUSTER_CONFIGS,), on_cluster(_O.DESCRIBE_CONFIGS, refused=empty("config_resources"))),
    80: Row((ALTER_CLUSTER,), on_cluster(_O.ALTER, refused=cluster.plain)),  # AddRaftVoter
    81: Row((ALTER_CLUSTER,), on_cluster(_O.ALTER, refused=cluster.plain)),  # RemoveRaftVoter
}

_FOR_EVERYBODY: Final[Mapping[int, Row]] = dict.fromkeys((17, 18, 36, 71, 72), Row(()))
"""SaslHandshake, ApiVersions, SaslAuthenticate, GetTelemetrySubscriptions and PushTelemetry."""

_TOKENS: Final[Mapping[int, Row]] = dict.fromkeys((38, 39, 40, 41), Row(()))
"""Delegation tokens belong to their owners and renewers. Their handlers decide about others: CREATE_TOKENS and DESCRIBE_TOKENS on
the owner, DESCRIBE on the token."""

BROKER_ROWS: Final[Mapping[int, Row]] = {
    **_HANDED_ON,
    **_TOPICS,
    **_GROUPS,
    **_TRANSACTIONS,
    **_CLUSTERS,
    **_FOR_EVERYBODY,
    **_TOKENS,
}
"""By API key."""

CONTROLLER_ROWS: Final[Mapping[int, Row]] = {
    **BROKER_ROWS,
    44: Row(_ALTER_CONFIGS, configs.alter_loggers(_O.CLUSTER_ACTION)),
    60: Row((ALTER_CLUSTER,), on_cluster(_O.ALTER, refused=cluster.controllers)),  # a list of controllers
    82: Row((CLUSTER_ACTION,), on_cluster(_O.CLUSTER_ACTION, refused=cluster.updated_voter)),  # UpdateRaftVoter
}
"""The rows of a controller's own listener."""
