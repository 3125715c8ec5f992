"""cluster describe and elect-leaders."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kraftlite.cli.common import output_option, print_json, print_table
from kraftlite.cli.partition_lists import partition_of, read_rows
from kraftlite.cli.target import Target, target_options
from kraftlite.client.errors import RequestRefused
from kraftlite.model.errors import ErrorCode
from kraftlite.model.messages.choices import ElectionType

if TYPE_CHECKING:
    from kraftlite.client.cluster import ClusterClient


@click.command("describe")
@target_options
@output_option
def describe_cluster(target: Target, output: str) -> None:
    """Cluster id, active controller and brokers.

    The controller shown is what the quorum says; Kafka's own DescribeCluster names a random live broker on KRaft.
    """
    from kraftlite.local.client import quorum_of

    cluster = target.cluster()
    found = cluster.brokers()
    topics = cluster.topics()
    quorum = quorum_of(cluster)
    led = dict.fromkeys(found, 0)
    held = dict.fromkeys(found, 0)
    for topic in topics.values():
        for partition in topic.partitions:
            led[int(partition.leader_id)] = led.get(int(partition.leader_id), 0) + 1
            for replica in partition.replica_nodes:
                held[int(replica)] = held.get(int(replica), 0) + 1
    brokers = [
        {
            "id": node.id,
            "address": node.address,
            "rack": node.rack,
            "leaders": led[node.id],
            "replicas": held[node.id],
        }
        for node in found.values()
    ]
    if output == "json":
        print_json({"cluster_id": cluster.cluster_id, "controller": quorum["leader_id"], "brokers": brokers})
        return
    click.echo(f"ClusterId: {cluster.cluster_id}")
    click.echo(f"Active controller: {quorum['leader_id']} (epoch {quorum['leader_epoch']})")
    click.echo("")
    print_table(("BROKER", "ADDRESS", "RACK", "LEADERS", "REPLICAS"), [tuple(broker.values()) for broker in brokers])


@click.command("elect-leaders")
@click.option(
    "--election-type", type=click.Choice(["preferred", "unclean"], case_sensitive=False), default="preferred", show_default=True
)
@click.option("--topic", metavar="NAME", help="With --partition: one partition; alone: all partitions of the topic.")
@click.option("--partition", type=click.IntRange(0), metavar="P")
@click.option("--all-topic-partitions", is_flag=True, help="Every partition that needs it.")
@click.option(
    "--path-to-json-file", type=click.Path(path_type=Path), metavar="FILE", help='{"partitions": [{"topic": …, "partition": …}]}'
)
@target_options
@output_option
def elect_leaders(
    election_type: str,
    topic: str | None,
    partition: int | None,
    all_topic_partitions: bool,
    path_to_json_file: Path | None,
    target: Target,
    output: str,
) -> None:
    """Make the preferred replica the leader, or any live one (unclean: may lose records)."""
    if sum((topic is not None, all_topic_partitions, path_to_json_file is not None)) != 1:
        raise click.UsageError("give exactly one of --topic, --all-topic-partitions, --path-to-json-file")
    if partition is not None and topic is None:
        raise click.UsageError("--partition needs --topic")
    cluster = target.cluster()
    wanted: list[tuple[str, int]] | None = None
    if path_to_json_file is not None:
        wanted = _from_file(path_to_json_file)
    elif topic is not None:
        wanted = _of_topic(cluster, topic, partition)
    kind = election_type.upper()
    elected, valid, failed = _elect(cluster, ElectionType[kind], wanted)
    _report(kind, elected, valid, failed, output)


def _elect(
    cluster: ClusterClient, kind: ElectionType, wanted: list[tuple[str, int]] | None
) -> tuple[list[str], list[str], dict[str, str]]:
    """(elected, not needed, failed with reason), each sorted by partition."""
    from kraftlite.client.admin import elect_leaders as elect

    try:
        results = elect(cluster, int(kind), wanted)
    except RequestRefused as error:
        raise click.ClickException(f"the election was refused: {error.code.name}") from None
    elected, valid, failed = [], [], {}
    for (name, index), (code, message) in sorted(results.items()):
        partition = f"{name}-{index}"
        if code is ErrorCode.NONE:
            elected.append(partition)
        elif code is ErrorCode.ELECTION_NOT_NEEDED:
            valid.append(partition)
        else:
            failed[partition] = f"{code.name}: {message or 'refused'}"
    return elected, valid, failed


def _report(kind: str, elected: list[str], valid: list[str], failed: dict[str, str], output: str) -> None:
    if output == "json":
        print_json({"election_type": kind, "elected": elected, "not_needed": valid, "failed": failed})
    else:
        if elected:
            click.echo(f"Successfully completed leader election ({kind}) for partitions {', '.join(elected)}")
        if valid:
            click.echo(f"Valid replica already elected for partitions {', '.join(valid)}")
        for name, reason in failed.items():
            click.echo(f"Error completing leader election ({kind}) for partition: {name}: {reason}", err=True)
        if not elected and not valid and not failed:
            click.echo("No partition needs an election.")
    if failed:
        sys.exit(1)


def _of_topic(cluster: ClusterClient, topic: str, partition: int | None) -> list[tuple[str, int]]:
    if partition is not None:
        return [(topic, partition)]
    found = cluster.topics([topic]).get(topic)
    if found is None:
        raise click.ClickException(f"Topic '{topic}' does not exist as expected")
    return [(topic, index) for index in sorted(int(one.partition_index) for one in found.partitions)]


def _from_file(path: Path) -> list[tuple[str, int]]:
    try:
        return [partition_of(row) for row in read_rows(path, "partitions")]
    except OSError as error:
        raise click.ClickException(f"{path}: {error.strerror}") from None
    except ValueError as error:
        message = f'{path}: allowed is {{"partitions": [{{"topic": …, "partition": …}}]}}: {error}'
        raise click.ClickException(message) from None
