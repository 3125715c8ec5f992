"""Metadata records to the values of metadata log records and back, in Kafka's own encoding.

A value is: unsigned varint frame version (1), unsigned varint record type, unsigned varint record version, then the fields of
that version (`kafka_records/table`). The level of `metadata.version` says which version is written; every version is read.
Source: KIP-631 "Record Format Changes"; ML-13, ML-16.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from kraftlite.metadata.features import LATEST_METADATA_VERSION
from kraftlite.metadata.kafka_records.compiler import FRAME_VERSION, Read, Write, reader, writer
from kraftlite.metadata.kafka_records.layout import Layout
from kraftlite.metadata.kafka_records.table import LAYOUTS
from kraftlite.metadata.kafka_records.values import length
from kraftlite.metadata.kafka_records.walk import record_as_json, unreadable
from kraftlite.metadata.records import MetadataRecord
from kraftlite.model.errors import ApiError, ErrorCode, Fault
from kraftlite.raft.client import RecordSerde

RECORD_TYPES: Final[Mapping[int, type[Any]]] = {number: layout.made for number, layout in LAYOUTS.items()}
_PREFIX_BYTES: Final = 3
_LAYOUT_OF: Final = {layout.made: layout for layout in LAYOUTS.values()}
_READERS: Final[dict[bytes, Read]] = {}
"""By the first bytes of a value, those of which it is usual: frame version, type and version in a byte each."""


class _Writers(dict[type[Any], Write]):
    """The writers of one level, by class, compiled when they are first needed."""

    def __init__(self, level: int) -> None:
        super().__init__()
        self._level = level

    def __missing__(self, cls: type[Any]) -> Write:
        found = self[cls] = writer(_LAYOUT_OF[cls], self._level)
        return found


@cache
def _writers(level: int) -> _Writers:
    return _Writers(level)


class MetadataSerde(RecordSerde):
    """Writes at one level of `metadata.version` and reads everything. Those of one level share all they have.

    `encode` raises ApiError(UNSUPPORTED_VERSION) for what a log of that level cannot hold, as Kafka's UnwritableMetadataException
    does, and ApiError(INVALID_REQUEST) for what no record can say. `decode` raises Fault for what this software cannot read.
    """

    __slots__ = ("_writers",)

    def __init__(self, level: int = LATEST_METADATA_VERSION) -> None:
        self._writers = _writers(level)

    def encode(self, record: MetadataRecord) -> bytes:
        try:
            return self._writers[type(record)](record)
        except (struct.error, KeyError, ValueError, TypeError) as error:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"a {type(record).__name__} cannot be written: {error}") from error

    def decode(self, data: bytes | memoryview) -> MetadataRecord:
        if not isinstance(data, bytes):
            data = bytes(data)
        read = _READERS.get(data[:_PREFIX_BYTES])
        if read is None:
            return _read_first(data)
        try:
            record: MetadataRecord = read(data, _PREFIX_BYTES)
        except (IndexError, struct.error, ValueError) as error:
            layout, version, position = _frame(data)
            raise unreadable(layout, version, data, position, error) from error
        return record


def as_json(data: bytes) -> dict[str, Any]:
    """A record's value as `kafka-dump-log` prints it: `{"type": "TOPIC_RECORD", "version": 0, "data": {…}}`. Raises Fault."""
    layout, version, position = _frame(data)
    return {"type": layout.shown, "version": version, "data": record_as_json(layout, version, data, position)}


def _read_first(data: bytes) -> MetadataRecord:
    """Read a value of a type and version that was not read before, or whose numbers are in more bytes than they need."""
    layout, version, position = _frame(data)
    read = _compiled(layout.api_key, version)
    if position == _PREFIX_BYTES:
        _READERS[data[:_PREFIX_BYTES]] = read
    try:
        record: MetadataRecord = read(data, position)
    except (IndexError, struct.error, ValueError) as error:
        raise unreadable(layout, version, data, position, error) from error
    return record


@cache
def _compiled(api_key: int, version: int) -> Read:
    return reader(LAYOUTS[api_key], version)


def _frame(data: bytes) -> tuple[Layout, int, int]:
    """The layout, the version, and the position behind them. Raises Fault for those that this software does not know."""
    numbers = []
    position = 0
    try:
        for _ in range(3):
            number, position = length(data, position)
            numbers.append(number)
    except (IndexError, ValueError):
        raise Fault(f"a value of {len(data)} bytes is not a metadata record: it has no frame version, type and version") from None
    frame, api_key, version = numbers
    layout = LAYOUTS.get(api_key)
    if frame != FRAME_VERSION or layout is None or version > layout.max_version:
        raise Fault(_unknown(frame, api_key, version, layout))
    return layout, version, position


def _unknown(frame: int, api_key: int, version: int, layout: Layout | None) -> str:
    if frame != FRAME_VERSION:
        known = f"frame version {FRAME_VERSION}"
    elif layout is None:
        known = f"types {', '.join(map(str, LAYOUTS))}"
    else:
        known = f"a {layout.name} up to version {layout.max_version}"
    return (
        f"a metadata record has frame version {frame}, type {api_key}, version {version}; this software reads {known}. It was "
        "written by newer software, or is not a metadata record"
    )
