"""kafka-log-dirs. Source: TO-26; Kafka's LogDirsCommand."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import click

from kraftlite.cli.compat.tool import Parser, ToolError, UsageError, cluster_of, java_class
from kraftlite.client.admin import describe_log_dirs
from kraftlite.client.cluster import ClusterClient
from kraftlite.model.errors import ErrorCode


def run(arguments: Sequence[str]) -> int:
    parser = Parser("kafka-log-dirs", "This tool helps to query log directory usage on the specified brokers.")
    parser.connection()
    parser.add_argument("--describe", action="store_true")
    parser.add_argument("--broker-list")
    parser.add_argument("--topic-list")
    options = parser.read(arguments)
    if not options.describe:
        raise UsageError('Missing required argument "[describe]"')
    describe(cluster_of(options), options.broker_list or "", options.topic_list or "")
    return 0


def describe(cluster: ClusterClient, broker_list: str, topic_list: str) -> None:
    """Print what the directories of these brokers hold of these topics; each list may be empty, for all. Raises ToolError."""
    live = cluster.brokers()
    try:
        named = [int(one) for one in broker_list.split(",") if one.strip()]
    except ValueError:
        raise UsageError(f"--broker-list {broker_list}: allowed is 1,2,3") from None
    brokers = list(dict.fromkeys(named)) or list(live)
    unknown = [one for one in brokers if one not in live]
    if unknown:
        raise ToolError(
            f"ERROR: The given brokers do not exist from --broker-list: {','.join(map(str, unknown))}. "
            f"Current existent brokers: {','.join(map(str, live))}"
        )
    names = {one.strip() for one in topic_list.split(",") if one.strip()}
    click.echo("Querying brokers for log directories information")
    found = [
        {"broker": broker, "logDirs": [_shown(one, names) for one in describe_log_dirs(cluster, broker)]} for broker in brokers
    ]
    click.echo(f"Received log directory information from brokers {','.join(map(str, brokers))}")
    click.echo(json.dumps({"brokers": found, "version": 1}, separators=(",", ":")))


def _shown(directory: Mapping[str, Any], topics: Collection[str]) -> dict[str, Any]:
    """Show a directory with what is in it of these topics (none: of all), whether the cluster still knows them or not."""
    replicas = [one for one in directory["partitions"] if not topics or one["partition"].rpartition("-")[0] in topics]
    error = directory["error"]
    return {
        "partitions": replicas,
        "error": None if error is None else java_class(ErrorCode[error]),
        "logDir": directory["logDir"],
    }
