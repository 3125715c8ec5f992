"""Formatters of kafka-console-consumer. Source: TO-31; Kafka's DefaultMessageFormatter and its deserializers."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, Final
from uuid import UUID

from kraftlite.cli.compat.tool import ToolError, UsageError
from kraftlite.cli.offset_records import formatted_group, formatted_offset
from kraftlite.cli.transaction_records import formatted
from kraftlite.model.errors import ApiError
from kraftlite.model.java_text import java_double, java_float

_FOLDER: Final = "org.apache.kafka.tools.consumer."
DEFAULT: Final = f"{_FOLDER}DefaultMessageFormatter"
NOTHING: Final = f"{_FOLDER}NoOpMessageFormatter"
OF_COORDINATORS: Final[Mapping[str, Callable[[bytes | None, bytes | None], bytes]]] = {
    f"{_FOLDER}TransactionLogMessageFormatter": formatted,
    f"{_FOLDER}OffsetsMessageFormatter": formatted_offset,
    f"{_FOLDER}GroupMetadataMessageFormatter": formatted_group,
}
"""Those that print the records of a coordinator's topic as JSON."""
ALLOWED: Final = (DEFAULT, "kafka.tools.DefaultMessageFormatter", NOTHING, *OF_COORDINATORS)

Show = Callable[[Any], bytes]
"""Gives what is printed of a message of librdkafka. ToolError when it cannot be read."""


class Unreadable(ToolError):
    """A deserializer cannot read a part of a record. The message is that of Kafka's exception."""


def formatter(name: str | None, values: Mapping[str, str]) -> Show:
    """The formatter of this class with these properties. UsageError: there is no such class, or no such deserializer."""
    if name is not None and name not in ALLOWED:
        raise UsageError(f"--formatter {name} is not supported; allowed is one of {', '.join(ALLOWED)}")
    if name == NOTHING:
        return lambda _message: b""
    show = OF_COORDINATORS.get(name or DEFAULT)
    return _Default(values) if show is None else _of_coordinator(show)


def _of_coordinator(show: Callable[[bytes | None, bytes | None], bytes]) -> Show:
    def shown(message: Any) -> bytes:
        try:
            return show(message.key(), message.value())
        except ApiError as error:
            raise ToolError(f"Could not read record at offset {message.offset()} due to: {error.message}") from None

    return shown


class _Default:
    """Prints the parts of a record that are asked for, and what stands between them."""

    def __init__(self, values: Mapping[str, str]) -> None:
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
        self.read_key, self.read_value, self.read_header = (
            _deserializer(f"{part}.deserializer", values) for part in ("key", "value", "headers")
        )

    def __call__(self, message: Any) -> bytes:
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
            shown = [name.encode() + b":" + self._read(self.read_header, value) for name, value in message.headers() or []]
            parts.append(self.between.join(shown) if shown else b"NO_HEADERS")
        if self.key:
            parts.append(self._read(self.read_key, message.key()))
        if self.value:
            parts.append(self._read(self.read_value, message.value()))
        return self.separator.join(parts) + self.line if parts else b""

    def _read(self, read: Callable[[bytes], bytes], data: bytes | None) -> bytes:
        return self.null if data is None else read(data)


# --- deserializers -------------------------------------------------------------------------------------------------------


def _deserializer(prop: str, values: Mapping[str, str]) -> Callable[[bytes], bytes]:
    name = values.get(prop, "")
    if not name:
        return bytes
    found = _DESERIALIZERS.get(name.rpartition(".")[2])
    if found is None:
        raise UsageError(f"{prop}={name} is not supported; allowed is one of {', '.join(_DESERIALIZERS)}")
    return found


def _number(name: str, layout: str, text: Callable[[Any], str] = str) -> Callable[[bytes], bytes]:
    size = struct.calcsize(layout)

    def read(data: bytes) -> bytes:
        if len(data) != size:
            raise Unreadable(f"Size of data received by {name} is not {size}")
        return text(struct.unpack(layout, data)[0]).encode()

    return read


def _boolean(data: bytes) -> bytes:
    if len(data) != 1:
        raise Unreadable("Size of data received by BooleanDeserializer is not 1")
    if data not in (b"\0", b"\1"):
        raise Unreadable(f"Unexpected byte received by BooleanDeserializer: {data[0] - 256 if data[0] > 127 else data[0]}")
    return b"true" if data == b"\1" else b"false"


def _uuid(data: bytes) -> bytes:
    try:
        return str(UUID(data.decode())).encode()
    except ValueError:
        raise Unreadable("Error parsing data into UUID") from None


_DESERIALIZERS: Final[Mapping[str, Callable[[bytes], bytes]]] = {
    "StringDeserializer": bytes,
    "ByteArrayDeserializer": bytes,
    "BytesDeserializer": bytes,
    "ShortDeserializer": _number("ShortDeserializer", ">h"),
    "IntegerDeserializer": _number("IntegerDeserializer", ">i"),
    "LongDeserializer": _number("LongDeserializer", ">q"),
    "FloatDeserializer": _number("FloatDeserializer", ">f", java_float),
    "DoubleDeserializer": _number("DoubleDeserializer", ">d", java_double),
    "BooleanDeserializer": _boolean,
    "UUIDDeserializer": _uuid,
}
"""Bytes stay bytes also where Kafka's print the address of an array."""
