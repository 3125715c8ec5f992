"""The records of consumer groups in Kafka's binary format: kinds 3 to 8 and 16 of `__consumer_offsets`.

Keys are plain, values of version 0 and flexible. `Value` None is a tombstone. Source: Kafka's schemas ConsumerGroup*Key and
ConsumerGroup*Value (group-coordinator); KIP-848, KIP-1101 (metadata hash).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from kraftlite.coordinator.api import Protocol
from kraftlite.coordinator.modern.member import (
    NO_EPOCHS,
    ClassicMetadata,
    Epochs,
    Member,
    MemberState,
    Parts,
    epochs_of,
    parts_of,
)
from kraftlite.coordinator.records import CoordinatorRecord, readable
from kraftlite.protocol import primitives as p
from kraftlite.protocol.errors import ProtocolViolation
from kraftlite.protocol.primitives import INT16, INT32, INT64, NO_TAGS, tagged
from kraftlite.protocol.reader import Reader

EPOCH_KEY: Final = 3
PARTITION_METADATA_KEY: Final = 4
MEMBER_KEY: Final = 5
TARGET_EPOCH_KEY: Final = 6
TARGET_KEY: Final = 7
CURRENT_KEY: Final = 8
REGEX_KEY: Final = 16

_ABSENT: Final = b"\xff"
_PRESENT: Final = b"\x01"
_NULL_ARRAY: Final = b"\x00"
_VERSION: Final = INT16.pack(0)


@dataclass(frozen=True, slots=True)
class EpochKey:
    """The group itself; the first record of a group that is written, and the last that is deleted."""

    group_id: str


@dataclass(frozen=True, slots=True)
class PartitionMetadataKey:
    """The key of a record in which Kafka 4.0 and older kept the topics of a group. Read to be forgotten, never written but as
    a tombstone."""

    group_id: str


@dataclass(frozen=True, slots=True)
class MemberKey:
    """The key of the record of a member's own words."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class TargetEpochKey:
    """The epoch that the target assignment is for."""

    group_id: str


@dataclass(frozen=True, slots=True)
class TargetKey:
    """The key of the record of a member's target assignment."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class CurrentKey:
    """The key of the record of the partitions that a member may use now, and of its epoch."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class RegexKey:
    """A regular expression that somebody subscribes to."""

    group_id: str
    regex: str


ConsumerKey = EpochKey | PartitionMetadataKey | MemberKey | TargetEpochKey | TargetKey | CurrentKey | RegexKey


class EpochValue(NamedTuple):
    """`metadata_hash`: of the subscribed topics as they were at this epoch; 0: not known."""

    epoch: int
    metadata_hash: int = 0


class TargetEpochValue(NamedTuple):
    """`made_ms`: wall clock, when the assignment was made; 0: not known."""

    epoch: int
    made_ms: int = 0


class TargetValue(NamedTuple):
    """The partitions that a member is meant to have, of topics that existed when the assignment was made."""

    partitions: Parts


class CurrentValue(NamedTuple):
    """The fields of `Member` of the same names."""

    epoch: int
    previous_epoch: int
    state: MemberState
    assigned: Parts
    revoking: Parts
    since: Epochs = NO_EPOCHS


class RegexValue(NamedTuple):
    """The topics that match, sorted, by the metadata up to offset `version`; looked up at `timestamp_ms` (wall clock)."""

    topics: tuple[str, ...]
    version: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class MemberValue:
    """A member's own words; the fields of `Member` that have nothing to do with its assignment."""

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    regex: str
    rebalance_timeout_ms: int
    server_assignor: str | None
    classic: ClassicMetadata | None


class Ignored(NamedTuple):
    """A value that is not looked at."""


ConsumerValue = EpochValue | MemberValue | TargetEpochValue | TargetValue | CurrentValue | RegexValue | Ignored


def member_value(member: Member) -> MemberValue:
    return MemberValue(
        member.instance_id,
        member.rack_id,
        member.client_id,
        member.client_host,
        member.topics,
        member.regex,
        member.rebalance_timeout_ms,
        member.server_assignor,
        member.classic,
    )


def current_value(member: Member) -> CurrentValue:
    return CurrentValue(member.epoch, member.previous_epoch, member.state, member.assigned, member.revoking, member.since)


# --- writing -------------------------------------------------------------------------------------------------------------

_KINDS: Final[Mapping[type, int]] = {
    EpochKey: EPOCH_KEY,
    PartitionMetadataKey: PARTITION_METADATA_KEY,
    MemberKey: MEMBER_KEY,
    TargetEpochKey: TARGET_EPOCH_KEY,
    TargetKey: TARGET_KEY,
    CurrentKey: CURRENT_KEY,
    RegexKey: REGEX_KEY,
}


def record_of(key: ConsumerKey, value: ConsumerValue | None) -> CoordinatorRecord:
    return CoordinatorRecord(encode_key(key), None if value is None else encode_value(value))


def encode_key(key: ConsumerKey) -> bytes:
    parts = [key.group_id]
    if isinstance(key, MemberKey | TargetKey | CurrentKey):
        parts.append(key.member_id)
    elif isinstance(key, RegexKey):
        parts.append(key.regex)
    return INT16.pack(_KINDS[type(key)]) + b"".join(p.string(part, False) for part in parts)


def encode_value(value: ConsumerValue) -> bytes:
    if isinstance(value, EpochValue):
        tags = [(0, INT64.pack(value.metadata_hash))] if value.metadata_hash else []
        return _VERSION + INT32.pack(value.epoch) + tagged(tags)
    if isinstance(value, MemberValue):
        return _VERSION + _member(value)
    if isinstance(value, TargetEpochValue):
        return _VERSION + INT32.pack(value.epoch) + tagged([(0, INT64.pack(value.made_ms))] if value.made_ms else [])
    if isinstance(value, TargetValue):
        return _VERSION + _parts(value.partitions) + NO_TAGS
    if isinstance(value, CurrentValue):
        head = INT32.pack(value.epoch) + INT32.pack(value.previous_epoch) + bytes((value.state,))
        return _VERSION + head + _parts(value.assigned, value.since) + _parts(value.revoking, value.since) + NO_TAGS
    assert isinstance(value, RegexValue), "what is ignored is not written"
    topics = p.array([p.nullable_string(topic, True) for topic in value.topics], True)
    return _VERSION + topics + INT64.pack(value.version) + INT64.pack(value.timestamp_ms) + NO_TAGS


def _parts(parts: Parts, since: Epochs = NO_EPOCHS) -> bytes:
    """With the assignment epochs of the partitions, in the same order, where they are known."""
    found = []
    for topic_id, indexes in sorted(parts.items()):
        order, epochs = sorted(indexes), since.get(topic_id)
        known = [(0, p.array([INT32.pack(epochs[index]) for index in order], True))] if epochs is not None else []
        found.append(topic_id.bytes + p.array([INT32.pack(index) for index in order], True) + tagged(known))
    return p.array(found, True)


def _member(value: MemberValue) -> bytes:
    classic = value.classic
    tags = []
    if classic is not None:
        protocols = [
            p.nullable_string(protocol.name, True) + p.data(protocol.metadata, True) + NO_TAGS for protocol in classic.protocols
        ]
        tags = [(0, _PRESENT + INT32.pack(classic.session_timeout_ms) + p.array(protocols, True) + NO_TAGS)]
    return b"".join(
        (
            p.nullable_string(value.instance_id, True),
            p.nullable_string(value.rack_id, True),
            p.nullable_string(value.client_id, True),
            p.nullable_string(value.client_host, True),
            p.array([p.nullable_string(topic, True) for topic in value.topics], True),
            p.nullable_string(value.regex, True),
            INT32.pack(value.rebalance_timeout_ms),
            p.nullable_string(value.server_assignor, True),
            tagged(tags),
        )
    )


# --- reading -------------------------------------------------------------------------------------------------------------


@readable
def decode_key(data: bytes) -> ConsumerKey | None:
    """None for a key of another kind. ApiError(CORRUPT_MESSAGE) when the bytes do not add up."""
    reader = Reader(data, flexible=False)
    kind = reader.int16()
    if kind == EPOCH_KEY:
        return EpochKey(reader.string())
    if kind == PARTITION_METADATA_KEY:
        return PartitionMetadataKey(reader.string())
    if kind == MEMBER_KEY:
        return MemberKey(reader.string(), reader.string())
    if kind == TARGET_EPOCH_KEY:
        return TargetEpochKey(reader.string())
    if kind == TARGET_KEY:
        return TargetKey(reader.string(), reader.string())
    if kind == CURRENT_KEY:
        return CurrentKey(reader.string(), reader.string())
    if kind == REGEX_KEY:
        return RegexKey(reader.string(), reader.string())
    return None


@readable
def decode_value(key: ConsumerKey, data: bytes) -> ConsumerValue:
    """Raises ApiError(CORRUPT_MESSAGE) when the bytes do not add up, or the version is newer than all we know."""
    version = Reader(data, flexible=False).int16()
    if version != 0:
        raise ProtocolViolation(f"value version {version}: 0 is known")
    reader = Reader(data, flexible=True)
    reader.int16()
    return _DECODERS[type(key)](reader)


def _epoch_and_tag(reader: Reader) -> tuple[int, int]:
    """An int32, and an int64 as the tagged field 0; 0 when it is not there."""
    epoch, tag = reader.int32(), reader.tagged().get(0)
    return epoch, 0 if tag is None else Reader(tag, flexible=True).int64()


def _read_member(reader: Reader) -> MemberValue:
    instance_id, rack_id = reader.nullable_string(), reader.nullable_string()
    client_id, client_host = reader.string(), reader.string()
    topics = tuple(sorted(set(reader.array(reader.string))))
    regex = reader.nullable_string() or ""
    rebalance_timeout_ms, server_assignor = reader.int32(), reader.nullable_string()
    classic = reader.tagged().get(0)
    return MemberValue(
        instance_id,
        rack_id,
        client_id,
        client_host,
        topics,
        regex,
        rebalance_timeout_ms,
        server_assignor,
        None if classic is None else _read_classic(Reader(classic, flexible=True)),
    )


def _read_classic(reader: Reader) -> ClassicMetadata | None:
    if reader.uint8() == _ABSENT[0]:
        return None
    session_timeout_ms = reader.int32()

    def protocol() -> Protocol:
        found = Protocol(reader.string(), reader.bytes())
        reader.skip_tags()
        return found

    return ClassicMetadata(session_timeout_ms=session_timeout_ms, protocols=reader.array(protocol))


def _read_parts(reader: Reader) -> Parts:
    def topic() -> tuple[UUID, tuple[int, ...]]:
        found = (reader.uuid(), reader.array(reader.int32))
        reader.skip_tags()
        return found

    return parts_of(reader.array(topic))


def _read_current(reader: Reader) -> CurrentValue:
    epoch, previous_epoch, number = reader.int32(), reader.int32(), reader.uint8()
    known = number in (state.value for state in MemberState)
    state = MemberState(number) if known else MemberState.UNKNOWN
    since: dict[UUID, dict[int, int]] = {}
    assigned, revoking = _read_parts_since(reader, since), _read_parts_since(reader, since)
    for topic_id, epochs in epochs_of((assigned, revoking), epoch).items():
        since[topic_id] = {**epochs, **since.get(topic_id, {})}
    return CurrentValue(epoch, previous_epoch, state, assigned, revoking, since)


def _read_parts_since(reader: Reader, since: dict[UUID, dict[int, int]]) -> Parts:
    """Puts the assignment epochs into `since`. Where there are not as many as partitions they say nothing, as in Kafka."""

    def topic() -> tuple[UUID, tuple[int, ...]]:
        topic_id, indexes, tag = reader.uuid(), reader.array(reader.int32), reader.tagged().get(0)
        if tag is not None and bytes(tag) != _NULL_ARRAY:
            said = Reader(tag, flexible=True)
            epochs = said.array(said.int32)
            if len(epochs) == len(indexes):
                since.setdefault(topic_id, {}).update(zip(indexes, epochs, strict=True))
        return topic_id, indexes

    return parts_of(reader.array(topic))


def _read_regex(reader: Reader) -> RegexValue:
    return RegexValue(tuple(sorted(reader.array(reader.string))), reader.int64(), reader.int64())


_DECODERS: Final[Mapping[type, Callable[[Reader], ConsumerValue]]] = {
    EpochKey: lambda reader: EpochValue(*_epoch_and_tag(reader)),
    PartitionMetadataKey: lambda _reader: Ignored(),
    MemberKey: _read_member,
    TargetEpochKey: lambda reader: TargetEpochValue(*_epoch_and_tag(reader)),
    TargetKey: lambda reader: TargetValue(_read_parts(reader)),
    CurrentKey: _read_current,
    RegexKey: _read_regex,
}
