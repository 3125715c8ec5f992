"""ListOffsets by hand: clients ask it often.

Cross-checked with kio and kafka-python in tests/unit/wire, for every version. Source: CP-22.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from kraftlite.protocol.primitives import (
    INT32,
    NO_TAGS,
    array_length,
    guarded,
    read_count,
    read_string,
    response_head,
    skip_tags,
    string,
)

LIST_OFFSETS_MIN: Final = 1
LIST_OFFSETS_MAX: Final = 11
LIST_OFFSETS_FLEXIBLE: Final = 6

_REPLICA_ISOLATION = struct.Struct(">ib")
_OFFSET_V1 = struct.Struct(">iq")
_OFFSET_V4 = struct.Struct(">iiq")
_RESULT_V1 = struct.Struct(">ihqq")
_RESULT_V4 = struct.Struct(">ihqqi")


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
