"""records delete: forget the oldest records of partitions (TO-35, KIP-107)."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from kraftlite.cli.common import output_option, print_json
from kraftlite.cli.error_texts import explained
from kraftlite.cli.partition_lists import read_offsets
from kraftlite.cli.target import Target, target_options
from kraftlite.model.errors import ErrorCode


@click.command("delete")
@click.argument("topic", required=False)
@click.option("--partition", type=click.IntRange(min=0), default=0, show_default=True, help="Of TOPIC.")
@click.option(
    "--before", type=click.IntRange(min=-1), help="Delete what lies below this offset; -1: all that consumers can read."
)
@click.option(
    "--offset-json-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help='Many partitions: {"partitions": [{"topic": "t", "partition": 0, "offset": 10}]}.',
)
@target_options
@output_option
def delete_records(
    topic: str | None,
    partition: int,
    before: int | None,
    offset_json_file: Path | None,
    target: Target,
    output: str,
) -> None:
    """Delete the records of TOPIC's partition below an offset, for good. Replicas and consumers start there then."""
    from kraftlite.client.admin import delete_records as request

    if offset_json_file is not None and topic is None:
        wanted = _read(offset_json_file)
    elif offset_json_file is None and topic is not None and before is not None:
        wanted = {(topic, partition): before}
    else:
        raise click.UsageError("give TOPIC and --before, or --offset-json-file")
    rows: list[dict[str, object]] = []
    for (name, index), (code, low_watermark) in request(target.cluster(), wanted).items():
        row: dict[str, object] = {"topic": name, "partition": index, "low_watermark": None, "error": None}
        if code is ErrorCode.NONE:
            row["low_watermark"] = low_watermark
        else:
            row["error"] = explained(code)
        rows.append(row)
    if output == "json":
        print_json({"partitions": rows})
    else:
        for row in rows:
            said = f"low_watermark: {row['low_watermark']}" if row["error"] is None else f"error: {row['error']}"
            click.echo(f"partition: {row['topic']}-{row['partition']}\t{said}")
    if any(row["error"] for row in rows):
        sys.exit(1)


def _read(path: Path) -> dict[tuple[str, int], int]:
    try:
        rows = read_offsets(path)
    except ValueError as error:
        message = f'{path}: expected {{"partitions": [{{"topic": …, "partition": …, "offset": …}}]}}: {error}'
        raise click.ClickException(message) from None
    found = dict(rows)
    if len(found) < len(rows):
        raise click.ClickException(f"{path}: a partition is named more than once")
    return found
