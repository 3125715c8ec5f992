"""The records of `__consumer_offsets` in Kafka's binary format, so that Kafka's own tools read the topic.

A key begins with its kind as int16: 1 (0 in old logs) an offset, 2 a group. A value begins with its version; no value is a
tombstone. Written are versions 3, the newest that are not "flexible", as Kafka writes them; read is every version.

Source: Kafka's schemas OffsetCommitKey, OffsetCommitValue, GroupMetadataKey, GroupMetadataValue; KIP-211, KIP-320, KIP-345.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, NamedTuple

from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.topic_partition import TopicPartition

OFFSET_KEY: Final = 1
GROUP_KEY: Final = 2
OFFSET_VALUE_VERSION: Final = 3
OFFSET_VALUE_WITH_EXPIRY: Final = 1
GROUP_VALUE_VERSION: Final = 3
FLEXIBLE_VERSION: Final = 4

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")


class OffsetKey(NamedTuple):
    """Whose offset a record is about."""

    group_id: str
    tp: TopicPartition


class GroupKey(NamedTuple):
    """Which group a record is about."""

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
    return _INT16.pack(OFFSET_KEY) + _string(group_id) + _string(tp.topic) + _INT32.pack(tp.partition)


def encode_group_key(group_id: str) -> bytes:
    return _INT16.pack(GROUP_KEY) + _string(group_id)


def encode_offset(committed: CommittedOffset) -> bytes:
    """Version 1 when the offset has a time of its own at which it expires, else 3."""
    offset, leader_epoch, metadata, commit_ms, expire_ms = committed
    if expire_ms is not None:
        head = _INT16.pack(OFFSET_VALUE_WITH_EXPIRY) + _INT64.pack(offset)
        return head + _string(metadata) + _INT64.pack(commit_ms) + _INT64.pack(expire_ms)
    head = _INT16.pack(OFFSET_VALUE_VERSION) + _INT64.pack(offset) + _INT32.pack(-1 if leader_epoch is None else leader_epoch)
    return head + _string(metadata) + _INT64.pack(commit_ms)


def encode_group(value: GroupValue) -> bytes:
    parts = [
        _INT16.pack(GROUP_VALUE_VERSION),
        _string(value.protocol_type),
        _INT32.pack(value.generation),
        _nullable_string(value.protocol_name),
        _nullable_string(value.leader_id),
        _INT64.pack(-1 if value.state_since_ms is None else value.state_since_ms),
        _INT32.pack(len(value.members)),
    ]
    for member in value.members:
        parts += (
            _string(member.member_id),
            _nullable_string(member.instance_id),
            _string(member.client_id),
            _string(member.client_host),
            _INT32.pack(member.rebalance_timeout_ms),
            _INT32.pack(member.session_timeout_ms),
            _bytes(member.subscription),
            _bytes(member.assignment),
        )
    return b"".join(parts)


def _string(text: str) -> bytes:
    raw = text.encode("utf-8", "surrogatepass")
    return _INT16.pack(len(raw)) + raw


def _nullable_string(text: str | None) -> bytes:
    return _INT16.pack(-1) if text is None else _string(text)


def _bytes(data: bytes) -> bytes:
    return _INT32.pack(len(data)) + data


# --- reading -------------------------------------------------------------------------------------------------------------


def decode_key(data: bytes) -> Key:
    """ApiError(CORRUPT_MESSAGE) when the bytes do not add up."""
    reader = _Reader(data, flexible=False)
    kind = reader.int16()
    if kind in (0, OFFSET_KEY):
        return OffsetKey(reader.string(), TopicPartition(reader.string(), reader.int32()))
    if kind == GROUP_KEY:
        return GroupKey(reader.string())
    return UnknownKey(kind)


def decode_offset(data: bytes) -> CommittedOffset:
    """ApiError(CORRUPT_MESSAGE) when the bytes do not add up, or the version is newer than all we know."""
    reader, version = _value(data)
    offset = reader.int64()
    leader_epoch = reader.int32() if version >= 3 else -1
    metadata = reader.string()
    commit_ms = reader.int64()
    expire_ms = reader.int64() if version == OFFSET_VALUE_WITH_EXPIRY else -1
    return CommittedOffset(
        offset, None if leader_epoch < 0 else leader_epoch, metadata, commit_ms, None if expire_ms < 0 else expire_ms
    )


def decode_group(data: bytes) -> GroupValue:
    """Errors as `decode_offset`."""
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


def _member(reader: _Reader, version: int) -> MemberValue:
    member_id = reader.string()
    instance_id = reader.nullable_string() if version >= 3 else None
    client_id, client_host = reader.string(), reader.string()
    rebalance_timeout_ms = reader.int32() if version >= 1 else None
    session_timeout_ms = reader.int32()
    subscription, assignment = reader.bytes(), reader.bytes()
    reader.tags()
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


def _value(data: bytes) -> tuple[_Reader, int]:
    version = _Reader(data, flexible=False).int16()
    if not 0 <= version <= FLEXIBLE_VERSION:
        raise _corrupt(f"value version {version}: 0 to {FLEXIBLE_VERSION} are known")
    reader = _Reader(data, flexible=version >= FLEXIBLE_VERSION)
    reader.int16()
    return reader, version


def _corrupt(message: str) -> ApiError:
    return ApiError(ErrorCode.CORRUPT_MESSAGE, f"a record of __consumer_offsets: {message}")


class _Reader:
    """Kafka's primitives in either encoding. What runs beyond the data is CORRUPT_MESSAGE."""

    def __init__(self, data: bytes, *, flexible: bool) -> None:
        self._data = data
        self._flexible = flexible
        self._pos = 0

    def _fixed(self, layout: struct.Struct) -> int:
        try:
            (value,) = layout.unpack_from(self._data, self._pos)
        except struct.error as error:
            raise _corrupt(str(error)) from error
        self._pos += layout.size
        return int(value)

    def int16(self) -> int:
        return self._fixed(_INT16)

    def int32(self) -> int:
        return self._fixed(_INT32)

    def int64(self) -> int:
        return self._fixed(_INT64)

    def _uvarint(self) -> int:
        value = shift = 0
        while True:
            if self._pos >= len(self._data) or shift > 28:
                raise _corrupt("a length runs beyond the record")
            byte = self._data[self._pos]
            self._pos += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def _take(self, size: int) -> bytes:
        end = self._pos + size
        if size < 0 or end > len(self._data):
            raise _corrupt(f"{size} bytes announced, {len(self._data) - self._pos} left")
        taken = self._data[self._pos : end]
        self._pos = end
        return taken

    def nullable_string(self) -> str | None:
        size = self._uvarint() - 1 if self._flexible else self.int16()
        return None if size == -1 else self._take(size).decode("utf-8", "surrogatepass")

    def string(self) -> str:
        text = self.nullable_string()
        if text is None:
            raise _corrupt("null where a string must be")
        return text

    def bytes(self) -> bytes:
        return self._take(self._uvarint() - 1 if self._flexible else self.int32())

    def count(self) -> int:
        size = self._uvarint() - 1 if self._flexible else self.int32()
        if not 0 <= size <= len(self._data) - self._pos:
            raise _corrupt(f"an array of {size} in {len(self._data) - self._pos} bytes")
        return size

    def tags(self) -> None:
        """Pass over the tagged fields, all unknown; there are none in the older encoding."""
        if self._flexible:
            for _ in range(self._uvarint()):
                self._uvarint()
                self._take(self._uvarint())
