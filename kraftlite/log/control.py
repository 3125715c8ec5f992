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

from kraftlite.log.batch import CODEC_MASK, HEADER_BYTES, Record, attributes_of, build_batch
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import ZERO_UUID, NodeId, VoterEndpoint
from kraftlite.model.limits import MAX_REQUEST_ITEMS
from kraftlite.protocol.errors import ProtocolViolation
from kraftlite.protocol.primitives import INT32, NO_TAGS, array, bounded, string
from kraftlite.protocol.reader import Reader


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
_PLAIN: Final = struct.Struct(">BBBBBhhBhiB")
"""The record of a marker: its length, attributes, both deltas, the length of the key, the key, the length of the value, the
value, and the number of headers."""
_PLAIN_FRAME: Final = [2 * (_PLAIN.size - 1), 0, 0, 0, 8, 0]


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
        value = struct.pack(">hq", 0, control.last_contained_log_timestamp_ms) + NO_TAGS
    elif isinstance(control, SnapshotFooter):
        kind, value = ControlType.SNAPSHOT_FOOTER, struct.pack(">h", 0) + NO_TAGS
    elif isinstance(control, KRaftVersion):
        kind, value = ControlType.KRAFT_VERSION, struct.pack(">hh", 0, control.kraft_version) + NO_TAGS
    else:
        kind, value = ControlType.KRAFT_VOTERS, _encode_voters(control)
    return Record(_KEY.pack(0, kind), value)


def plain_marker(batch: bytes | bytearray | memoryview) -> EndTxnMarker | None:
    """The marker in a batch as coordinators write it: one record without headers, not compressed. None: it is something else."""
    if len(batch) != HEADER_BYTES + _PLAIN.size or attributes_of(batch) & CODEC_MASK:
        return None
    *frame, kind, size, version, coordinator_epoch, headers = _PLAIN.unpack_from(batch, HEADER_BYTES)
    if frame != _PLAIN_FRAME or (size, version, headers) != (12, 0, 0) or kind not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    return EndTxnMarker(commit=kind == ControlType.COMMIT, coordinator_epoch=coordinator_epoch)


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
    except (struct.error, IndexError, UnicodeDecodeError, ProtocolViolation) as error:
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
    out = struct.pack(">hi", version, control.leader_id)
    for ids, directories in (
        (control.voters, control.voter_directories),
        (control.granting_voters, control.granting_directories),
    ):
        voters = []
        for index, node_id in enumerate(ids):
            directory = directories[index] if index < len(directories) else ZERO_UUID
            voters.append(INT32.pack(node_id) + (directory.bytes if version else b"") + NO_TAGS)
        out += array(voters, True)
    return out + NO_TAGS


@bounded("control record", MAX_REQUEST_ITEMS)
def _decode_leader_change(data: bytes) -> LeaderChange:
    reader = Reader(data, flexible=True)
    version, leader_id = reader.int16(), reader.int32()

    def voter() -> tuple[NodeId, UUID | None]:
        found = NodeId(reader.int32()), reader.uuid() if version >= 1 else None
        reader.skip_tags()
        return found

    voters, granting = reader.array(voter), reader.array(voter)
    return LeaderChange(
        leader_id=NodeId(leader_id),
        voters=tuple(node for node, _ in voters),
        granting_voters=tuple(node for node, _ in granting),
        voter_directories=tuple(directory for _, directory in voters if directory is not None),
        granting_directories=tuple(directory for _, directory in granting if directory is not None),
    )


def _encode_voters(control: KRaftVoters) -> bytes:
    voters = []
    for voter in control.voters:
        endpoints = [
            string(endpoint.name, True) + string(endpoint.host, True) + struct.pack(">H", endpoint.port) + NO_TAGS
            for endpoint in voter.endpoints
        ]
        versions = struct.pack(">hh", voter.min_kraft_version, voter.max_kraft_version) + NO_TAGS
        voters.append(INT32.pack(voter.voter_id) + voter.directory_id.bytes + array(endpoints, True) + versions + NO_TAGS)
    return struct.pack(">h", 0) + array(voters, True) + NO_TAGS


@bounded("control record", MAX_REQUEST_ITEMS)
def _decode_voters(data: bytes) -> KRaftVoters:
    reader = Reader(data, flexible=True)
    reader.int16()

    def endpoint() -> VoterEndpoint:
        found = VoterEndpoint(name=reader.string(), host=reader.string(), port=reader.uint16())
        reader.skip_tags()
        return found

    def voter() -> VoterNode:
        voter_id, directory_id, endpoints = NodeId(reader.int32()), reader.uuid(), reader.array(endpoint)
        low, high = reader.int16(), reader.int16()
        reader.skip_tags()
        reader.skip_tags()
        return VoterNode(
            voter_id=voter_id, directory_id=directory_id, endpoints=endpoints, min_kraft_version=low, max_kraft_version=high
        )

    return KRaftVoters(voters=reader.array(voter))
