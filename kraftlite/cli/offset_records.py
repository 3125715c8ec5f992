"""The records of `__consumer_offsets` as kafka-dump-log shows them with `--offsets-decoder`: offsets, and classic groups.

Records of groups of the newer protocols are named by their type alone. kafka-console-consumer shows the same records by
two formatters. Source: Kafka's OffsetsMessageParser, OffsetsMessageFormatter and GroupMetadataMessageFormatter; TO-24.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any, Final

from kraftlite.coordinator.records import (
    FLEXIBLE_VERSION,
    OFFSET_VALUE_WITH_EXPIRY,
    GroupKey,
    MemberValue,
    OffsetKey,
    decode_group,
    decode_key,
    decode_offset,
    readable,
)
from kraftlite.model.errors import ApiError
from kraftlite.model.ids import uuid_to_str
from kraftlite.protocol.primitives import INT16
from kraftlite.protocol.reader import Reader

DELETED: Final = "<DELETE>"
_CONSUMER: Final = "consumer"


def dumped_offset(key: bytes | None, value: bytes | None, offset: int) -> tuple[dict[str, Any], str]:
    """The content of a record: for JSON, and as text. One that does not add up is passed over, and said."""
    try:
        return _dumped(key, value, offset)
    except ApiError as error:
        skipped = f"Error at offset {offset}, skipping. {error.message}"
        return {"key": None, "skipped": skipped}, f" key: {skipped}"


def formatted_offset(key: bytes | None, value: bytes | None) -> bytes:
    """A committed offset as Kafka's formatter writes it; nothing for any other record. ApiError when it does not add up."""
    found = None if key is None else decode_key(key)
    if key is None or not isinstance(found, OffsetKey):
        return b""
    data = {"group": found.group_id, "topic": found.tp.topic, "partition": found.tp.partition}
    return _formatted(key, data, value, _offset)


def formatted_group(key: bytes | None, value: bytes | None) -> bytes:
    """A classic group, like `formatted_offset`. What its members said to each other are bytes, in base64."""
    found = None if key is None else decode_key(key)
    if key is None or not isinstance(found, GroupKey):
        return b""
    return _formatted(key, {"group": found.group_id}, value, lambda raw: _group(raw, read=False))


def _formatted(key: bytes, data: dict[str, Any], value: bytes | None, read: Callable[[bytes], dict[str, Any]]) -> bytes:
    content = None if value is None else read(value)  # before its version is looked at: it may be shorter than that
    shown = None if value is None else {"version": INT16.unpack_from(value)[0], "data": content}
    return _compact({"key": {"type": INT16.unpack_from(key)[0], "data": data}, "value": shown}).encode()


def _dumped(key: bytes | None, value: bytes | None, offset: int) -> tuple[dict[str, Any], str]:
    found = None if key is None else decode_key(key)
    if key is None or not isinstance(found, OffsetKey | GroupKey):
        kind = "a record without a key" if key is None else f"record type {INT16.unpack_from(key)[0]}"
        skipped = f"No decoder for {kind} at offset {offset}, skipping."
        return {"key": None, "skipped": skipped}, f" key: {skipped}"
    data: dict[str, Any] = {"group": found.group_id}
    if isinstance(found, OffsetKey):
        data |= {"topic": found.tp.topic, "partition": found.tp.partition}
    shown_key = {"type": str(INT16.unpack_from(key)[0]), "data": data}
    if value is None:
        return {"key": shown_key, "payload": None}, f" key: {_compact(shown_key)} payload: {DELETED}"
    content = _offset(value) if isinstance(found, OffsetKey) else _group(value)
    shown = {"version": str(INT16.unpack_from(value)[0]), "data": content}
    return {"key": shown_key, "payload": shown}, f" key: {_compact(shown_key)} payload: {_compact(shown)}"


def _offset(raw: bytes) -> dict[str, Any]:
    committed = decode_offset(raw)
    (version,) = INT16.unpack_from(raw)
    found: dict[str, Any] = {"offset": committed.offset}
    if version >= 3:
        found["leaderEpoch"] = -1 if committed.leader_epoch is None else committed.leader_epoch
    found |= {"metadata": committed.metadata, "commitTimestamp": committed.commit_ms}
    if version == OFFSET_VALUE_WITH_EXPIRY:
        found["expireTimestamp"] = -1 if committed.expire_ms is None else committed.expire_ms
    topic_id = _topic_id(raw) if version >= FLEXIBLE_VERSION else None
    return found if topic_id is None else {**found, "topicId": topic_id}


@readable
def _topic_id(raw: bytes) -> str | None:
    """Read the topic id, a tagged field, of an offset that Apache Kafka has committed since 4.2 (KIP-848); None: it has none."""
    reader = Reader(raw, flexible=True)
    for field in (reader.int16, reader.int64, reader.int32, reader.string, reader.int64):
        field()
    data = reader.tagged().get(0)
    found = None if data is None else Reader(data, flexible=True).uuid()
    return None if found is None or not found.int else uuid_to_str(found)


def _group(raw: bytes, *, read: bool = True) -> dict[str, Any]:
    """`read`: tell what consumers said to each other, too."""
    group = decode_group(raw)
    (version,) = INT16.unpack_from(raw)
    found: dict[str, Any] = {
        "protocolType": group.protocol_type,
        "generation": group.generation,
        "protocol": group.protocol_name,
        "leader": group.leader_id,
    }
    if version >= 2:
        found["currentStateTimestamp"] = -1 if group.state_since_ms is None else group.state_since_ms
    return {**found, "members": [_member(member, version, read and group.protocol_type == _CONSUMER) for member in group.members]}


def _member(member: MemberValue, version: int, known: bool) -> dict[str, Any]:
    found: dict[str, Any] = {"memberId": member.member_id}
    if version >= 3:
        found["groupInstanceId"] = member.instance_id
    found |= {"clientId": member.client_id, "clientHost": member.client_host}
    if version >= 1:
        found["rebalanceTimeout"] = member.rebalance_timeout_ms
    return {
        **found,
        "sessionTimeout": member.session_timeout_ms,
        "subscription": _protocol(member.subscription, _subscription if known else None),
        "assignment": _protocol(member.assignment, _assignment if known else None),
    }


def _protocol(raw: bytes, read: Callable[[bytes], dict[str, Any]] | None) -> Any:
    """Read what clients said to each other, when it is what consumers say; else return the bytes in base64."""
    try:
        if read is not None and raw:
            return read(raw)
    except ApiError:
        pass  # a client may say what it will, and of that the bytes are the truth
    return _base64(raw)


def _base64(raw: bytes | None) -> str | None:
    return None if raw is None else base64.b64encode(raw).decode()


@readable
def _subscription(raw: bytes) -> dict[str, Any]:
    reader = Reader(raw, flexible=False)
    version = reader.int16()
    topics = list(reader.array(reader.string))
    found: dict[str, Any] = {"topics": topics, "userData": _base64(reader.nullable_bytes())}
    if version >= 1:
        found["ownedPartitions"] = list(reader.array(lambda: _partitions(reader)))
    if version >= 2:
        found["generationId"] = reader.int32()
    if version >= 3:
        found["rackId"] = reader.nullable_string()
    return found


@readable
def _assignment(raw: bytes) -> dict[str, Any]:
    reader = Reader(raw, flexible=False)
    reader.int16()
    assigned = list(reader.array(lambda: _partitions(reader)))
    return {"assignedPartitions": assigned, "userData": _base64(reader.nullable_bytes())}


def _partitions(reader: Reader) -> dict[str, Any]:
    return {"topic": reader.string(), "partitions": list(reader.array(reader.int32))}


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
