"""The metadata that consumers of the classic protocol write into their group, as far as a coordinator looks into it.

Source: Kafka's `ConsumerProtocolSubscription.json` and `ConsumerProtocolAssignment.json`, versions 0 to 3.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from kraftlite.coordinator.primitives import INT16, INT32, Reader, string
from kraftlite.model.errors import ApiError

CONSUMER: Final = "consumer"
"""The protocol type of consumers; the metadata of other types is opaque."""

TopicParts = tuple[str, tuple[int, ...]]
"""A topic's name, and partitions of it."""


class Subscription(NamedTuple):
    """The topics that a consumer wants, and the partitions that it has. `version`: in which it wrote this, and reads its
    assignment."""

    version: int
    topics: tuple[str, ...]
    owned: tuple[TopicParts, ...] = ()
    rack_id: str | None = None


class Assignment(NamedTuple):
    """The partitions that a consumer is to get. `user_data`: what its assignor told it besides; opaque."""

    topics: tuple[TopicParts, ...]
    user_data: bytes = b""


def subscribed_topics(metadata: bytes) -> tuple[str, ...] | None:
    """The topic names in a ConsumerProtocolSubscription of any version; None when it is none.

    Source: `ConsumerProtocolSubscription.json`: version i16, topics [string], then what newer versions add.
    """
    try:
        version, count = struct.unpack_from(">hi", metadata)
        if version < 0 or not 0 <= count <= len(metadata):
            return None
        topics = []
        position = 6
        for _ in range(count):
            (size,) = struct.unpack_from(">h", metadata, position)
            end = position + 2 + size
            if size < 0 or end > len(metadata):
                return None
            topics.append(metadata[position + 2 : end].decode())
            position = end
    except (struct.error, UnicodeDecodeError):
        return None
    return tuple(topics)


def parse_subscription(metadata: bytes) -> Subscription | None:
    """Parse a subscription; None when it is none."""
    try:
        reader = Reader(metadata, flexible=False)
        version = reader.int16()
        if version < 0:
            return None
        topics = reader.array(reader.string)
        _user_data(reader)
        owned = _topics(reader) if version >= 1 else ()
        if version >= 2:
            reader.int32()  # the generation in which it owned them
        return Subscription(version, topics, owned, reader.nullable_string() if version >= 3 else None)
    except (ApiError, UnicodeDecodeError):
        return None


def parse_assignment(data: bytes) -> Assignment | None:
    """Parse an assignment; None when it is none. Without any bytes it is empty."""
    if not data:
        return Assignment(())
    try:
        reader = Reader(data, flexible=False)
        if reader.int16() < 0:
            return None
        return Assignment(_topics(reader), _user_data(reader))
    except (ApiError, UnicodeDecodeError):
        return None


def build_subscription(subscription: Subscription) -> bytes:
    version, topics, owned, rack_id = subscription
    parts = [INT16.pack(version), INT32.pack(len(topics)), *(string(topic) for topic in topics), INT32.pack(-1)]
    if version >= 1:
        parts.append(_write_topics(owned))
    if version >= 2:
        parts.append(INT32.pack(-1))
    if version >= 3:
        parts.append(INT16.pack(-1) if rack_id is None else string(rack_id))
    return b"".join(parts)


def build_assignment(version: int, topics: Iterable[TopicParts]) -> bytes:
    return INT16.pack(version) + _write_topics(tuple(topics)) + INT32.pack(-1)


def _topics(reader: Reader) -> tuple[TopicParts, ...]:
    return reader.array(lambda: (reader.string(), reader.array(reader.int32)))


def _user_data(reader: Reader) -> bytes:
    size = reader.int32()
    return b"" if size < 0 else reader.take(size)


def _write_topics(topics: tuple[TopicParts, ...]) -> bytes:
    parts = [INT32.pack(len(topics))]
    for topic, indexes in topics:
        parts += (string(topic), INT32.pack(len(indexes)), *(INT32.pack(index) for index in indexes))
    return b"".join(parts)
