"""kafka-console-producer. Source: TO-31; Kafka's ConsoleProducer."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import click

from kraftlite.cli.compat import clients
from kraftlite.cli.compat.tool import Parser, ToolError, UsageError, addresses, key_values, only_one_of, whole
from kraftlite.cli.files import MAX_LINE_BYTES
from kraftlite.model.limits import MAX_INT32, MAX_INT64

_NUMBERS: Final[Mapping[str, tuple[str | None, int, int, int]]] = {
    "batch-size": ("batch.size", 32, 0, MAX_INT32),
    "max-partition-memory-bytes": ("batch.size", 32, 0, MAX_INT32),
    "message-send-max-retries": ("retries", 32, 0, MAX_INT32),
    "retry-backoff-ms": ("retry.backoff.ms", 64, 0, 300_000),
    "timeout": ("linger.ms", 64, 0, 900_000),
    "metadata-expiry-ms": ("metadata.max.age.ms", 64, 0, 86_400_000),
    "socket-buffer-size": ("socket.send.buffer.bytes", 32, -1, 100_000_000),
    "request-timeout-ms": ("request.timeout.ms", 32, 0, 900_000),
    "max-memory-bytes": ("queue.buffering.max.kbytes", 64, 0, MAX_INT32 * 1024),
    "max-block-ms": (None, 64, 0, MAX_INT64),
}
"""Options: librdkafka's name, the bits that Java's has, the least value that Kafka takes, and the highest that librdkafka
does, which stands for those above. What comes later counts more."""
_AT_LEAST_ONE: Final = ("batch.size", "retry.backoff.ms", "metadata.max.age.ms", "request.timeout.ms")
"""Properties of which librdkafka has no 0."""
_MAX_BLOCK_MS: Final = 60_000
_LONGEST_WAIT_MS: Final = MAX_INT32
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
        parser.add_argument(f"--{name}", type=whole(_NUMBERS[name][1]))
    for name in ("property", "reader-property", "producer-property", "command-property"):
        parser.add_argument(f"--{name}", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--producer.config", dest="producer_config", metavar="FILE")
    parser.add_argument("--reader-config", metavar="FILE")
    parser.add_argument("--compression-codec", nargs="?", const="gzip")
    parser.add_argument("--request-required-acks")
    parser.add_argument("--line-reader", default=_LINE_READER)
    parser.add_argument("--sync", action="store_true")
    return parser


def read(arguments: Sequence[str]) -> tuple[argparse.Namespace, Reader, dict[str, object]]:
    """The options, what reads the lines, and librdkafka's properties of the producer. UsageError, or SystemExit for --help."""
    options = _parser().read(arguments)
    if not options.topic:
        raise UsageError('Missing required argument "[topic]"')
    if options.line_reader != _LINE_READER:
        raise UsageError(f"--line-reader {options.line_reader} is not supported; allowed is {_LINE_READER}")
    for older, newer in (("producer-property", "command-property"), ("property", "reader-property")):
        only_one_of(options, older, newer)
    return options, Reader(_reader_properties(options)), _config(options)


def run(arguments: Sequence[str]) -> int:
    options, reader, config = read(arguments)
    block_ms = _MAX_BLOCK_MS if options.max_block_ms is None else options.max_block_ms
    sending = Sending(clients.producer(addresses(options), config), options.topic, block_ms, sync=options.sync)
    return 0 if sending.all_of(reader, sys.stdin.buffer) == 0 else 1


def _reader_properties(options: argparse.Namespace) -> dict[str, str]:
    from kraftlite.cli.compat.tool import read_properties

    found = read_properties(options.reader_config, "--reader-config") if options.reader_config else {}
    found.update(key_values(options.property, "--property"))
    found.update(key_values(options.reader_property, "--reader-property"))
    return found


def _config(options: argparse.Namespace) -> dict[str, object]:
    files = [(options.command_config, "--command-config"), (options.producer_config, "--producer.config")]
    items = [(options.producer_property, "--producer-property"), (options.command_property, "--command-property")]
    config: dict[str, object] = {"linger.ms": 5, "acks": "-1", **clients.properties(files, items)}
    if options.request_required_acks is not None:
        config["acks"] = options.request_required_acks
    if options.compression_codec:
        config["compression.type"] = options.compression_codec
    for name, (key, _bits, least, most) in _NUMBERS.items():
        value = getattr(options, name.replace("-", "_"))
        if value is None:
            continue
        if value < least:
            raise UsageError(f"--{name} {value}: Value must be at least {least}")
        if key is not None:
            config[key] = _of_librdkafka(key, min(value, most))
    return config


def _of_librdkafka(key: str, value: int) -> int:
    if key == "queue.buffering.max.kbytes":
        return max(1, -(-value // 1024))
    if key == "socket.send.buffer.bytes":
        return max(0, value)  # where -1 is 0: as the system has it
    return max(1, value) if key in _AT_LEAST_ONE else value


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
        _distinct(values, null)
        self.null = None if null is None else null.encode()

    def record(self, line: bytes, number: int) -> tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]:
        """(key, value, headers). Raises ToolError for a line without what it must have."""
        headers: list[tuple[str, bytes | None]] = []
        key: bytes | None = None
        rest = line
        if self.headers:
            before, found, rest = self._cut(rest, self.headers_delimiter, number, "headers delimiter")
            if found and before != self.null:
                headers = [self._header(one, number) for one in _split(before, self.headers_separator)]
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
        if found and name == self.null:
            said = name.decode("utf-8", "replace")
            raise ToolError(f"Header keys should not be equal to the null marker '{said}' as they can't be null")
        return name.decode("utf-8", "replace"), self._or_none(value) if found else None

    def _or_none(self, value: bytes) -> bytes | None:
        return None if self.null is not None and value == self.null else value


def _distinct(values: Mapping[str, str], null: str | None) -> None:
    """UsageError: two separators are the same, so that nobody can say where a part ends."""
    for one, other in (
        ("headers.delimiter", "headers.separator"),
        ("headers.delimiter", "headers.key.separator"),
        ("headers.separator", "headers.key.separator"),
    ):
        if values[one] == values[other]:
            raise UsageError(f"{one} and {other} may not be equal")
    for name in ("key.separator", "headers.separator", "headers.delimiter", "headers.key.separator"):
        if values[name] == null:
            raise UsageError(f"null.marker and {name} may not be equal")


def _split(text: bytes, separator: bytes) -> list[bytes]:
    """Split as Java does: without the empty parts at the end."""
    parts = text.split(separator)
    if len(parts) > 1:
        while parts and not parts[-1]:
            parts.pop()
    return parts


def _lines(source: Any, prompt: Callable[[], None]) -> Iterator[bytes]:
    """The lines as Java reads them: a carriage return ends one, too."""
    number = 0
    while True:
        prompt()
        raw = source.readline(MAX_LINE_BYTES + 1)
        if not raw:
            return
        if len(raw) > MAX_LINE_BYTES:
            raise ToolError(f"line {number + 1} has more than {MAX_LINE_BYTES} bytes, which no record can have")
        for line in raw.removesuffix(b"\n").removesuffix(b"\r").split(b"\r"):
            number += 1
            yield line


class Sending:
    """Records on their way to a topic. `block_ms`: how long to wait for brokers, and for room among what is to be sent."""

    def __init__(self, producer: Any, topic: str, block_ms: int, *, sync: bool) -> None:
        self._producer, self._topic, self._sync = producer, topic, sync
        self._block_s = min(block_ms, _LONGEST_WAIT_MS) / 1000
        self._block_ms = block_ms
        self._known = False
        self._failed = 0

    def all_of(self, reader: Reader, source: Any) -> int:
        """Produce the records of a file, and return how many were refused. With `sync` the first one that is ends it."""

        def prompt() -> None:
            if sys.stdin.isatty():
                click.echo(">", nl=False)

        try:
            for number, line in enumerate(_lines(source, prompt), start=1):
                self._send(*reader.record(line, number))
                if self._sync:
                    self._producer.flush()
                    if self._failed:
                        break
                else:
                    self._producer.poll(0)
        except KeyboardInterrupt:
            pass
        finally:
            self._producer.flush()
        return self._failed

    def _send(self, key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]) -> None:
        from confluent_kafka import KafkaException

        deadline = time.monotonic() + self._block_s
        if not self._known:
            try:
                self._producer.list_topics(self._topic, timeout=max(0.001, self._block_s))
            except KafkaException:
                raise ToolError(f"Topic {self._topic} not present in metadata after {self._block_ms} ms.") from None
            self._known = True
        while True:
            try:
                self._producer.produce(self._topic, value=value, key=key, headers=headers or None, on_delivery=self._delivered)
                return
            except BufferError:
                if time.monotonic() > deadline:
                    raise ToolError(
                        f"Failed to allocate memory within the configured max blocking time {self._block_ms} ms."
                    ) from None
                self._producer.poll(0.1)
            except KafkaException as error:
                self._delivered(error.args[0], None, size=len(value or b""))  # it is refused before it is sent
                return

    def _delivered(self, error: Any, message: Any, *, size: int | None = None) -> None:
        if error is not None:
            self._failed += 1
            size = len(message.value() or b"") if size is None else size
            click.echo(
                f"ERROR Error when sending message to topic {self._topic} with value: {size} bytes with error: {error.str()}",
                err=True,
            )
