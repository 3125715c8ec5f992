"""Produce by hand: requests parsed in place, their record batches views into the frame; responses as one small byte string.

Cross-checked byte for byte with kio and kafka-python in tests/unit/wire, for every version.

Source: docs/PERFORMANCE.md, "Codecs"; CP-16, RP-10.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from kraftlite.model.limits import MAX_PRODUCE_PARTITIONS
from kraftlite.protocol.errors import ProtocolViolation
from kraftlite.protocol.primitives import (
    INT32,
    NO_TAGS,
    array_length,
    guarded,
    nullable_string,
    read_count,
    read_nullable_string,
    read_string,
    read_uuid,
    read_uvarint,
    response_head,
    skip_tags,
    string,
    take,
    uvarint,
)

PRODUCE_MIN: Final = 3
PRODUCE_MAX: Final = 13
PRODUCE_FLEXIBLE: Final = 9
PRODUCE_LEADER_HINTS: Final = 10
PRODUCE_TOPIC_IDS: Final = 13

_ACKS_TIMEOUT = struct.Struct(">hi")
_RESULT_V3 = struct.Struct(">ihqq")
_RESULT_V5 = struct.Struct(">ihqqq")
_RESULT_V9_PLAIN = struct.Struct(">ihqqqBBB")
"""The result with no record errors, a null message, and no tags."""
_ONE_HEAD = struct.Struct(">iiBB")
_ONE_RESULT = struct.Struct(">BihqqqBBBBiB")
_ONE_BYTES = _ONE_HEAD.size - 4 + _ONE_RESULT.size
_INDEX_LENGTH = struct.Struct(">ii")
_LEADER = struct.Struct(">BBiiB")


class Node(NamedTuple):
    """A broker's address on one listener."""

    node_id: int
    host: str
    port: int
    rack: str | None


class ProducePartition(NamedTuple):
    """Valid as long as the frame is."""

    partition: int
    records: memoryview | None
    """A writable view into the frame."""


class ProduceTopic(NamedTuple):
    """A topic, named by name up to v12, by id from v13 on."""

    name: str | None
    topic_id: UUID | None
    partitions: list[ProducePartition]


class ProduceRequest(NamedTuple):
    """A produce request as it is on the wire; nothing about it is checked but its form."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[ProduceTopic]


class ProducedPartition(NamedTuple):
    """One partition of a produce response. `leader`: (leader id, leader epoch) when the error carries a hint (v10+)."""

    partition: int
    error: int
    base_offset: int
    append_time_ms: int
    log_start_offset: int
    message: str | None
    leader: tuple[int, int] | None
    record_errors: Sequence[tuple[int, str]] = ()
    """(index in the batch, why)."""


class ProducedTopic(NamedTuple):
    """Named as the request named it."""

    name: str | None
    topic_id: UUID | None
    partitions: Sequence[ProducedPartition]


@guarded
def parse_produce(view: memoryview, pos: int, version: int) -> ProduceRequest:
    """The body of a Produce request, v3 to v13, which begins at `pos`."""
    flexible = version >= PRODUCE_FLEXIBLE
    if flexible and view[pos] == 0:
        transactional_id, pos = None, pos + 1
    else:
        transactional_id, pos = read_nullable_string(view, pos, flexible)
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(view, pos)
    topic_count, pos = read_count(view, pos + 6, flexible)
    if topic_count > MAX_PRODUCE_PARTITIONS:
        raise ProtocolViolation(f"a produce request of {topic_count} topics: allowed are {MAX_PRODUCE_PARTITIONS}")
    topics: list[ProduceTopic] = []
    total = 0
    for _ in range(topic_count):
        name: str | None = None
        topic_id: UUID | None = None
        if version >= PRODUCE_TOPIC_IDS:
            topic_id, pos = read_uuid(view, pos)
        else:
            name, pos = read_string(view, pos, flexible)
        partitions, pos = (_compact_partitions if flexible else _legacy_partitions)(view, pos)
        total += len(partitions)
        if total > MAX_PRODUCE_PARTITIONS:
            raise _too_many_partitions()
        if flexible:
            pos = pos + 1 if view[pos] == 0 else skip_tags(view, pos)
        topics.append(ProduceTopic(name, topic_id, partitions))
    if flexible and view[pos] != 0:
        skip_tags(view, pos)
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _partition_count(view: memoryview, pos: int, flexible: bool) -> tuple[int, int]:
    count, pos = read_count(view, pos, flexible)
    if count > MAX_PRODUCE_PARTITIONS:  # before the first of them is read: they are read where they arrive
        raise _too_many_partitions()
    return count, pos


def _too_many_partitions() -> ProtocolViolation:
    return ProtocolViolation(f"a produce request of more than {MAX_PRODUCE_PARTITIONS} partitions")


def _compact_partitions(view: memoryview, pos: int) -> tuple[list[ProducePartition], int]:
    size = len(view)
    count, pos = _partition_count(view, pos, True)
    found: list[ProducePartition] = []
    for _ in range(count):
        (index,) = INT32.unpack_from(view, pos)
        length, pos = read_uvarint(view, pos + 4)
        if length == 0:
            found.append(ProducePartition(index, None))
        else:
            end = pos + length - 1
            if end > size:
                raise ProtocolViolation(f"records of {length - 1} bytes in {size - pos}")
            found.append(ProducePartition(index, view[pos:end]))
            pos = end
        pos = pos + 1 if view[pos] == 0 else skip_tags(view, pos)
    return found, pos


def _legacy_partitions(view: memoryview, pos: int) -> tuple[list[ProducePartition], int]:
    count, pos = _partition_count(view, pos, False)
    found: list[ProducePartition] = []
    for _ in range(count):
        index, length = _INDEX_LENGTH.unpack_from(view, pos)
        pos += 8
        records = None
        if length != -1:
            records, pos = take(view, pos, length)
        found.append(ProducePartition(index, records))
    return found, pos


def encode_produce(
    correlation_id: int,
    version: int,
    topics: Sequence[ProducedTopic],
    nodes: Iterable[Node] = (),
    *,
    throttle_ms: int = 0,
) -> bytes:
    """A whole response frame. `nodes` are the endpoints of the leaders that hints name (v10+)."""
    flexible = version >= PRODUCE_FLEXIBLE
    parts = [array_length(len(topics), flexible)]
    for topic in topics:
        if version >= PRODUCE_TOPIC_IDS:
            assert topic.topic_id is not None
            parts.append(topic.topic_id.bytes)
        else:
            assert topic.name is not None
            parts.append(string(topic.name, flexible))
        parts.append(array_length(len(topic.partitions), flexible))
        for partition in topic.partitions:
            _encode_partition(parts, partition, version, flexible)
        if flexible:
            parts.append(NO_TAGS)
    parts.append(INT32.pack(throttle_ms))
    if flexible:
        parts.append(node_endpoints_tag(nodes) if version >= PRODUCE_LEADER_HINTS else NO_TAGS)
    body = b"".join(parts)
    return response_head(correlation_id, len(body), flexible) + body


def encode_produced(
    correlation_id: int, topic_key: bytes, partition: int, base_offset: int, append_time_ms: int, log_start_offset: int
) -> bytes:
    """`encode_produce` of what nearly every request is answered with: one partition, no error, v9 or later.

    `topic_key`: the topic's compact name, or from v13 on its id.
    """
    return (
        _ONE_HEAD.pack(_ONE_BYTES + len(topic_key), correlation_id, 0, 2)
        + topic_key
        + _ONE_RESULT.pack(2, partition, 0, base_offset, append_time_ms, log_start_offset, 1, 0, 0, 0, 0, 0)
    )


def _encode_partition(parts: list[bytes], result: ProducedPartition, version: int, flexible: bool) -> None:
    partition, error, base_offset, append_time_ms, log_start_offset, message, leader, record_errors = result
    if flexible and message is None and leader is None and not record_errors:
        parts.append(_RESULT_V9_PLAIN.pack(partition, error, base_offset, append_time_ms, log_start_offset, 1, 0, 0))
        return
    if version < 5:
        parts.append(_RESULT_V3.pack(partition, error, base_offset, append_time_ms))
        return
    parts.append(_RESULT_V5.pack(partition, error, base_offset, append_time_ms, log_start_offset))
    if version < 8:
        return
    parts.append(array_length(len(record_errors), flexible))
    for index, why in record_errors:
        parts.append(INT32.pack(index) + string(why, flexible) + (NO_TAGS if flexible else b""))
    parts.append(nullable_string(message, flexible))
    if not flexible:
        return
    if leader is None or version < PRODUCE_LEADER_HINTS or leader == (-1, -1):
        parts.append(NO_TAGS)
    else:
        parts.append(b"\x01" + _LEADER.pack(0, 9, leader[0], leader[1], 0))


def node_endpoints_tag(nodes: Iterable[Node]) -> bytes:
    """The tag section of a response whose only tagged field, number 0, lists node endpoints."""
    found = sorted(nodes)
    if not found:
        return NO_TAGS
    parts = [
        INT32.pack(node.node_id) + string(node.host, True) + INT32.pack(node.port) + nullable_string(node.rack, True) + NO_TAGS
        for node in found
    ]
    value = uvarint(len(found) + 1) + b"".join(parts)
    return b"\x01\x00" + uvarint(len(value)) + value
