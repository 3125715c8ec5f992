"""A request of each API in which one right decides, for the matrix of APIs and grants."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from kraftlite.log.batch import Record, build_batch
from kraftlite.model.acls import CLUSTER_NAME, Operation, ResourceType

OP, R = Operation, ResourceType
TOPIC, GROUP, TXN, CONSUMERS = "orders-1", "group-1", "txn-1", "consumers-1"
ZERO = UUID(int=0)
Need = tuple[Operation, ResourceType, str]


@dataclass(frozen=True, kw_only=True)
class Sample:
    """`needs`: all rights that the request needs, each to be left out in turn. `shows`: for an API that leaves out what
    may not be seen, whether the answer has it; None: it refuses."""

    key: int
    version: int
    values: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    needs: tuple[Need, ...]
    shows: Callable[[Any], bool] | None = None
    name: str = ""
    alternatives: bool = False
    """Each of the needs is enough."""

    def __str__(self) -> str:
        return f"{self.key}{self.name and '-' + self.name}"


def on_topic(*operations: Operation, name: str = TOPIC) -> tuple[Need, ...]:
    return tuple((one, R.TOPIC, name) for one in operations)


def on_group(*operations: Operation, name: str = GROUP) -> tuple[Need, ...]:
    return tuple((one, R.GROUP, name) for one in operations)


def on_txn(*operations: Operation) -> tuple[Need, ...]:
    return tuple((one, R.TRANSACTIONAL_ID, TXN) for one in operations)


def on_cluster(*operations: Operation) -> tuple[Need, ...]:
    return tuple((one, R.CLUSTER, CLUSTER_NAME) for one in operations)


def sample(key: int, version: int, values: Any, *needs: Need, **more: Any) -> Sample:
    return Sample(key=key, version=version, values=values if callable(values) else lambda _facts: values, needs=needs, **more)


def batch(transactional: bool = False) -> bytes:
    records = [Record(None, b"v", (), 0, 0)]
    if not transactional:
        return build_batch(records, timestamp_ms=1_000)
    return build_batch(records, timestamp_ms=1_000, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)


def produced(transactional_id: str | None) -> dict[str, Any]:
    data = [{"index": 0, "records": batch(transactional_id is not None)}]
    topics = [{"name": TOPIC, "partition_data": data}]
    return {"transactional_id": transactional_id, "acks": 1, "timeout": 5_000, "topic_data": topics}


def fetched(topic: Mapping[str, Any]) -> dict[str, Any]:
    one = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": 0,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": 1_000,
    }
    return {
        "replica_id": -1,
        "max_wait": 0,
        "min_bytes": 0,
        "max_bytes": 1_000,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{**topic, "partitions": [one]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }


_JOIN = {
    "group_id": GROUP,
    "session_timeout": 10_000,
    "rebalance_timeout": 10_000,
    "member_id": "",
    "group_instance_id": None,
    "protocol_type": "consumer",
    "protocols": [{"name": "range", "metadata": b""}],
    "reason": None,
}
_MEMBER = {"group_id": GROUP, "generation_id": 1, "member_id": "m", "group_instance_id": None}
_COMMITTED = {
    "name": TOPIC,
    "partitions": [
        {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": ""},
    ],
}
_TXN = {"transactional_id": TXN, "producer_id": 1, "producer_epoch": 0}
TOPIC_RESOURCE, BROKER_RESOURCE, GROUP_RESOURCE = (2, TOPIC), (4, ""), (32, GROUP)


def consumer(group: str, topics: list[str] | None) -> dict[str, Any]:
    return {
        "group_id": group,
        "member_id": "AAAAAAAAAAAAAAAAAAAAAQ",
        "member_epoch": 0,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout": 10_000,
        "subscribed_topic_names": topics,
        "subscribed_topic_regex": None,
        "server_assignor": None,
        "topic_partitions": [],
    }


def offset_fetch(topic: Mapping[str, Any]) -> dict[str, Any]:
    asked = {"group_id": GROUP, "member_id": None, "member_epoch": -1, "topics": [{**topic, "partition_indexes": [0]}]}
    return {"groups": [asked], "require_stable": False}


def altered(resource: tuple[int, str]) -> dict[str, Any]:
    kind, name = resource
    return {"resources": [{"resource_type": kind, "resource_name": name, "configs": []}], "validate_only": True}


def described(resource: tuple[int, str]) -> dict[str, Any]:
    kind, name = resource
    one = {"resource_type": kind, "resource_name": name, "configuration_keys": None}
    return {"resources": [one], "include_synonyms": False, "include_documentation": False}


def metadata(topic: Mapping[str, Any], creates: bool = False) -> dict[str, Any]:
    return {"topics": [topic], "allow_auto_topic_creation": creates, "include_topic_authorized_operations": False}


def configs(key: int, version: int, values: Callable[[tuple[int, str]], dict[str, Any]], operation: Operation) -> list[Sample]:
    return [
        sample(key, version, values(TOPIC_RESOURCE), *on_topic(operation), name="topic"),
        sample(key, version, values(BROKER_RESOURCE), *on_cluster(operation), name="broker"),
        sample(key, version, values(GROUP_RESOURCE), *on_group(operation), name="group"),
    ]


_NOBODY = {
    "resource_type_filter": 2,
    "resource_name_filter": "x",
    "pattern_type_filter": 3,
    "principal_filter": "User:zed",
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
_NEW_ENTRY = {
    "resource_type": 2,
    "resource_name": "x",
    "resource_pattern_type": 3,
    "principal": "User:zed",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
_PARTITION = [{"topic": TOPIC, "partitions": [0]}]
_NEW_TOPIC = {"num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}

BROKER_SAMPLES = [
    sample(0, 9, produced(None), *on_topic(OP.WRITE)),
    sample(0, 9, produced(TXN), *on_txn(OP.WRITE), *on_topic(OP.WRITE), name="transactional"),
    sample(
        0,
        13,
        lambda it: {
            **produced(None),
            "topic_data": [{"topic_id": it["id"], "partition_data": [{"index": 0, "records": batch()}]}],
        },
        *on_topic(OP.WRITE),
        name="id",
    ),
    sample(1, 12, fetched({"topic": TOPIC}), *on_topic(OP.READ)),
    sample(1, 13, lambda it: fetched({"topic_id": it["id"]}), *on_topic(OP.READ), name="id"),
    sample(
        2,
        7,
        {
            "replica_id": -1,
            "isolation_level": 0,
            "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}]}],
        },
        *on_topic(OP.DESCRIBE),
    ),
    sample(3, 11, metadata({"topic_id": ZERO, "name": TOPIC}), *on_topic(OP.DESCRIBE)),
    sample(3, 12, lambda it: metadata({"topic_id": it["id"], "name": None}), *on_topic(OP.DESCRIBE), name="id"),
    sample(
        3,
        12,
        lambda it: metadata({"topic_id": ZERO, "name": it["new"]}, True),
        (OP.DESCRIBE, R.TOPIC, "{new}"),
        (OP.CREATE, R.TOPIC, "{new}"),
        name="create",
    ),
    sample(
        8,
        9,
        {
            "group_id": GROUP,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [_COMMITTED],
        },
        *on_group(OP.READ),
        *on_topic(OP.READ),
    ),
    sample(9, 9, offset_fetch({"name": TOPIC}), *on_group(OP.DESCRIBE), *on_topic(OP.DESCRIBE)),
    sample(9, 10, lambda it: offset_fetch({"topic_id": it["id"]}), *on_group(OP.DESCRIBE), *on_topic(OP.DESCRIBE), name="id"),
    sample(10, 4, {"key_type": 0, "coordinator_keys": [GROUP]}, *on_group(OP.DESCRIBE)),
    sample(10, 4, {"key_type": 1, "coordinator_keys": [TXN]}, *on_txn(OP.DESCRIBE), name="transaction"),
    sample(10, 2, {"key_type": 0, "key": GROUP}, *on_group(OP.DESCRIBE), name="one"),
    sample(11, 9, _JOIN, *on_group(OP.READ)),
    sample(12, 4, _MEMBER, *on_group(OP.READ)),
    sample(
        13, 5, {"group_id": GROUP, "members": [{"member_id": "m", "group_instance_id": None, "reason": None}]}, *on_group(OP.READ)
    ),
    sample(14, 5, {**_MEMBER, "protocol_type": "consumer", "protocol_name": "range", "assignments": []}, *on_group(OP.READ)),
    sample(15, 5, {"groups": [GROUP], "include_authorized_operations": False}, *on_group(OP.DESCRIBE)),
    sample(
        16,
        5,
        {"states_filter": [], "types_filter": []},
        *on_group(OP.DESCRIBE),
        shows=lambda it: GROUP in {one.group_id for one in it.groups},
    ),
    sample(
        19,
        7,
        lambda it: {"topics": [{"name": it["new"], **_NEW_TOPIC}], "timeout": 5_000, "validate_only": True},
        (OP.CREATE, R.TOPIC, "{new}"),
    ),
    sample(
        20,
        6,
        lambda it: {"topics": [{"name": None, "topic_id": it["doomed"]}], "timeout": 5_000},
        (OP.DELETE, R.TOPIC, "{doomed_name}"),
    ),
    sample(
        21,
        2,
        {"topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "offset": 0}]}], "timeout": 5_000},
        *on_topic(OP.DELETE),
    ),
    sample(
        22,
        4,
        {"transactional_id": TXN, "transaction_timeout": 10_000, "producer_id": -1, "producer_epoch": -1},
        *on_txn(OP.WRITE),
    ),
    sample(
        22,
        4,
        {"transactional_id": None, "transaction_timeout": 10_000, "producer_id": -1, "producer_epoch": -1},
        *on_cluster(OP.IDEMPOTENT_WRITE),
        name="idempotent",
    ),
    sample(
        23,
        4,
        {
            "replica_id": -1,
            "topics": [{"topic": TOPIC, "partitions": [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}]}],
        },
        *on_topic(OP.DESCRIBE),
    ),
    sample(
        24,
        3,
        {
            "v3_and_below_transactional_id": TXN,
            "v3_and_below_producer_id": 1,
            "v3_and_below_producer_epoch": 0,
            "v3_and_below_topics": [{"name": TOPIC, "partitions": [0]}],
        },
        *on_txn(OP.WRITE),
        *on_topic(OP.WRITE),
    ),
    sample(24, 4, {"transactions": []}, *on_cluster(OP.CLUSTER_ACTION), name="broker"),
    sample(25, 3, {**_TXN, "group_id": GROUP}, *on_txn(OP.WRITE), *on_group(OP.READ)),
    sample(26, 3, {**_TXN, "committed": True}, *on_txn(OP.WRITE)),
    sample(
        27,
        1,
        {
            "markers": [
                {
                    "producer_id": 1,
                    "producer_epoch": 0,
                    "transaction_result": False,
                    "topics": [{"name": "nope", "partition_indexes": [0]}],
                    "coordinator_epoch": 0,
                }
            ]
        },
        *on_cluster(OP.ALTER, OP.CLUSTER_ACTION),
        alternatives=True,
    ),
    sample(
        28,
        3,
        {**_TXN, "group_id": GROUP, "generation_id": -1, "member_id": "", "group_instance_id": None, "topics": [_COMMITTED]},
        *on_txn(OP.WRITE),
        *on_group(OP.READ),
        *on_topic(OP.READ),
    ),
    sample(29, 3, _NOBODY, *on_cluster(OP.DESCRIBE)),
    sample(30, 3, {"creations": [_NEW_ENTRY]}, *on_cluster(OP.ALTER)),
    sample(31, 3, {"filters": [_NOBODY]}, *on_cluster(OP.ALTER)),
    *configs(32, 4, described, OP.DESCRIBE_CONFIGS),
    *configs(33, 2, altered, OP.ALTER_CONFIGS),
    sample(34, 2, {"dirs": [{"path": "/no/such", "topics": [{"name": TOPIC, "partitions": [0]}]}]}, *on_cluster(OP.ALTER)),
    sample(35, 4, {"topics": None}, *on_cluster(OP.DESCRIBE)),
    sample(
        37,
        3,
        {"topics": [{"name": TOPIC, "count": 2, "assignments": None}], "timeout": 5_000, "validate_only": True},
        *on_topic(OP.ALTER),
    ),
    sample(42, 2, {"groups_names": ["nobody"]}, *on_group(OP.DELETE, name="nobody")),
    sample(43, 2, {"election_type": 0, "topic_partitions": _PARTITION, "timeout": 5_000}, *on_cluster(OP.ALTER)),
    *configs(44, 1, altered, OP.ALTER_CONFIGS),
    sample(44, 1, altered((8, "2")), *on_cluster(OP.ALTER_CONFIGS), name="logger"),
    sample(
        45,
        0,
        {"timeout": 5_000, "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "replicas": None}]}]},
        *on_cluster(OP.ALTER),
    ),
    sample(46, 0, {"timeout": 5_000, "topics": None}, *on_cluster(OP.DESCRIBE)),
    sample(
        47,
        0,
        {"group_id": GROUP, "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0}]}]},
        *on_group(OP.DELETE),
        *on_topic(OP.READ),
    ),
    sample(48, 1, {"components": [], "strict": False}, *on_cluster(OP.DESCRIBE_CONFIGS)),
    sample(
        49,
        1,
        {"entries": [{"entity": [{"entity_type": "user", "entity_name": "u"}], "ops": []}], "validate_only": True},
        *on_cluster(OP.ALTER_CONFIGS),
    ),
    sample(50, 0, {"users": None}, *on_cluster(OP.DESCRIBE)),
    sample(51, 0, {"deletions": [{"name": "nobody", "mechanism": 1}], "upsertions": []}, *on_cluster(OP.ALTER)),
    sample(
        55,
        2,
        {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]},
        *on_cluster(OP.DESCRIBE),
    ),
    sample(
        57,
        1,
        {
            "timeout": 5_000,
            "feature_updates": [{"feature": "nope", "max_version_level": 1, "upgrade_type": 1}],
            "validate_only": True,
        },
        *on_cluster(OP.ALTER),
    ),
    sample(61, 0, {"topics": [{"name": TOPIC, "partition_indexes": [0]}]}, *on_topic(OP.READ)),
    sample(64, 0, {"broker_id": 99}, *on_cluster(OP.ALTER)),
    sample(65, 0, {"transactional_ids": [TXN]}, *on_txn(OP.DESCRIBE)),
    sample(
        65,
        0,
        {"transactional_ids": ["txn-open"]},
        (OP.DESCRIBE, R.TRANSACTIONAL_ID, "txn-open"),
        *on_topic(OP.DESCRIBE),
        shows=lambda it: any(state.topics for state in it.transaction_states),
        name="topics",
    ),
    sample(
        66,
        1,
        {"state_filters": [], "producer_id_filters": [], "duration_filter": -1},
        *on_txn(OP.DESCRIBE),
        shows=lambda it: TXN in {one.transactional_id for one in it.transaction_states},
    ),
    sample(68, 0, consumer("consumers-2", [TOPIC]), *on_group(OP.READ, name="consumers-2"), *on_topic(OP.DESCRIBE)),
    sample(
        69,
        0,
        {"group_ids": [CONSUMERS], "include_authorized_operations": False},
        *on_group(OP.DESCRIBE, name=CONSUMERS),
        *on_topic(OP.DESCRIBE),
    ),
    sample(74, 1, {"resource_types": []}, *on_cluster(OP.DESCRIBE_CONFIGS)),
    sample(75, 0, {"topics": [{"name": TOPIC}], "response_partition_limit": 100, "cursor": None}, *on_topic(OP.DESCRIBE)),
    sample(
        80,
        0,
        {"cluster_id": "other", "timeout": 100, "voter_id": 9, "voter_directory_id": ZERO, "listeners": []},
        *on_cluster(OP.ALTER),
    ),
    sample(81, 0, {"cluster_id": "other", "voter_id": 9, "voter_directory_id": ZERO}, *on_cluster(OP.ALTER)),
]
