"""consume TOPIC: records as text or JSON lines."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import click

from kraftlite.cli.common import output_option
from kraftlite.cli.librdkafka import kafka_errors
from kraftlite.cli.target import Target, target_options

_IDLE_POLL_S = 0.1
_CONNECT_S = 10.0
_BATCH = 1000
_NOT_JOINED = -1
"""Stands for the partitions that a group has not assigned yet."""


@click.command("consume")
@click.argument("topic")
@click.option("--from-beginning", is_flag=True, help="Start at the first record instead of behind the last one.")
@click.option("--group", metavar="NAME", help="Join this consumer group: go on where it has committed, and commit.")
@click.option("--partition", type=click.IntRange(0), multiple=True, metavar="P", help="Only these partitions.")
@click.option("--offset", type=click.IntRange(0), metavar="N", help="Start at this offset (of each partition).")
@click.option("--max-messages", type=click.IntRange(1), metavar="N", help="End after so many records.")
@click.option("--timeout", type=click.FloatRange(0), metavar="S", help="End when no record came for so long.")
@click.option(
    "--isolation-level", type=click.Choice(["read_committed", "read_uncommitted"]), default="read_committed", show_default=True
)
@click.option(
    "--format",
    "template",
    metavar="TEXT",
    default="%s\\n",
    show_default=True,
    help="%s value, %k key, %t topic, %p partition, %o offset, %T timestamp in ms, %h headers, \\n, \\t.",
)
@target_options
@output_option
def consume(
    topic: str,
    from_beginning: bool,
    group: str | None,
    partition: tuple[int, ...],
    offset: int | None,
    max_messages: int | None,
    timeout: float | None,
    isolation_level: str,
    template: str,
    target: Target,
    output: str,
) -> None:
    """Print records of TOPIC until Ctrl-C, --max-messages or --timeout; with -o json one JSON object per line."""
    from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, TopicPartition

    if group is not None and (partition or offset is not None):
        raise click.UsageError(
            "--group cannot be combined with --partition or --offset: the group decides who reads what, and from where"
        )
    found = target.cluster().topics([topic]).get(topic)
    if found is None:
        raise click.ClickException(f"Topic '{topic}' does not exist as expected")
    indexes = {int(one.partition_index) for one in found.partitions}
    unknown = [index for index in partition if index not in indexes]
    if unknown:
        raise click.ClickException(f"topic {topic} has partitions 0 to {len(indexes) - 1}, and no partition {unknown[0]}")
    config = {
        **target.librdkafka(),
        "group.id": group or "kraftlite-consume",
        "enable.auto.commit": group is not None,
        "auto.offset.reset": "error" if offset is not None else "earliest" if from_beginning else "latest",
        "isolation.level": isolation_level,
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 100,
    }
    begin = offset if offset is not None else (OFFSET_BEGINNING if from_beginning else OFFSET_END)
    consumer = Consumer(config)
    wanted: set[int] = set(partition or indexes)
    if group is None:
        consumer.assign([TopicPartition(topic, index, begin) for index in sorted(wanted)])
    else:
        wanted = {_NOT_JOINED}
        consumer.subscribe([topic], on_assign=lambda _consumer, assigned: _joined(wanted, assigned))
    show = _json_line if output == "json" else formatter(template)
    count = 0
    try:
        with kafka_errors():
            count = _loop(consumer, show, max_messages, timeout, wanted)
    finally:
        consumer.close()
    click.echo(f"Processed a total of {count} messages", err=True)


def _loop(
    consumer: Any,
    show: Callable[[Any], bytes],
    max_messages: int | None,
    timeout: float | None,
    unheard: set[int],
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """`timeout` (s) counts from the last record, and not before every partition has sent a record or said that it has none.

    Each may be led by another broker, and one of them answers last. `unheard`: those that have said nothing yet; it may grow.
    """
    count = 0
    last = clock()
    connect_by = last + _CONNECT_S
    out = sys.stdout.buffer
    try:
        while max_messages is None or count < max_messages:
            wanted = _BATCH if max_messages is None else min(_BATCH, max_messages - count)
            messages = consumer.consume(wanted, _IDLE_POLL_S)
            records = [message for message in messages if message.error() is None]
            for message in messages:
                if message.error() is None or _is_end(message.error()):
                    unheard.discard(message.partition())
                else:
                    _check(message.error())
            if records:
                count += len(records)
                out.write(b"".join(map(show, records)))
                out.flush()
            now = clock()
            if records or (unheard and now < connect_by):
                last = now
            elif timeout is not None and now - last >= timeout:
                break
    except KeyboardInterrupt:
        pass
    return count


def _joined(unheard: set[int], assigned: Any) -> None:
    """The group has said which partitions are ours."""
    unheard.discard(_NOT_JOINED)
    unheard.update(one.partition for one in assigned)


def _is_end(error: Any) -> bool:
    return error is not None and error.name() == "_PARTITION_EOF"


def _check(error: Any) -> None:
    from confluent_kafka import KafkaException

    if error is not None and (error.fatal() or error.name() == "_AUTO_OFFSET_RESET"):
        raise KafkaException(error)


def _json_line(message: Any) -> bytes:
    kind, timestamp = message.timestamp()
    headers = [(name, _text(content)) for name, content in message.headers() or []]
    value = {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": timestamp if kind else None,
        "key": _text(message.key()),
        "value": _text(message.value()),
        "headers": dict(headers),
        "header_list": [part for header in headers for part in header],
    }
    return (json.dumps(value, ensure_ascii=False) + "\n").encode()


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "backslashreplace")


_FIELDS: dict[str, Callable[[Any], bytes]] = {
    "s": lambda message: message.value() or b"",
    "k": lambda message: message.key() or b"",
    "t": lambda message: str(message.topic()).encode(),
    "p": lambda message: str(message.partition()).encode(),
    "o": lambda message: str(message.offset()).encode(),
    "T": lambda message: str(message.timestamp()[1]).encode(),
    "h": lambda message: ",".join(f"{name}={_text(content)}" for name, content in message.headers() or []).encode(),
    "%": lambda message: b"%",
}
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "\\": b"\\"}


def formatter(template: str) -> Callable[[Any], bytes]:
    """A record's text by a template in the style of kcat."""
    parts: list[bytes | Callable[[Any], bytes]] = []
    i = 0
    while i < len(template):
        pair = template[i : i + 2]
        if len(pair) == 2 and pair[0] == "%":
            if pair[1] not in _FIELDS:
                raise click.UsageError(
                    f"--format {template}: {pair} is unknown; allowed are {' '.join('%' + f for f in _FIELDS)}"
                )
            parts.append(_FIELDS[pair[1]])
            i += 2
        elif len(pair) == 2 and pair[0] == "\\" and pair[1] in _ESCAPES:
            parts.append(_ESCAPES[pair[1]])
            i += 2
        else:
            parts.append(pair[0].encode())
            i += 1
    return lambda message: b"".join(part if isinstance(part, bytes) else part(message) for part in parts)
