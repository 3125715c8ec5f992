"""Fetch by hand: requests parsed in place; responses as a list of buffers in which records are never copied.

Cross-checked with kio and kafka-python in tests/unit/wire, for every version.

Source: docs/PERFORMANCE.md, "Fetches" and "Codecs"; CP-18 to CP-21, RP-10.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from kraftlite.log.stored import StoredRecords
from kraftlite.protocol.errors import ProtocolViolation
from kraftlite.protocol.primitives import (
    INT32,
    NO_TAGS,
    array_length,
    guarded,
    read_count,
    read_string,
    read_tags,
    read_uuid,
    skip_tags,
    string,
    uvarint,
)
from kraftlite.wire.hot_codec import Node, node_endpoints_tag

FETCH_MIN: Final = 4
FETCH_MAX: Final = 18
FETCH_SESSIONS: Final = 7
FETCH_FLEXIBLE: Final = 12
FETCH_TOPIC_IDS: Final = 13
FETCH_REPLICA_STATE: Final = 15
FETCH_LEADER_HINTS: Final = 16

INLINE_RECORDS_BYTES: Final = 4096
"""Records up to this size are copied into the bytes around them: cheaper than one more buffer to gather."""

_LIMITS = struct.Struct(">iiib")
_SESSION = struct.Struct(">ii")
_PARTITION_V4 = struct.Struct(">iqi")
_PARTITION_V5 = struct.Struct(">iqqi")
_PARTITION_V9 = struct.Struct(">iiqqi")
_PARTITION_V12 = struct.Struct(">iiqiqi")
_DATA_V4 = struct.Struct(">ihqq")
_DATA_V5 = struct.Struct(">ihqqq")
_ABORTED = struct.Struct(">qq")
_DIVERGING = struct.Struct(">BBiqB")
_LEADER = struct.Struct(">BBiiB")


class FetchPartition(NamedTuple):
    """-1 in an epoch: not given."""

    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    max_bytes: int


class FetchTopic(NamedTuple):
    """A topic, named by name up to v12, by id from v13 on."""

    name: str | None
    topic_id: UUID | None
    partitions: list[FetchPartition]


class ForgottenTopic(NamedTuple):
    """Partitions to leave out of the session from now on; named as `FetchTopic` is."""

    name: str | None
    topic_id: UUID | None
    partitions: tuple[int, ...]


class FetchRequest(NamedTuple):
    """Session epoch -1: no session, 0: a new one. Times in milliseconds."""

    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    forgotten: list[ForgottenTopic]
    rack_id: str


class FetchedPartition(NamedTuple):
    """One partition of a fetch response. `aborted` None: a read_uncommitted fetch. `diverging`: (epoch, end offset)."""

    partition: int
    error: int
    hw: int
    last_stable_offset: int
    log_start_offset: int
    aborted: Sequence[tuple[int, int]] | None
    preferred_read_replica: int
    records: bytes | memoryview | StoredRecords
    diverging: tuple[int, int] | None
    leader: tuple[int, int] | None


class FetchedTopic(NamedTuple):
    """Named as the request named it."""

    name: str | None
    topic_id: UUID | None
    partitions: list[FetchedPartition]


@guarded
def parse_fetch(view: memoryview, pos: int, version: int) -> FetchRequest:
    """The body of a Fetch request, v4 to v18, which begins at `pos`."""
    flexible = version >= FETCH_FLEXIBLE
    replica_id = -1
    if version < FETCH_REPLICA_STATE:
        (replica_id,) = INT32.unpack_from(view, pos)
        pos += 4
    max_wait_ms, min_bytes, max_bytes, isolation_level = _LIMITS.unpack_from(view, pos)
    pos += 13
    session_id, session_epoch = 0, -1
    if version >= FETCH_SESSIONS:
        session_id, session_epoch = _SESSION.unpack_from(view, pos)
        pos += 8
    topics, pos = _parse_topics(view, pos, version, flexible)
    forgotten: list[ForgottenTopic] = []
    if version >= FETCH_SESSIONS:
        forgotten, pos = _parse_forgotten(view, pos, version, flexible)
    rack_id = ""
    if version >= 11:
        rack_id, pos = read_string(view, pos, flexible)
    if flexible and view[pos] != 0:
        tags, pos = read_tags(view, pos)
        if version >= FETCH_REPLICA_STATE and 1 in tags:
            (replica_id,) = INT32.unpack_from(tags[1], 0)
    return FetchRequest(
        replica_id, max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch, topics, forgotten, rack_id
    )


def _parse_topic_key(view: memoryview, pos: int, version: int, flexible: bool) -> tuple[str | None, UUID | None, int]:
    if version >= FETCH_TOPIC_IDS:
        topic_id, pos = read_uuid(view, pos)
        return None, topic_id, pos
    name, pos = read_string(view, pos, flexible)
    return name, None, pos


def _parse_topics(view: memoryview, pos: int, version: int, flexible: bool) -> tuple[list[FetchTopic], int]:
    count, pos = read_count(view, pos, flexible)
    topics: list[FetchTopic] = []
    for _ in range(count):
        name, topic_id, pos = _parse_topic_key(view, pos, version, flexible)
        partition_count, pos = read_count(view, pos, flexible)
        partitions: list[FetchPartition] = []
        if flexible:
            pos = _compact_partitions(view, pos, partition_count, partitions)
            pos = pos + 1 if view[pos] == 0 else skip_tags(view, pos)
        else:
            for _ in range(partition_count):
                partition, pos = _legacy_partition(view, pos, version)
                partitions.append(partition)
        topics.append(FetchTopic(name, topic_id, partitions))
    return topics, pos


def _compact_partitions(view: memoryview, pos: int, count: int, found: list[FetchPartition]) -> int:
    """Encode the partitions of v12 and later; the hottest loop of a full fetch."""
    unpack, make, add = _PARTITION_V12.unpack_from, FetchPartition, found.append
    for _ in range(count):
        index, leader_epoch, offset, last_epoch, _log_start, max_bytes = unpack(view, pos)
        pos += 32
        pos = pos + 1 if view[pos] == 0 else skip_tags(view, pos)
        add(make(index, leader_epoch, offset, last_epoch, max_bytes))
    return pos


def _legacy_partition(view: memoryview, pos: int, version: int) -> tuple[FetchPartition, int]:
    if version >= 9:
        index, leader_epoch, offset, _log_start, max_bytes = _PARTITION_V9.unpack_from(view, pos)
        return FetchPartition(index, leader_epoch, offset, -1, max_bytes), pos + 28
    if version >= 5:
        index, offset, _log_start, max_bytes = _PARTITION_V5.unpack_from(view, pos)
        return FetchPartition(index, -1, offset, -1, max_bytes), pos + 24
    index, offset, max_bytes = _PARTITION_V4.unpack_from(view, pos)
    return FetchPartition(index, -1, offset, -1, max_bytes), pos + 16


def _parse_forgotten(view: memoryview, pos: int, version: int, flexible: bool) -> tuple[list[ForgottenTopic], int]:
    count, pos = read_count(view, pos, flexible)
    found: list[ForgottenTopic] = []
    for _ in range(count):
        name, topic_id, pos = _parse_topic_key(view, pos, version, flexible)
        partition_count, pos = read_count(view, pos, flexible)
        if partition_count * 4 > len(view) - pos:
            raise ProtocolViolation(f"{partition_count} forgotten partitions in {len(view) - pos} bytes")
        partitions = struct.unpack_from(f">{partition_count}i", view, pos)
        pos += 4 * partition_count
        if flexible:
            pos = skip_tags(view, pos)
        found.append(ForgottenTopic(name, topic_id, partitions))
    return found, pos


def encode_fetch(
    correlation_id: int,
    version: int,
    topics: Sequence[FetchedTopic],
    *,
    error: int = 0,
    session_id: int = 0,
    nodes: Iterable[Node] = (),
    throttle_ms: int = 0,
) -> list[bytes | memoryview | StoredRecords]:
    """A whole response frame as parts to be sent one behind the other; records that are large, or still in their file, are passed
    on as they are."""
    flexible = version >= FETCH_FLEXIBLE
    parts: list[bytes | memoryview | StoredRecords] = []
    small = bytearray(INT32.pack(throttle_ms))
    if version >= FETCH_SESSIONS:
        small += struct.pack(">hi", error, session_id)
    small += array_length(len(topics), flexible)
    for topic in topics:
        if version >= FETCH_TOPIC_IDS:
            assert topic.topic_id is not None
            small += topic.topic_id.bytes
        else:
            assert topic.name is not None
            small += string(topic.name, flexible)
        small += array_length(len(topic.partitions), flexible)
        for data in topic.partitions:
            _encode_data(small, data, version, flexible)
            records = data.records
            if isinstance(records, StoredRecords) or len(records) > INLINE_RECORDS_BYTES:
                parts.append(bytes(small))
                parts.append(records)
                small = bytearray()
            else:
                small += records
            if flexible:
                _encode_data_tags(small, data)
        if flexible:
            small += NO_TAGS
    if flexible:
        small += node_endpoints_tag(nodes) if version >= FETCH_LEADER_HINTS else NO_TAGS
    parts.append(bytes(small))
    size = sum(map(len, parts))
    head = struct.pack(">iiB", size + 5, correlation_id, 0) if flexible else struct.pack(">ii", size + 4, correlation_id)
    parts[0] = head + bytes(parts[0])
    return parts


def _encode_data(out: bytearray, data: FetchedPartition, version: int, flexible: bool) -> None:
    """Everything of a partition up to and including the length of its records."""
    if version >= 5:
        out += _DATA_V5.pack(data.partition, data.error, data.hw, data.last_stable_offset, data.log_start_offset)
    else:
        out += _DATA_V4.pack(data.partition, data.error, data.hw, data.last_stable_offset)
    aborted = data.aborted
    if aborted is None:
        out += b"\x00" if flexible else b"\xff\xff\xff\xff"
    else:
        out += array_length(len(aborted), flexible)
        for producer_id, first_offset in aborted:
            out += _ABORTED.pack(producer_id, first_offset)
            if flexible:
                out += NO_TAGS
    if version >= 11:
        out += INT32.pack(data.preferred_read_replica)
    out += uvarint(len(data.records) + 1) if flexible else INT32.pack(len(data.records))


def _encode_data_tags(out: bytearray, data: FetchedPartition) -> None:
    diverging, leader = data.diverging, data.leader
    if diverging is None and leader is None:
        out += NO_TAGS
        return
    tags = b""
    count = 0
    if diverging is not None and diverging != (-1, -1):
        count += 1
        tags += _DIVERGING.pack(0, 13, diverging[0], diverging[1], 0)
    if leader is not None and leader != (-1, -1):
        count += 1
        tags += _LEADER.pack(1, 9, leader[0], leader[1], 0)
    out += bytes((count,)) + tags
