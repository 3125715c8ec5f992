"""The client's side of Produce, Fetch and ListOffsets by hand: what carries records or times.

The records of a Fetch response are a view of its frame: they are never copied. Each API is spoken in one version, `VERSIONS` of
`kraftlite/client`. The server's side, for all versions, is in `wire/hot_codec`, `wire/fetch_codec` and `wire/list_offsets_codec`.

Source: Kafka protocol guide; KIP-320; CP-04, CP-05.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final, NamedTuple

from kraftlite.model.errors import ErrorCode, error_code
from kraftlite.model.limits import MAX_RESPONSE_ITEMS
from kraftlite.model.topic_partition import TopicPartition, by_topic
from kraftlite.protocol.errors import ProtocolViolation
from kraftlite.protocol.primitives import (
    INT32,
    NO_TAGS,
    array_length,
    bounded,
    read_array_length,
    read_count,
    read_nullable_string,
    read_string,
    read_uvarint,
    skip_tags,
    string,
    uvarint,
)

LATEST: Final = -1
EARLIEST: Final = -2
"""The timestamps of ListOffsets that ask for the end and the start of a log."""

_answer: Final = bounded("response", MAX_RESPONSE_ITEMS)


class Fetched(NamedTuple):
    """`records` is a view of a buffer that the client's next fetch overwrites. Offsets are exclusive ends, -1: unknown."""

    records: memoryview
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[tuple[int, int], ...]
    """(producer id, first offset) of aborted transactions, of a read_committed fetch."""


class OffsetAt(NamedTuple):
    """`offset` -1: no record is that young."""

    offset: int
    timestamp: int
    leader_epoch: int


class ProduceResult(NamedTuple):
    """`error_code` 0: written. `base_offset` -1: not known. `message`: what the broker says about an error, if anything."""

    error_code: int
    base_offset: int
    message: str = ""


_FETCH_HEAD = struct.Struct(">iiiibii")
_FETCH_PARTITION = struct.Struct(">iiqiqi")
_FETCH_ANSWER = struct.Struct(">ihi")
_FETCH_DATA = struct.Struct(">ihqqq")
_ABORTED = struct.Struct(">qq")
_PRODUCE_ANSWER = struct.Struct(">ihqqq")
_OFFSETS_PARTITION = struct.Struct(">iiq")
_OFFSETS_ANSWER = struct.Struct(">ihqqi")


def encode_fetch(
    tp: TopicPartition, offset: int, *, leader_epoch: int, max_bytes: int, max_wait_ms: int, read_committed: bool
) -> bytes:
    """Body of a Fetch request of one partition, without a session."""
    head = _FETCH_HEAD.pack(-1, max_wait_ms, 1, max_bytes, int(read_committed), 0, -1)
    partition = _FETCH_PARTITION.pack(tp.partition, leader_epoch, offset, -1, -1, max_bytes)
    topics = uvarint(2) + string(tp.topic, True) + uvarint(2) + partition + NO_TAGS + NO_TAGS
    return head + topics + uvarint(1) + string("", True) + NO_TAGS


@_answer
def decode_fetch(frame: memoryview, tp: TopicPartition) -> tuple[ErrorCode, Fetched]:
    """Decode a response with that partition only. Raises ProtocolViolation."""
    pos = skip_tags(frame, 4)
    _throttle, error, _session = _FETCH_ANSWER.unpack_from(frame, pos)
    empty = Fetched(frame[:0], -1, -1, -1, ())
    if error != 0:
        return error_code(error), empty
    topics, pos = read_count(frame, pos + _FETCH_ANSWER.size, True)
    if topics != 1:
        raise ProtocolViolation(f"{topics} topics in the response to a fetch of one")
    name, pos = read_string(frame, pos, True)
    partitions, pos = read_count(frame, pos, True)
    index, error, hw, stable, start = _FETCH_DATA.unpack_from(frame, pos)
    if (name, partitions, index) != (tp.topic, 1, tp.partition):
        raise ProtocolViolation(f"{name}-{index} in the response to a fetch of {tp}")
    count, pos = read_array_length(frame, pos + _FETCH_DATA.size, True)
    aborted = []
    for _ in range(count or 0):
        aborted.append(_ABORTED.unpack_from(frame, pos))
        pos = skip_tags(frame, pos + _ABORTED.size)
    size, pos = read_uvarint(frame, pos + 4)  # behind the preferred read replica
    if pos + size - 1 > len(frame):
        raise ProtocolViolation(f"{size - 1} bytes of records in {len(frame) - pos}")
    records = frame[pos : pos + max(0, size - 1)]
    return error_code(error), Fetched(records, hw, stable, start, tuple(aborted))


def encode_produce(
    batches: Mapping[TopicPartition, bytes], *, acks: int, timeout_ms: int, transactional_id: str | None = None
) -> list[bytes]:
    """Body of a Produce request, in parts: one batch for each partition."""
    grouped = by_topic(batches)
    name = b"\x00" if transactional_id is None else string(transactional_id, True)
    parts = [name + struct.pack(">hi", acks, timeout_ms) + array_length(len(grouped), True)]
    for topic, tps in grouped.items():
        parts.append(string(topic, True) + array_length(len(tps), True))
        for tp in tps:
            parts += (INT32.pack(tp.partition) + uvarint(len(batches[tp]) + 1), batches[tp], NO_TAGS)
        parts.append(NO_TAGS)
    parts.append(NO_TAGS)
    return parts


@_answer
def decode_produce(frame: memoryview) -> dict[TopicPartition, tuple[ErrorCode, int, str]]:
    """Error, base offset and message of each partition. Raises ProtocolViolation."""
    pos = skip_tags(frame, 4)
    found: dict[TopicPartition, tuple[ErrorCode, int, str]] = {}
    topics, pos = read_count(frame, pos, True)
    for _ in range(topics):
        name, pos = read_string(frame, pos, True)
        partitions, pos = read_count(frame, pos, True)
        for _ in range(partitions):
            index, error, base_offset, _append_time, _start = _PRODUCE_ANSWER.unpack_from(frame, pos)
            errors, pos = read_count(frame, pos + _PRODUCE_ANSWER.size, True)
            texts = []
            for _ in range(errors):
                text, pos = read_nullable_string(frame, pos + 4, True)
                texts.append(text or "")
                pos = skip_tags(frame, pos)
            message, pos = read_nullable_string(frame, pos, True)
            pos = skip_tags(frame, pos)
            found[TopicPartition(name, index)] = (error_code(error), base_offset, message or "; ".join(texts))
        pos = skip_tags(frame, pos)
    return found


def encode_list_offsets(wanted: Mapping[TopicPartition, tuple[int, int]], *, read_committed: bool) -> bytes:
    """Body of a ListOffsets request: (leader epoch, timestamp) of each partition."""
    grouped = by_topic(wanted)
    out = bytearray(struct.pack(">ib", -1, int(read_committed)) + array_length(len(grouped), True))
    for topic, tps in grouped.items():
        out += string(topic, True) + array_length(len(tps), True)
        for tp in tps:
            out += _OFFSETS_PARTITION.pack(tp.partition, *wanted[tp]) + NO_TAGS
        out += NO_TAGS
    return bytes(out + NO_TAGS)


@_answer
def decode_list_offsets(frame: memoryview) -> dict[TopicPartition, tuple[ErrorCode, OffsetAt]]:
    """Raises ProtocolViolation."""
    pos = skip_tags(frame, 4) + 4  # behind the throttle time
    found: dict[TopicPartition, tuple[ErrorCode, OffsetAt]] = {}
    topics, pos = read_count(frame, pos, True)
    for _ in range(topics):
        name, pos = read_string(frame, pos, True)
        partitions, pos = read_count(frame, pos, True)
        for _ in range(partitions):
            index, error, timestamp, offset, epoch = _OFFSETS_ANSWER.unpack_from(frame, pos)
            pos = skip_tags(frame, pos + _OFFSETS_ANSWER.size)
            found[TopicPartition(name, index)] = (error_code(error), OffsetAt(offset, timestamp, epoch))
        pos = skip_tags(frame, pos)
    return found
