"""kafka-log-dirs. Source: TO-26; Kafka's LogDirsCommand."""

from __future__ import annotations

import json
from collections.abc import Sequence

import click

from kraftlite.cli.compat.tool import Parser, ToolError, UsageError, cluster_of
from kraftlite.client.admin import Partition, describe_log_dirs


def run(arguments: Sequence[str]) -> int:
    parser = Parser("kafka-log-dirs", "This tool helps to query log directory usage on the specified brokers.")
    parser.connection()
    parser.add_argument("--describe", action="store_true")
    parser.add_argument("--broker-list")
    parser.add_argument("--topic-list")
    options = parser.read(arguments)
    if not options.describe:
        raise UsageError('Missing required argument "[describe]"')
    cluster = cluster_of(options)
    live = cluster.brokers()
    try:
        brokers = [int(one) for one in (options.broker_list or "").split(",") if one.strip()] or list(live)
    except ValueError:
        raise UsageError(f"--broker-list {options.broker_list}: allowed is 1,2,3") from None
    unknown = [one for one in brokers if one not in live]
    if unknown:
        raise ToolError(
            f"ERROR: The given brokers do not exist from --broker-list: {','.join(map(str, unknown))}. "
            f"Current existent brokers: {','.join(map(str, live))}"
        )
    names = [one.strip() for one in (options.topic_list or "").split(",") if one.strip()]
    partitions: list[Partition] | None = None
    if names:
        topics = cluster.topics(names)
        partitions = [(name, int(part.partition_index)) for name in topics for part in topics[name].partitions]
    click.echo("Querying brokers for log directories information")
    found = []
    for broker in brokers:
        directories = describe_log_dirs(cluster, broker, partitions)
        kept = [{key: one[key] for key in ("partitions", "error", "logDir")} for one in directories]
        found.append({"broker": broker, "logDirs": kept})
    click.echo(f"Received log directory information from brokers {','.join(map(str, brokers))}")
    click.echo(json.dumps({"brokers": found, "version": 1}, separators=(",", ":")))
    return 0
