"""kafka-delete-records. Source: TO-35; Kafka's DeleteRecordsCommand."""

from __future__ import annotations

from collections.abc import Sequence

import click

from kraftlite.cli.compat.tool import Parser, ToolError, UsageError, cluster_of, java_exception
from kraftlite.cli.partition_lists import named_twice, read_offsets
from kraftlite.client.admin import Partition, delete_records
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
    click.echo("Executing records delete operation")
    found = delete_records(cluster, wanted)
    click.echo("Records delete operation completed:")
    for partition, (code, low_watermark) in found.items():
        said = f"low_watermark: {low_watermark}" if code is ErrorCode.NONE else f"error: {java_exception(code)}"
        click.echo(f"partition: {partition[0]}-{partition[1]}\t{said}")
    return 0


def _read(path: str) -> dict[Partition, int]:
    try:
        found = read_offsets(path)
    except ValueError as error:
        raise ToolError(f"{path}: not a valid offset file: {error}") from None
    twice = named_twice(partition for partition, _offset in found)
    if twice:
        raise ToolError(
            f"Offset json file contains duplicate topic partitions: {','.join(f'{topic}-{index}' for topic, index in twice)}"
        )
    return dict(found)
