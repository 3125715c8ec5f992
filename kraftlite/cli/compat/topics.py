"""kafka-topics. Source: TO-09 to TO-13; Kafka's TopicCommand."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import click

from kraftlite.broker.metadata_cache import INTERNAL_TOPICS
from kraftlite.cli.compat.tool import Parser, ToolError, UsageError, cluster_of, exactly_one, whole
from kraftlite.cli.compat.topic_filter import topic_pattern
from kraftlite.client.admin import create_partitions, create_topic, delete_topics, describe_configs, list_reassignments
from kraftlite.client.cluster import ClusterClient
from kraftlite.client.errors import ClientError, RequestRefused
from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import uuid_to_str
from kraftlite.model.messages.choices import ConfigResourceType

ACTIONS = ("list", "describe", "create", "alter", "delete")
FILTERS = ("under_replicated_partitions", "unavailable_partitions", "under_min_isr_partitions", "at_min_isr_partitions")


def _parser() -> Parser:
    parser = Parser("kafka-topics", "This tool helps to create, delete, describe, or change a topic.")
    parser.connection()
    for name in ACTIONS:
        parser.add_argument(f"--{name}", action="store_true")
    for name in ("topic", "topic-id", "replica-assignment", "delete-config"):
        parser.add_argument(f"--{name}")
    for name in ("partitions", "replication-factor", "partition-size-limit-per-response"):
        parser.add_argument(f"--{name}", type=whole(32))
    parser.add_argument("--config", action="append", default=[], metavar="NAME=VALUE")
    for name in (*FILTERS, "topics-with-overrides", "if-exists", "if-not-exists", "exclude-internal"):
        parser.add_argument(f"--{name.replace('_', '-')}", action="store_true")
    return parser


def _read(arguments: Sequence[str]) -> argparse.Namespace:
    if not arguments:
        raise UsageError("Create, delete, describe, or change a topic.")
    options = _parser().read(arguments)
    message = "Command must include exactly one action: --list, --describe, --create, --alter or --delete"
    action = exactly_one(options, ACTIONS, message)
    if action not in ("list", "describe") and not options.topic:
        raise UsageError('Missing required argument "[topic]"')
    if action == "alter" and options.config:
        raise UsageError(
            'Option combination "[bootstrap-server],[config]" can\'t be used with option "[alter]"'
            " (To alter topic configurations, the kafka-configs tool can be used.)"
        )
    if action == "alter" and options.partitions is None:
        raise UsageError('Missing required argument "[partitions]"')
    allowed = {
        "config": ("create",),
        "partitions": ("create", "alter"),
        "replication_factor": ("create",),
        "replica_assignment": ("create", "alter"),
        "if_exists": ("alter", "delete", "describe"),
        "if_not_exists": ("create",),
        "exclude_internal": ("list", "describe"),
        "topics_with_overrides": ("describe",),
        **dict.fromkeys(FILTERS, ("describe",)),
    }
    for name, actions in allowed.items():
        if getattr(options, name) and action not in actions:
            raise UsageError(f'Option "[{name.replace("_", "-")}]" can\'t be used with option "[{action}]"')
    for name in FILTERS if options.topics_with_overrides else ():
        if getattr(options, name):
            raise UsageError(f'Option "[{name.replace("_", "-")}]" can\'t be used with option "[topics-with-overrides]"')
    if action == "create" and options.replica_assignment and (options.partitions or options.replication_factor):
        used = "partitions" if options.partitions else "replication-factor"
        raise UsageError(f'Option "[replica-assignment]" can\'t be used with option "[{used}]"')
    options.action = action
    return options


def run(arguments: Sequence[str]) -> int:
    options = _read(arguments)
    cluster = cluster_of(options)
    try:
        _ACTIONS[options.action](cluster, options)
    except RequestRefused as error:
        click.echo(f"Error while executing topic command : {error.reason}")
        return 1
    except (ToolError, ClientError) as error:
        click.echo(f"Error while executing topic command : {error}")
        return 1
    return 0


# --- which topics


def matching(names: Sequence[str], pattern: str | None, *, exclude_internal: bool) -> list[str]:
    """Names that match as a whole (`topic_pattern`)."""
    found = sorted(name for name in names if not (exclude_internal and name in INTERNAL_TOPICS))
    if pattern is None:
        return found
    matcher = topic_pattern(pattern)
    return [name for name in found if matcher.fullmatch(name)]


def _chosen(cluster: ClusterClient, options: argparse.Namespace) -> list[str]:
    found = matching(list(cluster.topics()), options.topic, exclude_internal=options.exclude_internal)
    if options.topic and not found and not options.if_exists:
        raise ToolError(f"Topic '{options.topic}' does not exist as expected")
    return found


# --- actions


def _list(cluster: ClusterClient, options: argparse.Namespace) -> None:
    click.echo("\n".join(matching(list(cluster.topics()), options.topic, exclude_internal=options.exclude_internal)))


def parse_assignment(text: str) -> list[list[int]]:
    """`1:2,2:3`: the replicas of partition 0, then those of partition 1."""
    found = []
    for item in text.split(","):
        try:
            brokers = [int(broker.strip()) for broker in item.split(":")]
        except ValueError:
            raise ToolError(f'For input string: "{item}"') from None
        if len(set(brokers)) != len(brokers):
            twice = ",".join(str(broker) for broker in sorted({one for one in brokers if brokers.count(one) > 1}))
            raise ToolError(f"Partition replica lists may not contain duplicate entries: {twice}")
        found.append(brokers)
        if len(brokers) != len(found[0]):
            raise ToolError(f"Partition {len(found) - 1} has different replication factor: {brokers}")
    return found


def _configs(options: argparse.Namespace) -> dict[str, str]:
    found = {}
    for item in options.config:
        key, equals, value = item.partition("=")
        if not equals:
            raise ToolError('requirement failed: Invalid topic config: all configs to be added must be in the format "key=val".')
        found[key.strip()] = value.strip()
    return found


def _create(cluster: ClusterClient, options: argparse.Namespace) -> None:
    name, configs = options.topic, _configs(options)
    partitions = -1 if options.partitions is None else options.partitions
    factor = -1 if options.replication_factor is None else options.replication_factor
    assignment = parse_assignment(options.replica_assignment) if options.replica_assignment else []
    if "." in name or "_" in name:
        click.echo(
            "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could collide. To avoid "
            "issues it is best to use either, but not both."
        )
    if options.replication_factor is not None and not 1 <= options.replication_factor <= 32767:
        raise ToolError("The replication factor must be between 1 and 32767 inclusive")
    if options.partitions is not None and options.partitions < 1:
        raise ToolError("The partitions must be greater than 0")
    try:
        create_topic(cluster, name, partitions, factor, configs, assignment)
    except RequestRefused as error:
        if error.code is ErrorCode.TOPIC_ALREADY_EXISTS and options.if_not_exists:
            return
        raise
    click.echo(f"Created topic {name}.")


def _alter(cluster: ClusterClient, options: argparse.Namespace) -> None:
    names = _chosen(cluster, options)
    if not names:
        return
    present = cluster.topics(names)
    topics = []
    for name in names:
        assignments = None
        if options.replica_assignment:
            added = parse_assignment(options.replica_assignment)[len(present[name].partitions) :]
            assignments = [{"broker_ids": brokers} for brokers in added]
        topics.append({"name": name, "count": options.partitions, "assignments": assignments})
    create_partitions(cluster, topics)


def _delete(cluster: ClusterClient, options: argparse.Namespace) -> None:
    names = _chosen(cluster, options)
    if not names:
        return
    for refused in delete_topics(cluster, names).values():
        if refused is not None:
            raise refused


def _describe(cluster: ClusterClient, options: argparse.Namespace) -> None:
    topics = cluster.topics()
    if options.topic_id:
        names = [name for name, topic in topics.items() if topic.topic_id and uuid_to_str(topic.topic_id) == options.topic_id]
        if not names and not options.if_exists:
            raise ToolError(f"TopicId '{options.topic_id}' does not exist as expected")
    else:
        names = _chosen(cluster, options)
    from kraftlite.cli.topics import fetch_topics

    described = {str(topic.name): parts for topic, parts in (fetch_topics(cluster, names) if names else ())}
    moving = list_reassignments(cluster) if names else {}
    for name in names:
        if name not in described:
            continue
        configs = {str(one.name): one for one in describe_configs(cluster, ConfigResourceType.TOPIC, name)}
        _print_topic(name, uuid_to_str(topics[name].topic_id), described[name], configs, moving, set(cluster.brokers()), options)


def _print_topic(
    name: str,
    topic_id: str,
    partitions: Sequence[Any],
    configs: dict[str, Any],
    moving: dict[tuple[str, int], Any],
    live: set[int],
    options: argparse.Namespace,
) -> None:
    filtered = any(getattr(options, one) for one in FILTERS)
    changed = [entry for entry in configs.values() if int(entry.config_source) != 5]
    if not filtered and (not options.topics_with_overrides or changed):
        text = ",".join(f"{entry.name}={'null' if entry.value is None else entry.value}" for entry in changed)
        factor = _factor(partitions[0], moving.get((name, 0)))
        click.echo(
            f"Topic: {name}\tTopicId: {topic_id}\tPartitionCount: {len(partitions)}\tReplicationFactor: {factor}\tConfigs: {text}"
        )
    if options.topics_with_overrides:
        return
    min_isr = int(configs["min.insync.replicas"].value)
    for partition in partitions:
        move = moving.get((name, int(partition.partition_index)))
        leader, in_sync = int(partition.leader_id), len(partition.isr_nodes)
        holds = (
            _factor(partition, move) > in_sync,
            leader < 0 or leader not in live,
            leader < 0 or in_sync < min_isr,
            in_sync == min_isr,
        )
        if not filtered or any(getattr(options, one) and true for one, true in zip(FILTERS, holds, strict=True)):
            _print_partition(name, partition, move)


def _factor(partition: Any, move: Any) -> int:
    """While replicas are being added, those do not count."""
    replicas = {int(node) for node in partition.replica_nodes}
    if move is not None and replicas & {int(node) for node in (*move.adding_replicas, *move.removing_replicas)}:
        return len(move.replicas) - len(move.adding_replicas)
    return len(replicas)


def _print_partition(name: str, partition: Any, move: Any) -> None:
    leader = "none" if partition.leader_id < 0 else partition.leader_id
    parts = [
        f"\tTopic: {name}",
        f"Partition: {partition.partition_index}",
        f"Leader: {leader}",
        f"Replicas: {_joined(partition.replica_nodes)}",
        f"Isr: {_joined(partition.isr_nodes)}",
    ]
    if move is not None:
        parts.append(f"Adding Replicas: {_joined(move.adding_replicas)}")
        parts.append(f"Removing Replicas: {_joined(move.removing_replicas)}")
    parts.append(f"Elr: {_joined(partition.eligible_leader_replicas)}")
    parts.append(f"LastKnownElr: {_joined(partition.last_known_elr)}")
    click.echo("\t".join(parts))


def _joined(nodes: Any) -> str:
    return "N/A" if nodes is None else ",".join(str(node) for node in nodes)


_ACTIONS = {"list": _list, "describe": _describe, "create": _create, "alter": _alter, "delete": _delete}
