"""kafka-delete-records. Source: TO-35; Kafka's DeleteRecordsCommand."""

from __future__ import annotations

import json
from collections.abc import Sequence

import click

from kraftlite.cli.admin_calls import Partition, by_topic
from kraftlite.cli.compat.tool import Parser, ToolError, UsageError, bootstrap, java_exception
from kraftlite.cli.files import read_text
from kraftlite.cli.wire import ClusterClient, code_of
from kraftlite.model.errors import ErrorCode


def run(arguments: Sequence[str]) -> int:
    parser = Parser("kafka-delete-records", "This tool helps to delete records of the given partitions down to an offset.")
    parser.connection()
    parser.add_argument("--offset-json-file")
    options = parser.read(arguments)
    if not options.offset_json_file:
        raise UsageError('Missing required argument "[offset-json-file]"')
    wanted = _read(options.offset_json_file)
    cluster = ClusterClient(bootstrap(options))
    leaders = cluster.leaders(sorted({topic for topic, _index in wanted}))
    click.echo("Executing records delete operation")
    lines: dict[Partition, str] = {}
    by_leader: dict[int, list[Partition]] = {}
    for partition in wanted:
        leader = leaders.get(partition)
        if leader is None:
            code = ErrorCode.LEADER_NOT_AVAILABLE if partition in leaders else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            lines[partition] = f"error: {java_exception(code)}"
        else:
            by_leader.setdefault(leader, []).append(partition)
    for leader, partitions in by_leader.items():
        topics = [
            {"name": topic, "partitions": [{"partition_index": at, "offset": wanted[topic, at]} for at in indexes]}
            for topic, indexes in by_topic(partitions).items()
        ]
        for topic in cluster.call(21, 2, {"topics": topics, "timeout": 30_000}, broker=leader).topics:
            for part in topic.partitions:
                code = code_of(part)
                said = f"low_watermark: {part.low_watermark}" if code is ErrorCode.NONE else f"error: {java_exception(code)}"
                lines[str(topic.name), int(part.partition_index)] = said
    click.echo("Records delete operation completed:")
    for topic_name, index in wanted:
        click.echo(f"partition: {topic_name}-{index}\t{lines[topic_name, index]}")
    return 0


def _read(path: str) -> dict[Partition, int]:
    try:
        rows = json.loads(read_text(path))["partitions"]
        found = [((str(row["topic"]), int(row["partition"])), int(row["offset"])) for row in rows]
    except (ValueError, KeyError, TypeError) as error:
        raise ToolError(f"{path}: not a valid offset file: {error!r}") from None
    names = [partition for partition, _offset in found]
    twice = sorted({item for item in names if names.count(item) > 1})
    if twice:
        raise ToolError(
            f"Offset json file contains duplicate topic partitions: {','.join(f'{topic}-{index}' for topic, index in twice)}"
        )
    return dict(found)
