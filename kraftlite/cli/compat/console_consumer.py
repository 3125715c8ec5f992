"""kafka-console-consumer. Source: TO-31; Kafka's ConsoleConsumer."""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections.abc import Sequence
from typing import Any

import click

from kraftlite.cli.compat import clients
from kraftlite.cli.compat.formatters import Show, Unreadable, formatter
from kraftlite.cli.compat.tool import (
    Parser,
    UsageError,
    addresses,
    java_exception,
    key_values,
    only_one_of,
    read_properties,
    whole,
)
from kraftlite.cli.target import CONFIG_VARIABLE
from kraftlite.model.errors import ErrorCode, error_code
from kraftlite.model.limits import MAX_INT64

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
    for name, bits in (("partition", 32), ("max-messages", 32), ("timeout-ms", 64)):
        parser.add_argument(f"--{name}", type=whole(bits))
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
    if options.isolation_level not in ("read_committed", "read_uncommitted"):
        raise UsageError(f"--isolation-level {options.isolation_level}: allowed is read_committed or read_uncommitted")
    only_one_of(options, "property", "formatter-property")
    only_one_of(options, "consumer-property", "command-property")
    if options.consumer_config is not None and options.command_config not in (None, os.environ.get(CONFIG_VARIABLE)):
        raise UsageError("Options --consumer.config and --command-config cannot be specified together.")


def run(arguments: Sequence[str]) -> int:
    options = _parser().read(arguments)
    _check(options)
    begin = _begin(options)
    show = formatter(options.formatter, _formatter_properties(options))
    config = _config(options)
    brokers = addresses(options)
    connection = clients.Connection(brokers)
    consumer = clients.consumer(brokers, {**config, "error_cb": connection})
    if options.partition is not None:
        from confluent_kafka import TopicPartition

        consumer.assign([TopicPartition(options.topic, options.partition, begin)])
    else:
        consumer.subscribe([options.topic if options.topic is not None else f"^({options.include})$"])
    shown = _Shown(show, skip=options.skip_message_on_error)
    try:
        _loop(consumer, connection, shown, options)
    finally:
        consumer.close()
        click.echo(f"Processed a total of {shown.count} messages", err=True)
        if options.enable_systest_events:
            click.echo("shutdown_complete")
    return 0


def _begin(options: argparse.Namespace) -> int:
    from confluent_kafka import OFFSET_BEGINNING, OFFSET_END

    text = options.offset or ("earliest" if options.from_beginning else "latest")
    if text.lower() in ("earliest", "latest"):
        return int(OFFSET_BEGINNING if text.lower() == "earliest" else OFFSET_END)
    if not (text.isascii() and text.isdecimal() and int(text) <= MAX_INT64):
        raise UsageError(
            f"The provided offset value '{text}' is incorrect. Valid values are 'earliest', 'latest', or a non-negative long."
        )
    return int(text)


def _config(options: argparse.Namespace) -> dict[str, object]:
    files = [(options.command_config, "--command-config"), (options.consumer_config, "--consumer.config")]
    items = [(options.consumer_property, "--consumer-property"), (options.command_property, "--command-property")]
    given = clients.properties(files, items)
    groups = list(dict.fromkeys(str(one) for one in (options.group, given.get("group.id")) if one is not None))
    if len(groups) > 1:
        raise UsageError(
            "The group ids provided in different places (directly using '--group', via '--command-property', or via "
            f"'--command-config') do not match. Detected group ids: {', '.join(repr(one) for one in groups)}"
        )
    if groups and options.partition is not None:
        raise UsageError("Options group and partition cannot be specified together.")
    if groups and not groups[0].strip():
        raise UsageError("The configured group.id should not be an empty string or whitespace.")
    reset = str(given.get("auto.offset.reset", "earliest"))
    if options.from_beginning and reset != "earliest":
        raise UsageError(
            f"Can't simultaneously specify --from-beginning and 'auto.offset.reset={reset}', please remove one option"
        )
    if reset == "none":
        given["auto.offset.reset"] = "error"  # as librdkafka calls it
    config: dict[str, object] = {
        "group.id": groups[0] if groups else f"console-consumer-{random.randrange(100_000)}",
        "enable.auto.commit": bool(groups),
        "auto.offset.reset": "earliest" if options.from_beginning else "latest",
        "isolation.level": options.isolation_level,
        "fetch.wait.max.ms": 100,
        "topic.metadata.refresh.interval.ms": 1000,
        "allow.auto.create.topics": True,
    }
    return {**config, **given}


def _formatter_properties(options: argparse.Namespace) -> dict[str, str]:
    values = read_properties(options.formatter_config, "--formatter-config") if options.formatter_config else {}
    for part in ("key", "value"):
        name = getattr(options, f"{part}_deserializer")
        if name:
            values[f"{part}.deserializer"] = name
    values.update(key_values(options.property, "--property"))
    values.update(key_values(options.formatter_property, "--formatter-property"))
    return values


_ENDS = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.INVALID_SESSION_TIMEOUT,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNRELEASED_INSTANCE_ID,
        ErrorCode.UNSUPPORTED_ASSIGNOR,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)
"""Answers behind which Kafka's consumer gives up, and librdkafka's tries again for ever."""


class _Shown:
    """Prints records and counts them."""

    def __init__(self, show: Show, *, skip: bool) -> None:
        self._show, self._skip = show, skip
        self.count = 0

    def __call__(self, message: Any) -> None:
        self.count += 1
        try:
            sys.stdout.buffer.write(self._show(message))
        except Unreadable as error:
            if not self._skip:
                raise
            click.echo(f"ERROR Error processing message, skipping this message: {error}", err=True)


def _ended(error: Any) -> str | None:
    """Tell an error at which the consumer ends; None: it goes on."""
    if error.fatal() or error.name() == "_AUTO_OFFSET_RESET":
        return str(error.str())
    code = error_code(int(error.code()))
    return java_exception(code, str(error.str()).removeprefix("Broker: ")) if code in _ENDS else None


def _loop(consumer: Any, connection: clients.Connection, shown: _Shown, options: argparse.Namespace) -> None:
    """Until there is enough, or nothing more to be had. As in Kafka it is no failure when the consumer gives up."""
    limit = options.max_messages if options.max_messages is not None and options.max_messages != -1 else None
    timeout_ms = None if options.timeout_ms is None or options.timeout_ms < 0 else options.timeout_ms
    last = time.monotonic()
    said: str | None = None
    try:
        while said is None and (limit is None or shown.count < limit):
            messages = consumer.consume(1000 if limit is None else min(1000, limit - shown.count), _POLL_S)
            for message in messages:
                error = message.error()
                if error is None:
                    last = time.monotonic()
                    shown(message)
                elif (said := _ended(error)) is not None:
                    break
            if messages:
                sys.stdout.buffer.flush()
            said = said or connection.refused
            if said is None and timeout_ms is not None and (time.monotonic() - last) * 1000 > timeout_ms:
                said = "org.apache.kafka.common.errors.TimeoutException"
    except KeyboardInterrupt:
        pass
    if said is not None:
        click.echo(f"ERROR Error processing message, terminating consumer process: {said}", err=True)
