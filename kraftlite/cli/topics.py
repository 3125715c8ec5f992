"""create-topic, topic list|describe|alter|delete. Layouts as kafka-topics prints them (TO-09 to TO-13)."""

from __future__ import annotations

import re
import sys
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from kraftlite.cli.common import output_option, pairs, print_json
from kraftlite.cli.error_texts import explained
from kraftlite.cli.target import Target, target_options
from kraftlite.client.errors import ClientError, RequestRefused
from kraftlite.model.errors import ErrorCode
from kraftlite.protocol.api_keys import DESCRIBE_TOPIC_PARTITIONS

if TYPE_CHECKING:
    from kraftlite.client.cluster import ClusterClient

_COUNT = click.IntRange(1, 100_000)
_FACTOR = click.IntRange(1, 32_767)


@click.command("create-topic")
@click.argument("name")
@click.option("--partitions", type=_COUNT, metavar="N", help="Default: the cluster's num.partitions.")
@click.option("--replication-factor", type=_FACTOR, metavar="N", help="Default: the cluster's default.replication.factor.")
@click.option("--replica-assignment", metavar="1:2,2:3", help="Broker ids of each partition, instead of the two above.")
@click.option("--config", multiple=True, metavar="KEY=VALUE", help="A configuration value of the topic.")
@click.option("--if-not-exists", is_flag=True, help="Succeed when it is there already.")
@target_options
@output_option
def create_topic(
    name: str,
    partitions: int | None,
    replication_factor: int | None,
    replica_assignment: str | None,
    config: tuple[str, ...],
    if_not_exists: bool,
    target: Target,
    output: str,
) -> None:
    """Create topic NAME."""
    from kraftlite.client.admin import create_topic as request

    configs = pairs(config)
    assignment: list[list[int]] = []
    if replica_assignment is not None:
        if partitions is not None or replication_factor is not None:
            raise click.UsageError("--replica-assignment sets both numbers: leave --partitions and --replication-factor out")
        assignment = _assignment(replica_assignment)
    numbers = (-1 if partitions is None else partitions, -1 if replication_factor is None else replication_factor)
    created = True
    try:
        request(target.cluster(), name, *numbers, configs, assignment)
    except RequestRefused as error:
        if not (if_not_exists and error.code is ErrorCode.TOPIC_ALREADY_EXISTS):
            raise
        created = False
    if "." in name or "_" in name:
        click.echo(
            "warning: names with a period and names with an underscore may collide in metrics; best use only one of them",
            err=True,
        )
    if output == "json":
        print_json({"topic": name, "created": created})
    else:
        click.echo(f"Created topic {name}." if created else f"Topic {name} exists.")


def _assignment(text: str) -> list[list[int]]:
    try:
        return [[int(broker) for broker in partition.split(":")] for partition in text.split(",")]
    except ValueError:
        raise click.UsageError(f"--replica-assignment {text}: allowed is broker ids such as 1:2,2:3,3:1") from None


@click.command("list")
@click.option("--topic", "pattern", metavar="REGEX", help="Only names that match as a whole.")
@click.option("--exclude-internal", is_flag=True, help="Without __consumer_offsets and the like.")
@target_options
@output_option
def list_topics_command(pattern: str | None, exclude_internal: bool, target: Target, output: str) -> None:
    """Names of all topics, one on a line, sorted."""
    names = _names(target.cluster(), pattern, exclude_internal)
    if output == "json":
        print_json({"topics": names})
    else:
        for name in names:
            click.echo(name)


def _names(cluster: ClusterClient, pattern: str | None = None, exclude_internal: bool = False) -> list[str]:
    names = sorted(cluster.topics())
    if exclude_internal:
        names = [name for name in names if not name.startswith("__")]
    if pattern is not None:
        try:
            matcher = re.compile(pattern)
        except re.error as error:
            raise click.UsageError(f"--topic {pattern} is not a regular expression: {error}") from None
        names = [name for name in names if matcher.fullmatch(name)]
    return names


def fetch_topics(cluster: ClusterClient, names: list[str]) -> list[Any]:
    """DescribeTopicPartitions of all these topics, page by page."""
    found: dict[str, tuple[Any, list[Any]]] = {}
    wanted = sorted(names)
    cursor: dict[str, Any] | None = None
    while True:
        page = cluster.call(DESCRIBE_TOPIC_PARTITIONS, 0, {"topics": [{"name": name} for name in wanted], "cursor": cursor})
        for topic in page.topics:
            found.setdefault(str(topic.name), (topic, []))[1].extend(topic.partitions)
        if page.next_cursor is None:
            return [(topic, sorted(parts, key=lambda p: p.partition_index)) for topic, parts in found.values()]
        cursor = {"topic_name": page.next_cursor.topic_name, "partition_index": page.next_cursor.partition_index}
        wanted = [name for name in wanted if name >= page.next_cursor.topic_name]


def _overrides(cluster: ClusterClient, names: list[str]) -> dict[str, dict[str, str]]:
    """A user who may see a topic may still lack the right to see its configuration: that is told and costs nothing else."""
    from kraftlite.client.admin import describe_configs
    from kraftlite.client.errors import RequestRefused
    from kraftlite.model.errors import ErrorCode
    from kraftlite.model.messages.choices import ConfigResourceType

    found = {}
    for name in names:
        try:
            entries = describe_configs(cluster, ConfigResourceType.TOPIC, name)
        except RequestRefused as error:
            if error.code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise
            click.echo(f"WARN this user may not see the configuration of topic {name}", err=True)
            entries = []
        found[name] = {str(entry.name): entry.value for entry in entries if int(entry.config_source) == _OWN}
    return found


_OWN = 1
"""The config source of what is set for a topic itself."""


@click.command("describe")
@click.argument("topic", nargs=-1)
@click.option("--under-replicated-partitions", is_flag=True, help="Only partitions whose ISR lacks a replica.")
@click.option("--unavailable-partitions", is_flag=True, help="Only partitions without a leader.")
@click.option("--under-min-isr-partitions", is_flag=True, help="Only partitions whose ISR is below min.insync.replicas.")
@click.option("--at-min-isr-partitions", is_flag=True, help="Only partitions whose ISR is exactly min.insync.replicas.")
@click.option("--watch", is_flag=True, help="Go on, and print what changes, until Ctrl-C.")
@click.option("--for", "seconds", type=click.FloatRange(0, min_open=True), metavar="SECONDS", help="How long to --watch.")
@target_options
@output_option
def describe(
    topic: tuple[str, ...],
    under_replicated_partitions: bool,
    unavailable_partitions: bool,
    under_min_isr_partitions: bool,
    at_min_isr_partitions: bool,
    watch: bool,
    seconds: float | None,
    target: Target,
    output: str,
) -> None:
    """Partitions, leaders, replicas and ISRs of TOPIC…, or of all topics."""
    if seconds is not None and not watch:
        raise click.UsageError("--for needs --watch: it says how long to watch")
    if watch and output == "json":
        raise click.UsageError("--watch prints lines: it cannot be combined with --output json")
    from kraftlite.model.errors import ErrorCode

    cluster = target.cluster()
    names = list(dict.fromkeys(topic)) or _names(cluster)
    topics = fetch_topics(cluster, names) if names else []
    hidden = [str(item.name) for item, _ in topics if item.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    missing = [str(item.name) for item, _ in topics if item.error_code not in (0, ErrorCode.TOPIC_AUTHORIZATION_FAILED)]
    known = [(item, partitions) for item, partitions in topics if item.error_code == 0]
    overrides = _overrides(cluster, [str(item.name) for item, _ in known])
    filters = (under_replicated_partitions, unavailable_partitions, under_min_isr_partitions, at_min_isr_partitions)
    described = [_described(item, partitions, overrides[str(item.name)], filters) for item, partitions in known]
    if output == "json":
        print_json({"topics": described})
    else:
        for entry in described:
            _print_topic(entry, header=not any(filters))
    if watch and known:
        watch_topics(cluster, [str(item.name) for item, _ in known], seconds)
    if hidden:
        raise click.ClickException(f"this user may not see topic {', '.join(hidden)}")
    if missing:
        raise click.ClickException(
            f"Topic '{missing[0]}' does not exist as expected"
            if len(missing) == 1
            else f"Topics {', '.join(missing)} do not exist as expected"
        )


_Seen = dict[str, tuple[int | None, int, tuple[int, ...]]]
_WATCH_S = 0.25


def watch_topics(cluster: ClusterClient, names: list[str], seconds: float | None) -> None:
    """Print each change of a leader or an ISR with its time, until Ctrl-C or for `seconds`."""
    end = None if seconds is None else time.monotonic() + seconds
    before: _Seen | None = None
    silent = False
    try:
        while end is None or time.monotonic() < end:
            try:
                now = _seen(cluster, names)
            except ClientError as error:
                if not silent:
                    _at(str(error))
                silent = True
            else:
                silent = False
                for line in _changes(before or now, now):
                    _at(line)
                before = now
            time.sleep(_WATCH_S)
    except KeyboardInterrupt:
        return


def _seen(cluster: ClusterClient, names: list[str]) -> _Seen:
    """Leader, leader epoch and ISR of each partition."""
    return {
        f"{item.name}-{part.partition_index}": (
            None if part.leader_id < 0 else int(part.leader_id),
            int(part.leader_epoch),
            tuple(int(node) for node in part.isr_nodes),
        )
        for item, partitions in fetch_topics(cluster, names)
        for part in partitions
    }


def _changes(before: _Seen, now: _Seen) -> list[str]:
    lines = []
    for name, (leader, epoch, isr) in now.items():
        old_leader, old_epoch, old_isr = before.get(name, (None, -1, ()))
        parts = []
        if (leader, epoch) != (old_leader, old_epoch):
            words = tuple("none" if node is None else str(node) for node in (old_leader, leader))
            parts.append(f"leader {words[0]} → {words[1]} (epoch {epoch})")
        if isr != old_isr:
            parts.append(f"ISR {_joined(list(old_isr))} → {_joined(list(isr))}")
        if parts:
            lines.append(f"{name}: {', '.join(parts)}")
    return [*lines, *(f"{name}: deleted" for name in before if name not in now)]


def _at(line: str) -> None:
    click.echo(f"{datetime.now().strftime('%H:%M:%S.%f')[:-3]}  {line}")


def _described(item: Any, partitions: list[Any], configs: dict[str, str], filters: tuple[bool, ...]) -> dict[str, Any]:
    from kraftlite.model.ids import uuid_to_str

    min_isr = int(configs.get("min.insync.replicas", "1"))
    chosen = []
    for partition in partitions:
        isr, replicas = partition.isr_nodes, partition.replica_nodes
        matches = (len(isr) < len(replicas), partition.leader_id < 0, len(isr) < min_isr, len(isr) == min_isr)
        if any(filters) and not any(wanted and holds for wanted, holds in zip(filters, matches, strict=True)):
            continue
        elr, last_known = partition.eligible_leader_replicas, partition.last_known_elr
        chosen.append(
            {
                "partition": int(partition.partition_index),
                "leader": None if partition.leader_id < 0 else int(partition.leader_id),
                "leader_epoch": int(partition.leader_epoch),
                "replicas": [int(node) for node in replicas],
                "isr": [int(node) for node in isr],
                "elr": None if elr is None else [int(node) for node in elr],
                "last_known_elr": None if last_known is None else [int(node) for node in last_known],
                "offline_replicas": [int(node) for node in partition.offline_replicas],
            }
        )
    return {
        "topic": str(item.name),
        "topic_id": None if item.topic_id is None else uuid_to_str(item.topic_id),
        "partition_count": len(partitions),
        "replication_factor": len(partitions[0].replica_nodes) if partitions else 0,
        "configs": configs,
        "partitions": chosen,
    }


def _print_topic(entry: dict[str, Any], *, header: bool) -> None:
    if header:
        configs = ",".join(f"{key}={value}" for key, value in sorted(entry["configs"].items()))
        click.echo(
            f"Topic: {entry['topic']}\tTopicId: {entry['topic_id']}\tPartitionCount: {entry['partition_count']}"
            f"\tReplicationFactor: {entry['replication_factor']}\tConfigs: {configs}"
        )
    for partition in entry["partitions"]:
        leader = "none" if partition["leader"] is None else partition["leader"]
        click.echo(
            f"\tTopic: {entry['topic']}\tPartition: {partition['partition']}\tLeader: {leader}"
            f"\tReplicas: {_joined(partition['replicas'])}\tIsr: {_joined(partition['isr'])}"
            f"\tElr: {_joined(partition['elr'])}\tLastKnownElr: {_joined(partition['last_known_elr'])}"
        )


def _joined(nodes: list[int] | None) -> str:
    return "N/A" if nodes is None else ",".join(str(node) for node in nodes)


@click.command("alter")
@click.argument("name")
@click.option("--partitions", type=_COUNT, required=True, metavar="N", help="The new total; it can only grow.")
@target_options
@output_option
def alter_topic(name: str, partitions: int, target: Target, output: str) -> None:
    """Give topic NAME more partitions."""
    from kraftlite.client.admin import create_partitions

    try:
        create_partitions(target.cluster(), [{"name": name, "count": partitions, "assignments": None}])
    except RequestRefused as error:
        raise click.ClickException(f"topic {name}: {explained(error.code, error.message)}") from None
    if output == "json":
        print_json({"topic": name, "partitions": partitions})
    else:
        click.echo(f"Topic {name} has {partitions} partitions.")


@click.command("delete")
@click.argument("name", nargs=-1, required=True)
@click.option("--if-exists", is_flag=True, help="Succeed when it is not there.")
@target_options
@output_option
def delete_topic(name: tuple[str, ...], if_exists: bool, target: Target, output: str) -> None:
    """Delete topics NAME…"""
    from kraftlite.client.admin import delete_topics

    deleted, problems = [], []
    for topic, refused in delete_topics(target.cluster(), dict.fromkeys(name)).items():
        if refused is None:
            deleted.append(topic)
        elif refused.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            problems.append(f"topic {topic}: {explained(refused.code, refused.message)}")
        elif not if_exists:
            problems.append(f"Topic '{topic}' does not exist as expected")
    if output == "json":
        print_json({"deleted": deleted, "problems": problems})
    else:
        for topic in deleted:
            click.echo(f"Deleted topic {topic}.")
    for problem in problems:
        click.echo(f"error: {problem}", err=True)
    if problems:
        sys.exit(1)
