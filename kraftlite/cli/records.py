"""records delete: forget the oldest records of partitions (TO-35, KIP-107)."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from kraftlite.cli.common import bootstrap_of, bootstrap_option, output_option, print_json
from kraftlite.cli.files import read_text
from kraftlite.cli.kafka import admin, kafka_message, result

_TIMEOUT_S = 30.0


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
@bootstrap_option
@output_option
def delete_records(
    topic: str | None,
    partition: int,
    before: int | None,
    offset_json_file: Path | None,
    bootstrap_server: str | None,
    output: str,
) -> None:
    """Delete the records of TOPIC's partition below an offset, for good. Replicas and consumers start there then."""
    from confluent_kafka import KafkaException, TopicPartition

    if offset_json_file is not None and topic is None:
        wanted = [TopicPartition(*row) for row in _read(offset_json_file)]
    elif offset_json_file is None and topic is not None and before is not None:
        wanted = [TopicPartition(topic, partition, before)]
    else:
        raise click.UsageError("give TOPIC and --before, or --offset-json-file")
    rows: list[dict[str, object]] = []
    client = admin(bootstrap_of(bootstrap_server))  # held: librdkafka forgets its requests with it
    futures = client.delete_records(wanted, request_timeout=_TIMEOUT_S, operation_timeout=_TIMEOUT_S)
    for found, future in futures.items():
        row: dict[str, object] = {"topic": found.topic, "partition": found.partition, "low_watermark": None, "error": None}
        try:
            row["low_watermark"] = result(future).low_watermark
        except KafkaException as error:
            row["error"] = kafka_message(error)
        rows.append(row)
    if output == "json":
        print_json({"partitions": rows})
    else:
        for row in rows:
            said = f"low_watermark: {row['low_watermark']}" if row["error"] is None else f"error: {row['error']}"
            click.echo(f"partition: {row['topic']}-{row['partition']}\t{said}")
    if any(row["error"] for row in rows):
        sys.exit(1)


def _read(path: Path) -> list[tuple[str, int, int]]:
    try:
        rows = json.loads(read_text(path))["partitions"]
        return [(str(row["topic"]), int(row["partition"]), int(row["offset"])) for row in rows]
    except (ValueError, KeyError, TypeError) as error:
        message = f'{path}: expected {{"partitions": [{{"topic": …, "partition": …, "offset": …}}]}}: {error!r}'
        raise click.ClickException(message) from None
