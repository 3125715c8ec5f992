"""kafka-leader-election. Source: TO-16; Kafka's LeaderElectionCommand."""

from __future__ import annotations

from collections.abc import Sequence

import click

from kraftlite.cli.compat.tool import Parser, ToolError, UsageError, cluster_of, java_exception, whole
from kraftlite.cli.partition_lists import named_twice, partition_of, read_rows
from kraftlite.client.admin import Partition, elect_leaders
from kraftlite.client.cluster import ClusterClient
from kraftlite.model.errors import ErrorCode
from kraftlite.model.messages.choices import ElectionType


def run(arguments: Sequence[str]) -> int:
    parser = Parser("kafka-leader-election", "This tool attempts to elect a new leader for a set of topic partitions.")
    parser.connection()
    parser.add_argument("--admin.config", dest="admin_config", metavar="FILE")
    parser.add_argument("--election-type", metavar="PREFERRED|UNCLEAN")
    parser.add_argument("--topic")
    parser.add_argument("--partition", type=whole(32))
    parser.add_argument("--all-topic-partitions", action="store_true")
    parser.add_argument("--path-to-json-file", metavar="FILE")
    options = parser.read(arguments)
    kind = str(options.election_type or "").upper()
    if not kind:
        raise UsageError("Missing required option(s): election-type")
    if kind not in ElectionType.__members__:
        raise UsageError(f"Cannot parse argument '{options.election_type}' of option election-type")
    if options.admin_config is not None and options.command_config is not None:
        raise UsageError('Option "[admin.config]" can\'t be used with option "[command-config]"')
    chosen = [options.topic is not None, options.all_topic_partitions, options.path_to_json_file is not None]
    if sum(chosen) != 1:
        raise UsageError("One and only one of the following options is required: topic, all-topic-partitions, path-to-json-file")
    if options.topic is not None and options.partition is None:
        raise UsageError("Missing required option(s): partition")
    if options.topic is None and options.partition is not None:
        raise UsageError("Option partition is only allowed if topic is used")
    wanted: list[Partition] | None = None
    if options.path_to_json_file is not None:
        wanted = read_partitions(options.path_to_json_file)
    elif options.topic is not None:
        wanted = [(options.topic, options.partition)]
    old = options.command_config is None and options.admin_config is not None  # the name before KIP-1147
    cluster = cluster_of(options, options.admin_config, "--admin.config") if old else cluster_of(options)
    return _elect(cluster, kind, wanted)


def read_partitions(path: str) -> list[Partition]:
    """`{"partitions": [{"topic": "t", "partition": 0}]}`."""
    try:
        found = [partition_of(row) for row in read_rows(path, "partitions")]
    except ValueError as error:
        raise ToolError(f"Replica election data is invalid: {path}: {error}") from None
    twice = named_twice(found)
    if twice:
        raise ToolError(
            f"Replica election data contains duplicate partitions: [{', '.join(f'{topic}-{index}' for topic, index in twice)}]"
        )
    return found


def _elect(cluster: ClusterClient, kind: str, wanted: list[Partition] | None) -> int:
    if wanted == []:
        return 0  # as Kafka's: nobody is asked for, which is done
    results = elect_leaders(cluster, int(ElectionType[kind]), wanted)
    by_code: dict[str, list[str]] = {"done": [], "noop": []}
    failed = {}
    for (topic, index), (code, message) in sorted(results.items()):
        name = f"{topic}-{index}"
        if code is ErrorCode.NONE:
            by_code["done"].append(name)
        elif code is ErrorCode.ELECTION_NOT_NEEDED:
            by_code["noop"].append(name)
        else:
            failed[name] = java_exception(code, message)
    if by_code["done"]:
        click.echo(f"Successfully completed leader election ({kind}) for partitions {', '.join(by_code['done'])}")
    if by_code["noop"]:
        click.echo(f"Valid replica already elected for partitions {', '.join(by_code['noop'])}")
    for name, reason in failed.items():
        click.echo(f"Error completing leader election ({kind}) for partition: {name}: {reason}")
    if failed:
        raise ToolError(f"{len(failed)} replica(s) could not be elected")
    return 0
