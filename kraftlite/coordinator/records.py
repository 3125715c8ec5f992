"""The records of `__consumer_offsets` in Kafka's binary format, so that Kafka's own tools read the topic.

A key begins with its kind as int16: 1 (0 in old logs) an offset, 2 a group. A value begins with its version; no value is a
tombstone. Written are versions 3, the newest that are not "flexible", as Kafka writes them; read is every version.

Source: Kafka's schemas OffsetCommitKey, OffsetCommitValue, GroupMetadataKey, GroupMetadataValue; KIP-211, KIP-320, KIP-345.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.limits import MAX_INT32
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.protocol import primitives as p
from kraftlite.protocol.errors import ProtocolViolation
from kraftlite.protocol.primitives import INT16, INT32, INT64, bounded
from kraftlite.protocol.reader import Reader

OFFSET_KEY: Final = 1
GROUP_KEY: Final = 2
OFFSET_VALUE_VERSION: Final = 3
OFFSET_VALUE_WITH_EXPIRY: Final = 1
GROUP_VALUE_VERSION: Final = 3
FLEXIBLE_VERSION: Final = 4


class OffsetKey(NamedTuple):
    """The key of a record about an offset: group, topic and partition."""

    group_id: str
    tp: TopicPartition


class GroupKey(NamedTuple):
    """The key of a record about a group."""

    group_id: str


class UnknownKey(NamedTuple):
    """A record of a kind that is not ours to understand: it is passed over, as Kafka does."""

    kind: int


Key = OffsetKey | GroupKey | UnknownKey


class CommittedOffset(NamedTuple):
    """A committed position: the next `offset` to read. `leader_epoch` None: not given. Times are wall clock milliseconds;
    `expire_ms` None: the broker's retention decides."""

    offset: int
    leader_epoch: int | None
    metadata: str
    commit_ms: int
    expire_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberValue:
    """A member as it is stored. `subscription`: its metadata in the chosen protocol."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupValue:
    """A generation that was completed. `state_since_ms` None: not known. `protocol_type` "" for a group that never had one."""

    protocol_type: str
    generation: int
    protocol_name: str | None
    leader_id: str | None
    state_since_ms: int | None
    members: tuple[MemberValue, ...]


class CoordinatorRecord(NamedTuple):
    """One record to write; `value` None: a tombstone."""

    key: bytes
    value: bytes | None


def offset_record(group_id: str, tp: TopicPartition, committed: CommittedOffset) -> CoordinatorRecord:
    return CoordinatorRecord(encode_offset_key(group_id, tp), encode_offset(committed))


def offset_tombstone(group_id: str, tp: TopicPartition) -> CoordinatorRecord:
    return CoordinatorRecord(encode_offset_key(group_id, tp), None)


def group_record(group_id: str, value: GroupValue) -> CoordinatorRecord:
    return CoordinatorRecord(encode_group_key(group_id), encode_group(value))


def group_tombstone(group_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(encode_group_key(group_id), None)


# --- writing -------------------------------------------------------------------------------------------------------------


def encode_offset_key(group_id: str, tp: TopicPartition) -> bytes:
    return INT16.pack(OFFSET_KEY) + p.string(group_id, False) + p.string(tp.topic, False) + INT32.pack(tp.partition)


def encode_group_key(group_id: str) -> bytes:
    return INT16.pack(GROUP_KEY) + p.string(group_id, False)


def encode_offset(committed: CommittedOffset) -> bytes:
    """Version 1 when the offset has a time of its own at which it expires, else 3."""
    offset, leader_epoch, metadata, commit_ms, expire_ms = committed
    if expire_ms is not None:
        head = INT16.pack(OFFSET_VALUE_WITH_EXPIRY) + INT64.pack(offset)
        return head + p.string(metadata, False) + INT64.pack(commit_ms) + INT64.pack(expire_ms)
    head = INT16.pack(OFFSET_VALUE_VERSION) + INT64.pack(offset) + INT32.pack(-1 if leader_epoch is None else leader_epoch)
    return head + p.string(metadata, False) + INT64.pack(commit_ms)


def encode_group(value: GroupValue) -> bytes:
    parts = [
        INT16.pack(GROUP_VALUE_VERSION),
        p.string(value.protocol_type, False),
        INT32.pack(value.generation),
        p.nullable_string(value.protocol_name, False),
        p.nullable_string(value.leader_id, False),
        INT64.pack(-1 if value.state_since_ms is None else value.state_since_ms),
        INT32.pack(len(value.members)),
    ]
    for member in value.members:
        parts += (
            p.string(member.member_id, False),
            p.nullable_string(member.instance_id, False),
            p.string(member.client_id, False),
            p.string(member.client_host, False),
            INT32.pack(member.rebalance_timeout_ms),
            INT32.pack(member.session_timeout_ms),
            p.data(member.subscription, False),
            p.data(member.assignment, False),
        )
    return b"".join(parts)


# --- reading -------------------------------------------------------------------------------------------------------------


def _corrupt(reason: str) -> ApiError:
    return ApiError(ErrorCode.CORRUPT_MESSAGE, f"a record of __consumer_offsets: {reason}")


readable: Final = bounded("record", MAX_INT32, _corrupt)
"""Makes a decoder raise ApiError(CORRUPT_MESSAGE) when the bytes do not add up. A record's arrays are bounded by its own size."""


@readable
def decode_key(data: bytes) -> Key:
    """Raises ApiError(CORRUPT_MESSAGE) when the bytes do not add up."""
    reader = Reader(data, flexible=False)
    kind = reader.int16()
    if kind in (0, OFFSET_KEY):
        return OffsetKey(reader.string(), TopicPartition(reader.string(), reader.int32()))
    if kind == GROUP_KEY:
        return GroupKey(reader.string())
    return UnknownKey(kind)


@readable
def decode_offset(data: bytes) -> CommittedOffset:
    """Raises ApiError(CORRUPT_MESSAGE) when the bytes do not add up, or the version is newer than all we know."""
    reader, version = _value(data)
    offset = reader.int64()
    leader_epoch = reader.int32() if version >= 3 else -1
    metadata = reader.string()
    commit_ms = reader.int64()
    expire_ms = reader.int64() if version == OFFSET_VALUE_WITH_EXPIRY else -1
    return CommittedOffset(
        offset, None if leader_epoch < 0 else leader_epoch, metadata, commit_ms, None if expire_ms < 0 else expire_ms
    )


@readable
def decode_group(data: bytes) -> GroupValue:
    """Decode a group. Raises what `decode_offset` raises."""
    reader, version = _value(data)
    protocol_type = reader.string()
    generation = reader.int32()
    protocol_name = reader.nullable_string()
    leader_id = reader.nullable_string()
    since_ms = reader.int64() if version >= 2 else -1
    members = tuple(_member(reader, version) for _ in range(reader.count()))
    return GroupValue(
        protocol_type=protocol_type,
        generation=generation,
        protocol_name=protocol_name,
        leader_id=leader_id,
        state_since_ms=None if since_ms < 0 else since_ms,
        members=members,
    )


def _member(reader: Reader, version: int) -> MemberValue:
    member_id = reader.string()
    instance_id = reader.nullable_string() if version >= 3 else None
    client_id, client_host = reader.string(), reader.string()
    rebalance_timeout_ms = reader.int32() if version >= 1 else None
    session_timeout_ms = reader.int32()
    subscription, assignment = reader.bytes(), reader.bytes()
    reader.skip_tags()
    return MemberValue(
        member_id=member_id,
        instance_id=instance_id,
        client_id=client_id,
        client_host=client_host,
        rebalance_timeout_ms=session_timeout_ms if rebalance_timeout_ms is None else rebalance_timeout_ms,
        session_timeout_ms=session_timeout_ms,
        subscription=subscription,
        assignment=assignment,
    )


def _value(data: bytes) -> tuple[Reader, int]:
    (version,) = INT16.unpack_from(data)
    if not 0 <= version <= FLEXIBLE_VERSION:
        raise ProtocolViolation(f"value version {version}: 0 to {FLEXIBLE_VERSION} are known")
    reader = Reader(data, flexible=version >= FLEXIBLE_VERSION)
    reader.int16()
    return reader, version
