"""ApiVersions and ListOffsets by hand: the first is asked before anything else is loaded, the second often.

Cross-checked with kio and kafka-python in tests/unit/wire, for every version. Source: CP-03, CP-22; KIP-511, KIP-584.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from kraftlite.model.messages.controller import FeatureRange
from kraftlite.wire.primitives import (
    INT16,
    INT32,
    NO_TAGS,
    array_length,
    guarded,
    read_count,
    read_string,
    response_head,
    skip_tags,
    string,
    uvarint,
)

API_VERSIONS_MAX: Final = 4
API_VERSIONS_FLEXIBLE: Final = 3
LIST_OFFSETS_MIN: Final = 1
LIST_OFFSETS_MAX: Final = 11
LIST_OFFSETS_FLEXIBLE: Final = 6

_RANGE = struct.Struct(">hhh")
_REPLICA_ISOLATION = struct.Struct(">ib")
_OFFSET_V1 = struct.Struct(">iq")
_OFFSET_V4 = struct.Struct(">iiq")
_RESULT_V1 = struct.Struct(">ihqq")
_RESULT_V4 = struct.Struct(">ihqqi")


class ApiRange(NamedTuple):
    """The versions of one API that are offered, both ends inclusive."""

    api_key: int
    min_version: int
    max_version: int


class ClientSoftware(NamedTuple):
    """What a client says it is (KIP-511)."""

    name: str
    version: str


@guarded
def parse_api_versions(view: memoryview, pos: int, version: int) -> ClientSoftware | None:
    """None before v3, which says nothing."""
    if version < API_VERSIONS_FLEXIBLE:
        return None
    name, pos = read_string(view, pos, True)
    software_version, pos = read_string(view, pos, True)
    skip_tags(view, pos)
    return ClientSoftware(name, software_version)


def encode_api_versions(
    correlation_id: int,
    version: int,
    *,
    error: int,
    ranges: Sequence[ApiRange],
    supported: Sequence[FeatureRange] = (),
    finalized: Mapping[str, int] | None = None,
    finalized_epoch: int = -1,
) -> bytes:
    """A whole response frame. Its header is always v0: the client does not know yet what the broker speaks (CP-03).

    `finalized` None: not known, nothing is said about features but what is supported.
    """
    flexible = version >= API_VERSIONS_FLEXIBLE
    parts = [INT16.pack(error), array_length(len(ranges), flexible)]
    for api in ranges:
        parts.append(_RANGE.pack(*api))
        if flexible:
            parts.append(NO_TAGS)
    if version >= 1:
        parts.append(b"\x00\x00\x00\x00")  # throttle time
    if flexible:
        parts.append(_feature_tags(version, supported, finalized, finalized_epoch))
    body = b"".join(parts)
    return response_head(correlation_id, len(body), False) + body


def _feature_tags(version: int, supported: Sequence[FeatureRange], finalized: Mapping[str, int] | None, epoch: int) -> bytes:
    tags: list[tuple[int, bytes]] = []
    # Clients that speak v3 at most end at a feature with a level of 0; as in Kafka they are not told of those (KIP-1022).
    shown = [it for it in supported if version >= 4 or it.min_level > 0]
    if shown:
        keys = [uvarint(len(shown) + 1)]
        keys.extend(string(it.name, True) + struct.pack(">hh", it.min_level, it.max_level) + NO_TAGS for it in shown)
        tags.append((0, b"".join(keys)))
    if finalized is not None and epoch >= 0:
        tags.append((1, struct.pack(">q", epoch)))
        levels = [(name, finalized[name]) for name in sorted(finalized) if finalized[name] > 0]
        if levels:
            keys = [uvarint(len(levels) + 1)]
            keys.extend(string(name, True) + struct.pack(">hh", level, level) + NO_TAGS for name, level in levels)
            tags.append((2, b"".join(keys)))
    return uvarint(len(tags)) + b"".join(uvarint(tag) + uvarint(len(value)) + value for tag, value in tags)


class ListOffsetsPartition(NamedTuple):
    """`current_leader_epoch` -1: not given."""

    partition: int
    current_leader_epoch: int
    timestamp: int


class ListOffsetsRequest(NamedTuple):
    """`replica_id` -1: a consumer, -2: a debugging tool. Topics in the order asked."""

    replica_id: int
    isolation_level: int
    topics: list[tuple[str, list[ListOffsetsPartition]]]


class ListedOffset(NamedTuple):
    """One partition of the response; -1 for what there is not."""

    partition: int
    error: int
    timestamp: int
    offset: int
    leader_epoch: int


@guarded
def parse_list_offsets(view: memoryview, pos: int, version: int) -> ListOffsetsRequest:
    flexible = version >= LIST_OFFSETS_FLEXIBLE
    isolation_level = 0
    if version >= 2:
        replica_id, isolation_level = _REPLICA_ISOLATION.unpack_from(view, pos)
        pos += 5
    else:
        (replica_id,) = INT32.unpack_from(view, pos)
        pos += 4
    count, pos = read_count(view, pos, flexible)
    topics: list[tuple[str, list[ListOffsetsPartition]]] = []
    for _ in range(count):
        name, pos = read_string(view, pos, flexible)
        partition_count, pos = read_count(view, pos, flexible)
        partitions: list[ListOffsetsPartition] = []
        for _ in range(partition_count):
            if version >= 4:
                partitions.append(ListOffsetsPartition(*_OFFSET_V4.unpack_from(view, pos)))
                pos += 16
            else:
                index, timestamp = _OFFSET_V1.unpack_from(view, pos)
                partitions.append(ListOffsetsPartition(index, -1, timestamp))
                pos += 12
            if flexible:
                pos = skip_tags(view, pos)
        if flexible:
            pos = skip_tags(view, pos)
        topics.append((name, partitions))
    if version >= 10:
        INT32.unpack_from(view, pos)  # timeout: matters only for offsets in remote storage
        pos += 4
    if flexible:
        skip_tags(view, pos)
    return ListOffsetsRequest(replica_id, isolation_level, topics)


def encode_list_offsets(correlation_id: int, version: int, topics: Sequence[tuple[str, Sequence[ListedOffset]]]) -> bytes:
    """A whole response frame."""
    flexible = version >= LIST_OFFSETS_FLEXIBLE
    parts: list[bytes] = []
    if version >= 2:
        parts.append(b"\x00\x00\x00\x00")  # throttle time
    parts.append(array_length(len(topics), flexible))
    for name, partitions in topics:
        parts.append(string(name, flexible))
        parts.append(array_length(len(partitions), flexible))
        for partition in partitions:
            parts.append(_RESULT_V4.pack(*partition) if version >= 4 else _RESULT_V1.pack(*partition[:4]))
            if flexible:
                parts.append(NO_TAGS)
        if flexible:
            parts.append(NO_TAGS)
    if flexible:
        parts.append(NO_TAGS)
    body = b"".join(parts)
    return response_head(correlation_id, len(body), flexible) + body
