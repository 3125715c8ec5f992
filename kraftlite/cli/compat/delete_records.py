"""kafka-delete-records. Source: TO-35; Kafka's DeleteRecordsCommand."""

from __future__ import annotations

import json
from collections.abc import Sequence

import click

from kraftlite.cli.admin_calls import Partition, by_topic
from kraftlite.cli.compat.tool import Parser, ToolError, UsageError, cluster_of, java_exception
from kraftlite.cli.files import read_text
from kraftlite.client.connection import code_of
from kraftlite.model.errors import ErrorCode


def run(arguments: Sequence[str]) -> int:
    parser = Parser("kafka-delete-records", "This tool helps to delete records of the given partitions down to an offset.")
    parser.connection()
    parser.add_argument("--offset-json-file")
    options = parser.read(arguments)
    if not options.offset_json_file:
        raise UsageError('Missing required argument "[offset-json-file]"')
    wanted = _read(options.offset_json_file)
    cluster = cluster_of(options)
    leaders = cluster.leaders(sorted({topic for topic, _index in wanted}))
    click.echo("Executing records delete operation")

    def ask(leader: int, partitions: list[Partition]) -> dict[Partition, tuple[ErrorCode, int]]:
        topics = [
            {"name": topic, "partitions": [{"partition_index": at, "offset": wanted[topic, at]} for at in indexes]}
            for topic, indexes in by_topic(partitions).items()
        ]
        answer = cluster.call(21, 2, {"topics": topics, "timeout": 30_000}, broker=leader)
        return {
            (str(topic.name), int(part.partition_index)): (code_of(part), int(part.low_watermark))
            for topic in answer.topics
            for part in topic.partitions
        }

    found = cluster.at_leaders({partition: leaders.get(partition) for partition in wanted}, ask, lambda it: it[0])
    click.echo("Records delete operation completed:")
    for partition in wanted:
        missing = ErrorCode.LEADER_NOT_AVAILABLE if partition in leaders else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        code, low_watermark = found.get(partition, (missing, -1))
        said = f"low_watermark: {low_watermark}" if code is ErrorCode.NONE else f"error: {java_exception(code)}"
        click.echo(f"partition: {partition[0]}-{partition[1]}\t{said}")
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
