"""kafka-console-producer. Source: TO-31; Kafka's ConsoleProducer."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

import click

from kraftlite.cli.compat import clients
from kraftlite.cli.compat.tool import Parser, ToolError, UsageError, addresses, key_values
from kraftlite.cli.files import MAX_LINE_BYTES

_NUMBERS = {
    "batch-size": "batch.size",
    "message-send-max-retries": "retries",
    "retry-backoff-ms": "retry.backoff.ms",
    "timeout": "linger.ms",
    "metadata-expiry-ms": "metadata.max.age.ms",
    "socket-buffer-size": "socket.send.buffer.bytes",
    "request-timeout-ms": None,
    "max-block-ms": None,
    "max-memory-bytes": None,
    "max-partition-memory-bytes": None,
}
_LINE_READER = "org.apache.kafka.tools.LineMessageReader"
_DEFAULTS = {
    "parse.key": "false",
    "key.separator": "\t",
    "ignore.error": "false",
    "parse.headers": "false",
    "headers.delimiter": "\t",
    "headers.separator": ",",
    "headers.key.separator": ":",
}


def _parser() -> Parser:
    parser = Parser("kafka-console-producer", "This tool helps to read data from standard input and publish it to Kafka.")
    parser.connection()
    parser.add_argument("--topic")
    for name in _NUMBERS:
        parser.add_argument(f"--{name}", type=int)
    for name in ("property", "reader-property", "producer-property", "command-property"):
        parser.add_argument(f"--{name}", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--producer.config", dest="producer_config", metavar="FILE")
    parser.add_argument("--reader-config", metavar="FILE")
    parser.add_argument("--compression-codec", nargs="?", const="gzip")
    parser.add_argument("--request-required-acks", default="-1")
    parser.add_argument("--line-reader", default=_LINE_READER)
    parser.add_argument("--sync", action="store_true")
    return parser


def run(arguments: Sequence[str]) -> int:
    options = _parser().read(arguments)
    if not options.topic:
        raise UsageError('Missing required argument "[topic]"')
    if options.line_reader != _LINE_READER:
        raise UsageError(f"--line-reader {options.line_reader} is not supported; allowed is {_LINE_READER}")
    brokers = addresses(options)
    reader = Reader(_reader_properties(options))
    producer = clients.producer(brokers, _config(options))
    failures = _produce(producer, options.topic, reader, sync=options.sync)
    return 0 if failures == 0 else 1


def _reader_properties(options: argparse.Namespace) -> dict[str, str]:
    from kraftlite.cli.compat.tool import read_properties

    found = read_properties(options.reader_config, "--reader-config") if options.reader_config else {}
    found.update(key_values(options.property, "--property"))
    found.update(key_values(options.reader_property, "--reader-property"))
    return found


def _config(options: argparse.Namespace) -> dict[str, object]:
    files = [(options.command_config, "--command-config"), (options.producer_config, "--producer.config")]
    items = [(options.producer_property, "--producer-property"), (options.command_property, "--command-property")]
    config: dict[str, object] = {"linger.ms": 5, "acks": options.request_required_acks}
    if options.compression_codec:
        config["compression.type"] = options.compression_codec
    for name, key in _NUMBERS.items():
        value = getattr(options, name.replace("-", "_"))
        if value is not None and key is not None:
            config[key] = value
    return {**config, **clients.properties(files, items)}


class Reader:
    """Lines of standard input as records, by the properties of Kafka's LineMessageReader."""

    def __init__(self, properties: dict[str, str]) -> None:
        values = {**_DEFAULTS, **properties}
        self.key = values["parse.key"].strip().lower() == "true"
        self.headers = values["parse.headers"].strip().lower() == "true"
        self.lenient = values["ignore.error"].strip().lower() == "true"
        self.key_separator = values["key.separator"].encode()
        self.headers_delimiter = values["headers.delimiter"].encode()
        self.headers_separator = values["headers.separator"].encode()
        self.header_separator = values["headers.key.separator"].encode()
        for name in ("headers.separator", "headers.key.separator"):
            if self.headers and not values[name]:
                raise UsageError(f"{name} must not be empty")
        null = values.get("null.marker")
        self.null = None if null is None else null.encode()

    def record(self, line: bytes, number: int) -> tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]:
        """(key, value, headers). Raises ToolError for a line without what it must have."""
        headers: list[tuple[str, bytes | None]] = []
        key: bytes | None = None
        rest = line
        if self.headers:
            before, found, rest = self._cut(rest, self.headers_delimiter, number, "headers delimiter")
            if found and before != self.null:
                headers = [self._header(one, number) for one in before.split(self.headers_separator)]
        if self.key:
            before, found, rest = self._cut(rest, self.key_separator, number, "key separator")
            key = self._or_none(before) if found else None
        return key, self._or_none(rest), headers

    def _cut(self, line: bytes, separator: bytes, number: int, what: str) -> tuple[bytes, bool, bytes]:
        if not separator:
            return b"", True, line  # as Java finds nothing at the start of each text
        before, found, rest = line.partition(separator)
        if found:
            return before, True, rest
        if not self.lenient:
            raise ToolError(f"No {what} found on line number {number}: '{line.decode('utf-8', 'replace')}'")
        return b"", False, line

    def _header(self, text: bytes, number: int) -> tuple[str, bytes | None]:
        name, found, value = text.partition(self.header_separator)
        if not found and not self.lenient:
            said = text.decode("utf-8", "replace")
            raise ToolError(f"No header key separator found in pair '{said}' on line number {number}")
        return name.decode("utf-8", "replace"), self._or_none(value) if found else None

    def _or_none(self, value: bytes) -> bytes | None:
        return None if self.null is not None and value == self.null else value


def _produce(producer: Any, topic: str, reader: Reader, *, sync: bool) -> int:
    """Produce the records, and return how many were refused."""
    failed = 0

    def delivered(error: Any, message: Any) -> None:
        nonlocal failed
        if error is not None:
            failed += 1
            size = len(message.value() or b"")
            click.echo(
                f"ERROR Error when sending message to topic {topic} with value: {size} bytes with error: {error.str()}", err=True
            )

    prompt = sys.stdin.isatty()
    source = sys.stdin.buffer
    number = 0
    try:
        while True:
            if prompt:
                click.echo(">", nl=False)
            line = source.readline(MAX_LINE_BYTES + 1)
            if not line:
                break
            number += 1
            if len(line) > MAX_LINE_BYTES:
                raise ToolError(f"line {number} has more than {MAX_LINE_BYTES} bytes, which no record can have")
            key, value, headers = reader.record(line.rstrip(b"\r\n"), number)
            while True:
                try:
                    producer.produce(topic, value=value, key=key, headers=headers or None, on_delivery=delivered)
                    break
                except BufferError:
                    producer.poll(0.1)
            if sync:
                producer.flush()
            else:
                producer.poll(0)
    except KeyboardInterrupt:
        pass
    finally:
        producer.flush()
    return failed
