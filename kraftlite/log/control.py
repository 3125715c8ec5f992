"""Control records: what logs say about themselves, in Kafka's encodings.

A control batch has the control bit set; a record's key is (version i16 = 0, type i16). Values of the metadata log's types are
"flexible" messages: their own version first, compact arrays and strings (length + 1), an empty tag section (0) per structure.

Source: KIP-98 (markers), KIP-595 (leader change), KIP-630 (snapshot header and footer), KIP-853 (kraft version, voters).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final
from uuid import UUID

from kraftlite.log.batch import Record, build_batch
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import ZERO_UUID, NodeId


class ControlType(IntEnum):
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTxnMarker:
    """End of a transaction in this partition."""

    commit: bool
    coordinator_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderChange:
    """First batch of an epoch of the metadata quorum. Directory ids are written when every voter has one (version 1)."""

    leader_id: NodeId
    voters: tuple[NodeId, ...]
    granting_voters: tuple[NodeId, ...]
    voter_directories: tuple[UUID, ...] = ()
    granting_directories: tuple[UUID, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotHeader:
    last_contained_log_timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotFooter:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class KRaftVersion:
    kraft_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VoterEndpoint:
    name: str
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VoterNode:
    voter_id: NodeId
    directory_id: UUID
    endpoints: tuple[VoterEndpoint, ...]
    min_kraft_version: int = 0
    max_kraft_version: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class KRaftVoters:
    voters: tuple[VoterNode, ...]


ControlRecord = EndTxnMarker | LeaderChange | SnapshotHeader | SnapshotFooter | KRaftVersion | KRaftVoters

_KEY: Final = struct.Struct(">hh")
_MARKER: Final = struct.Struct(">hi")
_NO_TAGS: Final = b"\x00"


def control_type(key: bytes | None) -> int:
    """The type in a control record's key. ApiError(CORRUPT_MESSAGE) when it is no such key."""
    if key is None or len(key) < 4:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"control record key {key!r} is not (version i16, type i16)")
    return int(_KEY.unpack_from(key)[1])


def encode_control(control: ControlRecord) -> Record:
    """The record that says this."""
    if isinstance(control, EndTxnMarker):
        kind = ControlType.COMMIT if control.commit else ControlType.ABORT
        value = _MARKER.pack(0, control.coordinator_epoch)
    elif isinstance(control, LeaderChange):
        kind, value = ControlType.LEADER_CHANGE, _encode_leader_change(control)
    elif isinstance(control, SnapshotHeader):
        kind = ControlType.SNAPSHOT_HEADER
        value = struct.pack(">hq", 0, control.last_contained_log_timestamp_ms) + _NO_TAGS
    elif isinstance(control, SnapshotFooter):
        kind, value = ControlType.SNAPSHOT_FOOTER, struct.pack(">h", 0) + _NO_TAGS
    elif isinstance(control, KRaftVersion):
        kind, value = ControlType.KRAFT_VERSION, struct.pack(">hh", 0, control.kraft_version) + _NO_TAGS
    else:
        kind, value = ControlType.KRAFT_VOTERS, _encode_voters(control)
    return Record(_KEY.pack(0, kind), value)


def decode_control(record: Record) -> ControlRecord | None:
    """The inverse; None for a type that is not known (newer software wrote it). ApiError(CORRUPT_MESSAGE) on garbage."""
    kind = control_type(record.key)
    data = record.value or b""
    try:
        if kind in (ControlType.ABORT, ControlType.COMMIT):
            return EndTxnMarker(commit=kind == ControlType.COMMIT, coordinator_epoch=_MARKER.unpack_from(data)[1])
        if kind == ControlType.LEADER_CHANGE:
            return _decode_leader_change(data)
        if kind == ControlType.SNAPSHOT_HEADER:
            return SnapshotHeader(last_contained_log_timestamp_ms=struct.unpack_from(">hq", data)[1])
        if kind == ControlType.SNAPSHOT_FOOTER:
            return SnapshotFooter()
        if kind == ControlType.KRAFT_VERSION:
            return KRaftVersion(kraft_version=struct.unpack_from(">hh", data)[1])
        if kind == ControlType.KRAFT_VOTERS:
            return _decode_voters(data)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"control record of type {kind} does not parse") from error
    return None


def control_batch(
    controls: Sequence[ControlRecord],
    *,
    timestamp_ms: int,
    leader_epoch: int = -1,
    base_offset: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
) -> bytes:
    """One control batch. A transaction marker needs the producer that it ends a transaction of."""
    return build_batch(
        [encode_control(control) for control in controls],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        timestamp_ms=timestamp_ms,
        control=True,
        transactional=producer_id >= 0,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )


def _encode_leader_change(control: LeaderChange) -> bytes:
    version = 1 if control.voter_directories else 0
    out = bytearray(struct.pack(">hi", version, control.leader_id))
    for ids, directories in (
        (control.voters, control.voter_directories),
        (control.granting_voters, control.granting_directories),
    ):
        out += _unsigned(len(ids) + 1)
        for index, node_id in enumerate(ids):
            out += struct.pack(">i", node_id)
            if version:
                out += (directories[index] if index < len(directories) else ZERO_UUID).bytes
            out += _NO_TAGS
    return bytes(out + _NO_TAGS)


def _decode_leader_change(data: bytes) -> LeaderChange:
    version, leader_id = struct.unpack_from(">hi", data)
    position = 6
    lists: list[tuple[tuple[NodeId, ...], tuple[UUID, ...]]] = []
    for _ in range(2):
        count, position = _read_unsigned(data, position)
        ids: list[NodeId] = []
        directories: list[UUID] = []
        for _ in range(max(0, count - 1)):
            ids.append(NodeId(struct.unpack_from(">i", data, position)[0]))
            position += 4
            if version >= 1:
                directories.append(_read_uuid(data, position))
                position += 16
            position = _skip_tags(data, position)
        lists.append((tuple(ids), tuple(directories)))
    (voters, voter_directories), (granting, granting_directories) = lists
    return LeaderChange(
        leader_id=NodeId(leader_id),
        voters=voters,
        granting_voters=granting,
        voter_directories=voter_directories,
        granting_directories=granting_directories,
    )


def _encode_voters(control: KRaftVoters) -> bytes:
    out = bytearray(struct.pack(">h", 0))
    out += _unsigned(len(control.voters) + 1)
    for voter in control.voters:
        out += struct.pack(">i", voter.voter_id) + voter.directory_id.bytes
        out += _unsigned(len(voter.endpoints) + 1)
        for endpoint in voter.endpoints:
            out += _compact_string(endpoint.name) + _compact_string(endpoint.host) + struct.pack(">H", endpoint.port) + _NO_TAGS
        out += struct.pack(">hh", voter.min_kraft_version, voter.max_kraft_version) + _NO_TAGS + _NO_TAGS
    return bytes(out + _NO_TAGS)


def _decode_voters(data: bytes) -> KRaftVoters:
    count, position = _read_unsigned(data, 2)
    voters: list[VoterNode] = []
    for _ in range(max(0, count - 1)):
        (voter_id,) = struct.unpack_from(">i", data, position)
        directory_id = _read_uuid(data, position + 4)
        endpoint_count, position = _read_unsigned(data, position + 20)
        endpoints: list[VoterEndpoint] = []
        for _ in range(max(0, endpoint_count - 1)):
            name, position = _read_string(data, position)
            host, position = _read_string(data, position)
            (port,) = struct.unpack_from(">H", data, position)
            position = _skip_tags(data, position + 2)
            endpoints.append(VoterEndpoint(name=name, host=host, port=port))
        low, high = struct.unpack_from(">hh", data, position)
        position = _skip_tags(data, _skip_tags(data, position + 4))
        voters.append(
            VoterNode(
                voter_id=NodeId(voter_id),
                directory_id=directory_id,
                endpoints=tuple(endpoints),
                min_kraft_version=low,
                max_kraft_version=high,
            )
        )
    return KRaftVoters(voters=tuple(voters))


def _unsigned(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read_unsigned(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 28:
            raise IndexError("varint is too long")


def _compact_string(text: str) -> bytes:
    raw = text.encode()
    return _unsigned(len(raw) + 1) + raw


def _read_string(data: bytes, position: int) -> tuple[str, int]:
    size, position = _read_unsigned(data, position)
    end = position + size - 1
    if size < 1 or end > len(data):
        raise IndexError("string runs beyond the record")
    return data[position:end].decode(), end


def _read_uuid(data: bytes, position: int) -> UUID:
    if position + 16 > len(data):
        raise IndexError("uuid runs beyond the record")
    return UUID(bytes=data[position : position + 16])


def _skip_tags(data: bytes, position: int) -> int:
    count, position = _read_unsigned(data, position)
    for _ in range(count):
        _, position = _read_unsigned(data, position)
        size, position = _read_unsigned(data, position)
        position += size
    return position
