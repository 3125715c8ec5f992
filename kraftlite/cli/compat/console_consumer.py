"""kafka-console-consumer. Source: TO-31; Kafka's ConsoleConsumer and DefaultMessageFormatter."""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import click

from kraftlite.cli.compat import clients
from kraftlite.cli.compat.tool import Parser, ToolError, UsageError, addresses, key_values, read_properties, whole
from kraftlite.cli.transaction_records import formatted
from kraftlite.model.errors import ApiError
from kraftlite.model.limits import MAX_INT64

_FORMATTER = "org.apache.kafka.tools.consumer.DefaultMessageFormatter"
_TRANSACTIONS = "org.apache.kafka.tools.consumer.TransactionLogMessageFormatter"
_NOTHING = "org.apache.kafka.tools.consumer.NoOpMessageFormatter"
_FORMATTERS = (_FORMATTER, "kafka.tools.DefaultMessageFormatter", _NOTHING, _TRANSACTIONS)
_DESERIALIZERS = ("StringDeserializer", "ByteArrayDeserializer", "BytesDeserializer")
_POLL_S = 0.1


def _parser() -> Parser:
    parser = Parser("kafka-console-consumer", "This tool helps to read data from Kafka topics and outputs it to standard output.")
    parser.connection()
    for name in (
        "topic",
        "include",
        "offset",
        "group",
        "formatter",
        "formatter-config",
        "key-deserializer",
        "value-deserializer",
    ):
        parser.add_argument(f"--{name}")
    for name in ("partition", "max-messages", "timeout-ms"):
        parser.add_argument(f"--{name}", type=whole(32))
    for name in ("from-beginning", "skip-message-on-error", "enable-systest-events"):
        parser.add_argument(f"--{name}", action="store_true")
    for name in ("property", "formatter-property", "consumer-property", "command-property"):
        parser.add_argument(f"--{name}", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--consumer.config", dest="consumer_config", metavar="FILE")
    parser.add_argument("--isolation-level", default="read_uncommitted")
    return parser


def _check(options: argparse.Namespace) -> None:
    if (options.topic is None) == (options.include is None):
        raise UsageError("Exactly one of --include/--topic is required. ")
    if options.partition is not None and options.topic is None:
        raise UsageError("The topic is required when partition is specified.")
    if options.offset is not None and options.partition is None:
        raise UsageError("The partition is required when offset is specified.")
    if options.offset is not None and options.from_beginning:
        raise UsageError("Options from-beginning and offset cannot be specified together.")
    if options.group is not None and options.partition is not None:
        raise UsageError("Options group and partition cannot be specified together.")
    if options.isolation_level not in ("read_committed", "read_uncommitted"):
        raise UsageError(f"--isolation-level {options.isolation_level}: allowed is read_committed or read_uncommitted")
    if options.formatter is not None and options.formatter not in _FORMATTERS:
        raise UsageError(f"--formatter {options.formatter} is not supported; allowed is {_FORMATTER}")
    for name in ("key_deserializer", "value_deserializer"):
        value = getattr(options, name)
        if value is not None and value.rpartition(".")[2] not in _DESERIALIZERS:
            raise UsageError(
                f"--{name.replace('_', '-')} {value} is not supported; allowed is one of {', '.join(_DESERIALIZERS)}"
            )


def run(arguments: Sequence[str]) -> int:
    options = _parser().read(arguments)
    _check(options)
    begin = _begin(options)
    show = _transaction if options.formatter == _TRANSACTIONS else Formatter(options)
    brokers = addresses(options)
    consumer = clients.consumer(brokers, _config(options))
    if options.partition is not None:
        from confluent_kafka import TopicPartition

        consumer.assign([TopicPartition(options.topic, options.partition, begin)])
    else:
        consumer.subscribe([options.topic if options.topic is not None else f"^({options.include.replace(',', '|')})$"])
    count = 0
    try:
        count = _loop(consumer, show, options)
    finally:
        consumer.close()
        click.echo(f"Processed a total of {count} messages", err=True)
    return 0


def _begin(options: argparse.Namespace) -> int:
    from confluent_kafka import OFFSET_BEGINNING, OFFSET_END

    text = options.offset or ("earliest" if options.from_beginning else "latest")
    if text in ("earliest", "latest"):
        return int(OFFSET_BEGINNING if text == "earliest" else OFFSET_END)
    if not (text.isascii() and text.isdecimal() and int(text) <= MAX_INT64):
        raise UsageError(
            f"The provided offset value '{text}' is incorrect. Valid values are 'earliest', 'latest', or a non-negative long."
        )
    return int(text)


def _config(options: argparse.Namespace) -> dict[str, object]:
    files = [(options.command_config, "--command-config"), (options.consumer_config, "--consumer.config")]
    items = [(options.consumer_property, "--consumer-property"), (options.command_property, "--command-property")]
    given = clients.properties(files, items)
    group = options.group or given.get("group.id")
    config: dict[str, object] = {
        "group.id": group or f"console-consumer-{random.randrange(100_000)}",
        "enable.auto.commit": group is not None,
        "auto.offset.reset": "earliest" if options.from_beginning else "latest",
        "isolation.level": options.isolation_level,
        "fetch.wait.max.ms": 100,
        "topic.metadata.refresh.interval.ms": 1000,
        "allow.auto.create.topics": True,
    }
    if options.group and given.get("group.id", options.group) != options.group:
        raise UsageError(
            "The group ids provided in different places (directly using '--group', via '--command-property', or via "
            "'--command-config') do not match."
        )
    return {**config, **given}


class Formatter:
    """Kafka's DefaultMessageFormatter: which parts of a record are printed, and what stands between them."""

    def __init__(self, options: argparse.Namespace) -> None:
        values = read_properties(options.formatter_config, "--formatter-config") if options.formatter_config else {}
        values.update(key_values(options.property, "--property"))
        values.update(key_values(options.formatter_property, "--formatter-property"))
        self.silent = options.formatter == _NOTHING

        def flag(name: str, default: str = "false") -> bool:
            return values.get(name, default).strip().lower() == "true"

        self.timestamp, self.partition, self.offset = (flag(f"print.{name}") for name in ("timestamp", "partition", "offset"))
        self.headers, self.epoch, self.key = (flag(f"print.{name}") for name in ("headers", "epoch", "key"))
        self.delivery = flag("print.delivery")
        self.value = flag("print.value", "true")
        self.separator = values.get("key.separator", "\t").encode()
        self.line = values.get("line.separator", "\n").encode()
        self.between = values.get("headers.separator", ",").encode()
        self.null = values.get("null.literal", "null").encode()

    def __call__(self, message: Any) -> bytes:
        if self.silent:
            return b""
        parts: list[bytes] = []
        if self.timestamp:
            kind, moment = message.timestamp()
            name = {1: "CreateTime", 2: "LogAppendTime"}.get(kind)
            parts.append(b"NO_TIMESTAMP" if name is None else f"{name}:{moment}".encode())
        if self.partition:
            parts.append(f"Partition:{message.partition()}".encode())
        if self.offset:
            parts.append(f"Offset:{message.offset()}".encode())
        if self.delivery:
            parts.append(b"Delivery:NOT_PRESENT")  # only consumers of share groups know it
        if self.epoch:
            parts.append(f"Epoch:{message.leader_epoch()}".encode())
        if self.headers:
            pairs = message.headers() or []
            shown = [name.encode() + b":" + (self.null if value is None else value) for name, value in pairs]
            parts.append(self.between.join(shown) if shown else b"NO_HEADERS")
        if self.key:
            parts.append(self.null if message.key() is None else message.key())
        if self.value:
            parts.append(self.null if message.value() is None else message.value())
        return self.separator.join(parts) + self.line


def _transaction(message: Any) -> bytes:
    try:
        return formatted(message.key(), message.value())
    except ApiError as error:
        raise ToolError(f"offset {message.offset()}: {error.message}") from None


def _loop(consumer: Any, show: Callable[[Any], bytes], options: argparse.Namespace) -> int:
    from confluent_kafka import KafkaException

    count = 0
    limit = options.max_messages if options.max_messages is not None and options.max_messages >= 0 else None
    last = time.monotonic()
    out = sys.stdout.buffer
    try:
        while limit is None or count < limit:
            messages = consumer.consume(1000 if limit is None else min(1000, limit - count), _POLL_S)
            for message in messages:
                error = message.error()
                if error is not None:
                    if error.fatal():
                        raise KafkaException(error)
                    continue
                count += 1
                last = time.monotonic()
                out.write(show(message))
            if messages:
                out.flush()
            if options.timeout_ms is not None and (time.monotonic() - last) * 1000 > options.timeout_ms:
                click.echo(
                    "ERROR Error processing message, terminating consumer process: "
                    "org.apache.kafka.common.errors.TimeoutException",
                    err=True,
                )
                break
    except KeyboardInterrupt:
        pass
    return count
