"""cluster describe and elect-leaders."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from kraftlite.cli.common import bootstrap_of, bootstrap_option, output_option, print_json, print_table
from kraftlite.cli.files import read_text
from kraftlite.cli.kafka import admin, kafka_errors, list_topics, result
from kraftlite.client.errors import RequestRefused
from kraftlite.local.client import cluster_at
from kraftlite.model.errors import ErrorCode
from kraftlite.model.messages.controller import ElectionType


@click.command("describe")
@bootstrap_option
@output_option
def describe_cluster(bootstrap_server: str | None, output: str) -> None:
    """Cluster id, active controller and brokers.

    The controller shown is what the quorum says; Kafka's own DescribeCluster names a random live broker on KRaft.
    """
    from kraftlite.local.client import fetch_quorum

    bootstrap = bootstrap_of(bootstrap_server)
    client = admin(bootstrap)
    metadata = list_topics(client)
    with kafka_errors():
        described = result(client.describe_cluster(request_timeout=15.0))
    quorum = fetch_quorum(bootstrap)
    racks = {node.id: node.rack for node in described.nodes}
    led = dict.fromkeys(metadata.brokers, 0)
    held = dict.fromkeys(metadata.brokers, 0)
    for topic in metadata.topics.values():
        for partition in topic.partitions.values():
            led[partition.leader] = led.get(partition.leader, 0) + 1
            for replica in partition.replicas:
                held[replica] = held.get(replica, 0) + 1
    brokers = [
        {
            "id": node.id,
            "address": f"{node.host}:{node.port}",
            "rack": racks.get(node.id),
            "leaders": led[node.id],
            "replicas": held[node.id],
        }
        for node in sorted(metadata.brokers.values(), key=lambda node: node.id)
    ]
    if output == "json":
        print_json({"cluster_id": described.cluster_id, "controller": quorum["leader_id"], "brokers": brokers})
        return
    click.echo(f"ClusterId: {described.cluster_id}")
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
@bootstrap_option
@output_option
def elect_leaders(
    election_type: str,
    topic: str | None,
    partition: int | None,
    all_topic_partitions: bool,
    path_to_json_file: Path | None,
    bootstrap_server: str | None,
    output: str,
) -> None:
    """Make the preferred replica the leader, or any live one (unclean: may lose records)."""
    if sum((topic is not None, all_topic_partitions, path_to_json_file is not None)) != 1:
        raise click.UsageError("give exactly one of --topic, --all-topic-partitions, --path-to-json-file")
    if partition is not None and topic is None:
        raise click.UsageError("--partition needs --topic")
    bootstrap = bootstrap_of(bootstrap_server)
    wanted: list[tuple[str, int]] | None = None
    if path_to_json_file is not None:
        wanted = _from_file(path_to_json_file)
    elif topic is not None:
        wanted = _of_topic(bootstrap, topic, partition)
    kind = election_type.upper()
    elected, valid, failed = _elect(bootstrap, ElectionType[kind], wanted)
    _report(kind, elected, valid, failed, output)


def _elect(
    bootstrap: str, kind: ElectionType, wanted: list[tuple[str, int]] | None
) -> tuple[list[str], list[str], dict[str, str]]:
    """(elected, not needed, failed with reason), each sorted by partition."""
    from kraftlite.cli.admin_calls import elect_leaders as elect

    try:
        results = elect(cluster_at(bootstrap), int(kind), wanted)
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


def _of_topic(bootstrap: str, topic: str, partition: int | None) -> list[tuple[str, int]]:
    if partition is not None:
        return [(topic, partition)]
    found = list_topics(admin(bootstrap)).topics.get(topic)
    if found is None:
        raise click.ClickException(f"Topic '{topic}' does not exist as expected")
    return [(topic, index) for index in sorted(found.partitions)]


def _from_file(path: Path) -> list[tuple[str, int]]:
    try:
        entries = json.loads(read_text(path))["partitions"]
        return [(str(entry["topic"]), int(entry["partition"])) for entry in entries]
    except OSError as error:
        raise click.ClickException(f"{path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError) as error:
        message = f'{path}: allowed is {{"partitions": [{{"topic": …, "partition": …}}]}}: {error!r}'
        raise click.ClickException(message) from None
