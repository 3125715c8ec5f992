"""Requests of administrators that are not about groups, on a `ClusterClient`: topics, configs, offsets, placement, quotas."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kraftlite.client.cluster import ClusterClient, check
from kraftlite.client.connection import code_of
from kraftlite.client.errors import RequestRefused
from kraftlite.model.errors import ErrorCode
from kraftlite.model.messages.choices import AlterConfigOp, ConfigResourceType
from kraftlite.security.scram import MAX_ITERATIONS, NUMBERS, salted_password

Partition = tuple[str, int]

_CHANGE_TIMEOUT_MS = 30_000
"""The most time that the cluster has to carry out a change; less when the client's `default.api.timeout.ms` is less."""
_ANSWER_MS = 10_000
"""The time that the answer has behind that."""
_LEADER_TIMEOUT_MS = 10_000
"""For a leader that takes connections and answers nothing: a little longer than a session, after which there is another."""
_MAX_TIMESTAMP = -3
"""The lowest timestamp of ListOffsets that every broker since Kafka 3.0 knows; those of tiered storage, below it, are newer."""
_LATEST_TIERED = -5
"""The lowest that version 10 knows."""
SOURCES = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    7: "DYNAMIC_CLIENT_METRICS_CONFIG",
    8: "DYNAMIC_GROUP_CONFIG",
}
"""`ConfigSource` of a DescribeConfigs response, as Kafka's tools call them."""


def describe_configs(cluster: ClusterClient, kind: int, name: str, *, timeout_ms: int | None = None) -> list[Any]:
    """The entries of one resource, sorted by name, with synonyms. A broker is asked itself. `timeout_ms` as in `call`. Raises
    RequestRefused."""
    own = kind in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER) and name.isdigit()
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": None}
    values = {"resources": [resource], "include_synonyms": True, "include_documentation": False}
    (answer,) = cluster.call(32, 4, values, broker=int(name) if own else None, timeout_ms=timeout_ms).results
    return sorted(check(answer).configs, key=lambda entry: str(entry.name))


def alter_configs(cluster: ClusterClient, kind: int, name: str, changes: Sequence[tuple[str, AlterConfigOp, str | None]]) -> None:
    """IncrementalAlterConfigs of one resource. Raises RequestRefused."""
    configs = [{"name": key, "config_operation": int(op), "value": value} for key, op, value in changes]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    own = kind in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER) and name.isdigit()
    values = {"resources": [resource], "validate_only": False}
    (answer,) = cluster.call(44, 1, values, broker=int(name) if own else None).responses
    check(answer)


def list_resources(cluster: ClusterClient, kind: int) -> list[str]:
    """ListConfigResources of one type, sorted."""
    found = check(cluster.call(74, 1, {"resource_types": [kind]}))
    return sorted(str(one.resource_name) for one in found.config_resources)


def by_topic(partitions: Iterable[Partition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, index in partitions:
        found.setdefault(topic, []).append(index)
    return found


def _change(cluster: ClusterClient, api_key: int, version: int, values: Mapping[str, Any], broker: int | None = None) -> Any:
    timeout_ms = min(_CHANGE_TIMEOUT_MS, cluster.settings.retry_timeout_ms)
    return cluster.call(api_key, version, {**values, "timeout": timeout_ms}, broker=broker, timeout_ms=timeout_ms + _ANSWER_MS)


def create_topic(
    cluster: ClusterClient,
    name: str,
    partitions: int,
    replication_factor: int,
    configs: Mapping[str, str],
    assignments: Sequence[Sequence[int]] = (),
) -> None:
    """-1 stands for the cluster's default, and for the number in `assignments`, the replicas of each partition. Raises
    RequestRefused."""
    topic = {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": replication_factor,
        "assignments": [{"partition_index": at, "broker_ids": brokers} for at, brokers in enumerate(assignments)],
        "configs": [{"name": key, "value": value} for key, value in configs.items()],
    }
    (found,) = _change(cluster, 19, 7, {"topics": [topic], "validate_only": False}).topics
    check(found)


def create_partitions(cluster: ClusterClient, topics: Sequence[Mapping[str, Any]]) -> None:
    """`topics`: those of CreatePartitions, as plain values. Raises RequestRefused for the first one that is refused."""
    for result in _change(cluster, 37, 3, {"topics": topics, "validate_only": False}).results:
        check(result)


def delete_topics(cluster: ClusterClient, names: Iterable[str]) -> dict[str, RequestRefused | None]:
    """None: it is deleted."""
    topics = [{"name": name, "topic_id": None} for name in names]
    found: dict[str, RequestRefused | None] = {}
    for result in _change(cluster, 20, 6, {"topics": topics}).responses:
        code = code_of(result)
        found[str(result.name)] = None if code is ErrorCode.NONE else RequestRefused(code, result.error_message)
    return found


def delete_records(cluster: ClusterClient, wanted: Mapping[Partition, int]) -> dict[Partition, tuple[ErrorCode, int]]:
    """(error, low watermark) after the records below an offset were deleted, by the leaders of the partitions."""
    leaders = cluster.leaders(sorted({topic for topic, _index in wanted}))

    def ask(leader: int, partitions: list[Partition]) -> dict[Partition, tuple[ErrorCode, int]]:
        topics = [
            {"name": topic, "partitions": [{"partition_index": at, "offset": wanted[topic, at]} for at in indexes]}
            for topic, indexes in by_topic(partitions).items()
        ]
        answer = _change(cluster, 21, 2, {"topics": topics}, broker=leader)
        return {
            (str(topic.name), int(part.partition_index)): (code_of(part), int(part.low_watermark))
            for topic in answer.topics
            for part in topic.partitions
        }

    found = cluster.at_leaders({partition: leaders.get(partition) for partition in wanted}, ask, lambda it: it[0])
    leaderless = {partition: (ErrorCode.LEADER_NOT_AVAILABLE, -1) for partition in wanted if partition in leaders}
    return dict.fromkeys(wanted, (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)) | leaderless | found


def list_offsets(
    cluster: ClusterClient, wanted: Mapping[Partition, int], leaders: Mapping[Partition, int | None], *, committed: bool = False
) -> dict[Partition, tuple[ErrorCode, int, int]]:
    """(error, offset, timestamp) at a timestamp or one of Kafka's negative ones, each asked at its leader."""

    def ask(leader: int, partitions: list[Partition]) -> dict[Partition, tuple[ErrorCode, int, int]]:
        topics = [
            {
                "name": topic,
                "partitions": [
                    {"partition_index": at, "current_leader_epoch": -1, "timestamp": wanted[topic, at]} for at in indexes
                ],
            }
            for topic, indexes in by_topic(partitions).items()
        ]
        values = {"replica_id": -1, "isolation_level": 1 if committed else 0, "topics": topics, "timeout": 30_000}
        lowest = min(wanted.values(), default=0)
        version = 7 if lowest >= _MAX_TIMESTAMP else 10 if lowest >= _LATEST_TIERED else 11
        answer = cluster.call(2, version, values, broker=leader, timeout_ms=_LEADER_TIMEOUT_MS)
        return {
            (str(topic.name), int(part.partition_index)): (code_of(part), int(part.offset), int(part.timestamp))
            for topic in answer.topics
            for part in topic.partitions
        }

    nobody = (ErrorCode.LEADER_NOT_AVAILABLE, -1, -1)
    at = {partition: leaders.get(partition) for partition in wanted}
    return dict.fromkeys(wanted, nobody) | cluster.at_leaders(at, ask, lambda found: found[0])


def elect_leaders(
    cluster: ClusterClient, election_type: int, partitions: Sequence[Partition] | None
) -> dict[Partition, tuple[ErrorCode, str | None]]:
    """Raises RequestRefused when the request as a whole is refused."""
    topics = None
    if partitions is not None:
        topics = [{"topic": topic, "partitions": indexes} for topic, indexes in by_topic(partitions).items()]
    answer = check(_change(cluster, 43, 2, {"election_type": election_type, "topic_partitions": topics}))
    return {
        (str(topic.topic), int(one.partition_id)): (code_of(one), one.error_message)
        for topic in answer.replica_election_results
        for one in topic.partition_result
    }


def alter_reassignments(
    cluster: ClusterClient, wanted: Mapping[Partition, Sequence[int] | None], *, any_factor: bool = True
) -> dict[Partition, tuple[ErrorCode, str | None]]:
    """None cancels. Without `any_factor` a partition keeps the number of its replicas, or is refused (KIP-860). Raises
    RequestRefused when the request as a whole is refused."""
    topics = [
        {"name": topic, "partitions": [{"partition_index": at, "replicas": wanted[topic, at]} for at in indexes]}
        for topic, indexes in by_topic(wanted).items()
    ]
    version, more = (0, {}) if any_factor else (1, {"allow_replication_factor_change": False})
    answer = check(_change(cluster, 45, version, {"topics": topics, **more}))
    return {
        (str(topic.name), int(one.partition_index)): (code_of(one), one.error_message)
        for topic in answer.responses
        for one in topic.partitions
    }


def list_reassignments(cluster: ClusterClient, partitions: Iterable[Partition] | None = None) -> dict[Partition, Any]:
    """List the reassignments under way: kio's entry with replicas, adding_replicas and removing_replicas."""
    topics = None
    if partitions is not None:
        topics = [{"name": topic, "partition_indexes": indexes} for topic, indexes in by_topic(partitions).items()]
    answer = check(cluster.call(46, 0, {"timeout": 30_000, "topics": topics}))
    return {(str(topic.name), int(one.partition_index)): one for topic in answer.topics for one in topic.partitions}


def describe_quotas(
    cluster: ClusterClient, components: Sequence[tuple[str, int, str | None]], *, strict: bool
) -> list[tuple[dict[str, str | None], dict[str, float]]]:
    """(entity, quotas) by filter: type, match type (0 exact, 1 default, 2 any), name. Raises RequestRefused."""
    asked = [{"entity_type": kind, "match_type": match, "match": name} for kind, match, name in components]
    answer = check(cluster.call(48, 1, {"components": asked, "strict": strict}))
    return [
        (
            {str(part.entity_type): part.entity_name for part in entry.entity},
            {str(value.key): float(value.value) for value in entry.values},
        )
        for entry in answer.entries or ()
    ]


def alter_quotas(cluster: ClusterClient, entity: Mapping[str, str | None], ops: Mapping[str, float | None]) -> None:
    """None removes. Raises RequestRefused."""
    entry = {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()],
        "ops": [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in ops.items()],
    }
    (found,) = cluster.call(49, 1, {"entries": [entry], "validate_only": False}).entries
    check(found)


_MECHANISMS: Final = {number: name for name, number in NUMBERS.items()}


def describe_scram(cluster: ClusterClient, users: Sequence[str] | None) -> dict[str, list[tuple[int, int]]]:
    """User to (mechanism, iterations). None: all that have credentials; users that have none are left out."""
    wanted = None if users is None else [{"name": user} for user in users]
    answer = check(cluster.call(50, 0, {"users": wanted}))
    return {
        str(one.user): [(int(info.mechanism), int(info.iterations)) for info in check(one).credential_infos]
        for one in answer.results
        if code_of(one) is not ErrorCode.RESOURCE_NOT_FOUND
    }


def alter_scram(cluster: ClusterClient, user: str, deleted: Sequence[int], added: Mapping[int, tuple[int, str]]) -> None:
    """`added`: mechanism to iterations and password, of which only the salted one leaves this process. Raises RequestRefused."""
    upsertions = []
    for mechanism, (iterations, password) in added.items():
        salt = secrets.token_bytes(16)
        rounds = min(max(iterations, 1), MAX_ITERATIONS)  # more are refused, whatever has become of the password
        salted = salted_password(_MECHANISMS[mechanism], password, salt, rounds)
        upsertions.append(
            {"name": user, "mechanism": mechanism, "iterations": iterations, "salt": salt, "salted_password": salted}
        )
    values = {"deletions": [{"name": user, "mechanism": one} for one in deleted], "upsertions": upsertions}
    for result in cluster.call(51, 0, values).results:
        check(result)


def alter_replica_log_dirs(cluster: ClusterClient, broker: int, wanted: Mapping[Partition, str]) -> dict[Partition, ErrorCode]:
    """Have replicas of a broker in the directories at these paths; each one's code."""
    by_path: dict[str, list[Partition]] = {}
    for partition, path in wanted.items():
        by_path.setdefault(path, []).append(partition)
    dirs = [
        {"path": path, "topics": [{"name": name, "partitions": indexes} for name, indexes in by_topic(partitions).items()]}
        for path, partitions in by_path.items()
    ]
    answer = cluster.call(34, 2, {"dirs": dirs}, broker=broker)
    return {
        (str(topic.topic_name), int(part.partition_index)): code_of(part) for topic in answer.results for part in topic.partitions
    }


def describe_log_dirs(
    cluster: ClusterClient, broker: int, partitions: Iterable[Partition] | None = None, *, timeout_ms: int | None = None
) -> list[dict[str, Any]]:
    """The log directories of a broker, as kafka-log-dirs prints them, with their sizes."""
    topics = None
    if partitions is not None:
        topics = [{"topic": topic, "partitions": indexes} for topic, indexes in by_topic(partitions).items()]
    answer = check(cluster.call(35, 5, {"topics": topics}, broker=broker, timeout_ms=timeout_ms))
    found = []
    for directory in answer.results:
        code = code_of(directory)
        replicas = [
            {
                "partition": f"{topic.name}-{part.partition_index}",
                "size": int(part.partition_size),
                "offsetLag": int(part.offset_lag),
                "isFuture": bool(part.is_future_key),
            }
            for topic in directory.topics
            for part in topic.partitions
        ]
        found.append(
            {
                "logDir": str(directory.log_dir),
                "error": None if code is ErrorCode.NONE else code.name,
                "totalBytes": int(directory.total_bytes),
                "usableBytes": int(directory.usable_bytes),
                "cordoned": bool(directory.is_cordoned),
                "partitions": replicas,
            }
        )
    return found
