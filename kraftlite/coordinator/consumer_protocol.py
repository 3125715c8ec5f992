"""The metadata that consumers of the classic protocol write into their group, as far as a coordinator looks into it.

Source: Kafka's `ConsumerProtocolSubscription.json` and `ConsumerProtocolAssignment.json`, versions 0 to 3.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from kraftlite.model.limits import MAX_REQUEST_ITEMS
from kraftlite.protocol.errors import ProtocolViolation
from kraftlite.protocol.primitives import INT16, INT32, bounded, string
from kraftlite.protocol.reader import Reader

CONSUMER: Final = "consumer"
"""The protocol type of consumers; the metadata of other types is opaque."""

_bounded: Final = bounded("message of a consumer", MAX_REQUEST_ITEMS)

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
        return _read_topic_names(metadata)
    except ProtocolViolation:
        return None


def parse_subscription(metadata: bytes) -> Subscription | None:
    """Parse a subscription; None when it is none."""
    try:
        return _read_subscription(metadata)
    except ProtocolViolation:
        return None


def parse_assignment(data: bytes) -> Assignment | None:
    """Parse an assignment; None when it is none. Without any bytes it is empty."""
    try:
        return _read_assignment(data) if data else Assignment(())
    except ProtocolViolation:
        return None


@_bounded
def _read_topic_names(metadata: bytes) -> tuple[str, ...]:
    reader, _version = _begun(metadata)
    return reader.array(reader.string)


@_bounded
def _read_subscription(metadata: bytes) -> Subscription:
    reader, version = _begun(metadata)
    topics = reader.array(reader.string)
    _user_data(reader)
    owned = _topics(reader) if version >= 1 else ()
    if version >= 2:
        reader.int32()  # the generation in which it owned them
    return Subscription(version, topics, owned, reader.nullable_string() if version >= 3 else None)


@_bounded
def _read_assignment(data: bytes) -> Assignment:
    reader, _version = _begun(data)
    return Assignment(_topics(reader), _user_data(reader))


def _begun(data: bytes) -> tuple[Reader, int]:
    """A reader behind the version."""
    reader = Reader(data, flexible=False)
    version = reader.int16()
    if version < 0:
        raise ProtocolViolation(f"version {version}")
    return reader, version


def build_subscription(subscription: Subscription) -> bytes:
    version, topics, owned, rack_id = subscription
    parts = [INT16.pack(version), INT32.pack(len(topics)), *(string(topic, False) for topic in topics), INT32.pack(-1)]
    if version >= 1:
        parts.append(_write_topics(owned))
    if version >= 2:
        parts.append(INT32.pack(-1))
    if version >= 3:
        parts.append(INT16.pack(-1) if rack_id is None else string(rack_id, False))
    return b"".join(parts)


def build_assignment(version: int, topics: Iterable[TopicParts]) -> bytes:
    return INT16.pack(version) + _write_topics(tuple(topics)) + INT32.pack(-1)


def _topics(reader: Reader) -> tuple[TopicParts, ...]:
    return reader.array(lambda: (reader.string(), reader.array(reader.int32)))


def _user_data(reader: Reader) -> bytes:
    return reader.nullable_bytes() or b""


def _write_topics(topics: tuple[TopicParts, ...]) -> bytes:
    parts = [INT32.pack(len(topics))]
    for topic, indexes in topics:
        parts += (string(topic, False), INT32.pack(len(indexes)), *(INT32.pack(index) for index in indexes))
    return b"".join(parts)
