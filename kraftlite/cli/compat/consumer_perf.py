"""kafka-consumer-perf-test. Source: TO-33; Kafka's ConsumerPerformance."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import click

from kraftlite.cli.compat import clients
from kraftlite.cli.compat.tool import Parser, UsageError, addresses, whole

_HEADER = (
    "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, fetch.time.ms, "
    "fetch.MB.sec, fetch.nMsg.sec"
)
_MIB = 1024.0 * 1024.0


def run(arguments: Sequence[str], connect: Callable[..., Any] = clients.consumer) -> int:
    parser = Parser("kafka-consumer-perf-test", "This tool is used to verify the consumer performance.")
    parser.connection()
    for name in ("topic", "include", "group", "date-format"):
        parser.add_argument(f"--{name}")
    for name, bits in (("messages", 64), ("num-records", 64), ("fetch-size", 32), ("socket-buffer-size", 32)):
        parser.add_argument(f"--{name}", type=whole(bits))
    for name, bits, usual in (("reporting-interval", 64, None), ("timeout", 64, 10_000)):
        parser.add_argument(f"--{name}", type=whole(bits), default=usual)
    for name in ("from-latest", "hide-header", "print-metrics", "show-detailed-stats"):
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--consumer.config", dest="consumer_config", metavar="FILE")
    parser.add_argument("--consumer-property", "--command-property", action="append", default=[], metavar="KEY=VALUE")
    options = parser.read(arguments)
    messages = options.messages if options.messages is not None else options.num_records
    for first, second in (("topic", "include"), ("messages", "num_records")):
        if (getattr(options, first) is None) == (getattr(options, second) is None):
            named = f"[{first}], [{second.replace('_', '-')}]"
            raise UsageError(f"Exactly one of the following arguments is required: {named}")
    for name in ("print_metrics", "show_detailed_stats", "date_format"):
        if getattr(options, name):
            raise UsageError(f"--{name.replace('_', '-')} is not supported")
    files = [(options.command_config, "--command-config"), (options.consumer_config, "--consumer.config")]
    config: dict[str, object] = {
        "group.id": options.group or f"perf-consumer-{random.randrange(100_000)}",
        "auto.offset.reset": "latest" if options.from_latest else "earliest",
        "check.crcs": False,
        **({"max.partition.fetch.bytes": options.fetch_size} if options.fetch_size else {}),
        **({"socket.receive.buffer.bytes": options.socket_buffer_size} if options.socket_buffer_size else {}),
        **clients.properties(files, [(options.consumer_property, "--consumer-property")]),
    }
    consumer = connect(addresses(options), config)
    if not options.hide_header:
        click.echo(_HEADER)
    topic = f"^({options.include})$" if options.topic is None else options.topic
    click.echo(_measure(consumer, topic, messages, options.timeout))
    return 0


def _measure(consumer: Any, topic: str, messages: int, timeout_ms: int) -> str:
    joined: list[float] = []
    began, wall = time.monotonic(), datetime.now()
    consumer.subscribe([topic], on_assign=lambda _consumer, _partitions: joined.append(time.monotonic()))
    count = size = 0
    last = began
    while count < messages:
        found = [one for one in consumer.consume(min(1000, messages - count), 0.1) if one.error() is None]
        count += len(found)
        size += sum(len(one.value() or b"") + len(one.key() or b"") for one in found)
        now = time.monotonic()
        if found:
            last = now
        elif (now - last) * 1000 > timeout_ms:
            click.echo(
                f"WARNING: Exiting before consuming the expected number of records: timeout ({timeout_ms} ms) exceeded. You can "
                "use the --timeout option to increase the timeout.",
            )
            break
    seconds = max(time.monotonic() - began, 1e-3)
    consumer.close()
    rebalance_ms = int((joined[0] - began) * 1000) if joined else int(seconds * 1000)
    fetch_ms = max(int(seconds * 1000) - rebalance_ms, 1)
    mib = size / _MIB
    times = f"{_moment(wall)}, {_moment(datetime.now())}"
    return (
        f"{times}, {mib:.4f}, {mib / seconds:.4f}, {count}, {count / seconds:.4f}, {rebalance_ms}, {fetch_ms}, "
        f"{mib / fetch_ms * 1000:.4f}, {count / fetch_ms * 1000:.4f}"
    )


def _moment(when: datetime) -> str:
    return f"{when:%Y-%m-%d %H:%M:%S}:{when.microsecond // 1000:03d}"
