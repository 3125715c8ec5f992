"""The records of `__transaction_state` in Kafka's binary format, so that Kafka's own tools read the topic.

A key is the kind 0 as int16 and the transactional id. A value begins with its version: 0, or 1 in the flexible encoding, which
adds the producer ids before and after the end of the epochs and the client's version. Version 1 is written where
`transaction.version` is 1 or more. Source: Kafka's schemas TransactionLogKey and TransactionLogValue; KIP-890; TX-03, TX-04."""

from __future__ import annotations

from struct import Struct
from typing import Final

from kraftlite.coordinator.records import CoordinatorRecord
from kraftlite.coordinator.transactions.states import (
    LOGGED,
    NO_PARTITIONS,
    NO_PRODUCER_ID,
    Transaction,
    TransactionState,
)
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.limits import MAX_INT32
from kraftlite.model.topic_partition import TopicPartition, by_topic
from kraftlite.protocol import primitives as p
from kraftlite.protocol.errors import ProtocolViolation
from kraftlite.protocol.primitives import INT16, INT32, INT64, NO_TAGS, bounded, tagged
from kraftlite.protocol.reader import Reader

KEY_KIND: Final = 0
FLEXIBLE_VERSION: Final = 1

_PREVIOUS_PRODUCER_ID: Final = 0
_NEXT_PRODUCER_ID: Final = 1
_CLIENT_VERSION: Final = 2


def record_of(transactional_id: str, value: Transaction | None, *, transaction_version: int) -> CoordinatorRecord:
    """The record of a state; None: the tombstone of the id. `transaction_version`: the cluster's."""
    encoded = None if value is None else encode_value(value, transaction_version=transaction_version)
    return CoordinatorRecord(encode_key(transactional_id), encoded)


def encode_key(transactional_id: str) -> bytes:
    return INT16.pack(KEY_KIND) + p.string(transactional_id, False)


def encode_value(value: Transaction, *, transaction_version: int) -> bytes:
    assert value.state in LOGGED, f"{value.state.title} is never written"
    flexible = transaction_version >= 1
    end = NO_TAGS if flexible else b""
    topics = None
    if value.state is not TransactionState.EMPTY:
        grouped = by_topic(sorted(value.partitions))
        topics = [
            p.string(topic, flexible) + p.int32_array([tp.partition for tp in tps], flexible) + end
            for topic, tps in grouped.items()
        ]
    return b"".join(
        (
            INT16.pack(FLEXIBLE_VERSION if flexible else 0),
            INT64.pack(value.producer_id),
            INT16.pack(value.producer_epoch),
            INT32.pack(value.timeout_ms),
            bytes((value.state,)),
            _nullable_array(topics, flexible),
            INT64.pack(value.updated_ms),
            INT64.pack(value.start_ms),
            _tags(value) if flexible else b"",
        )
    )


def _nullable_array(items: list[bytes] | None, flexible: bool) -> bytes:
    if items is None:
        return b"\x00" if flexible else INT32.pack(-1)
    return p.array(items, flexible)


def _tags(value: Transaction) -> bytes:
    """Fields that have their default are left out (KIP-482)."""
    fields = []
    if value.previous_producer_id != NO_PRODUCER_ID:
        fields.append((_PREVIOUS_PRODUCER_ID, INT64.pack(value.previous_producer_id)))
    if value.next_producer_id != NO_PRODUCER_ID:
        fields.append((_NEXT_PRODUCER_ID, INT64.pack(value.next_producer_id)))
    if value.version:
        fields.append((_CLIENT_VERSION, INT16.pack(value.version)))
    return tagged(fields)


# --- reading -------------------------------------------------------------------------------------------------------------


def _corrupt(reason: str) -> ApiError:
    return ApiError(ErrorCode.CORRUPT_MESSAGE, f"a record of __transaction_state: {reason}")


_readable: Final = bounded("record", MAX_INT32, _corrupt)


@_readable
def decode_key(data: bytes) -> str | None:
    """The transactional id; None for a kind of key that is newer than all we know. ApiError(CORRUPT_MESSAGE): it does not add
    up."""
    reader = Reader(data, flexible=False)
    return reader.string() if reader.int16() == KEY_KIND else None


@_readable
def decode_value(data: bytes) -> Transaction | None:
    """A state as it was written; None for a version that is newer than all we know. ApiError(CORRUPT_MESSAGE): it does not add
    up."""
    (version,) = INT16.unpack_from(data)
    if not 0 <= version <= FLEXIBLE_VERSION:
        return None
    flexible = version >= FLEXIBLE_VERSION
    reader = Reader(data, flexible=flexible)
    reader.int16()
    producer_id, epoch, timeout_ms, status = reader.int64(), reader.int16(), reader.int32(), reader.uint8()
    if status not in LOGGED:
        raise ProtocolViolation(f"status {status}: known are {', '.join(str(int(it)) for it in sorted(LOGGED))}")
    partitions = frozenset(tp for topic in reader.nullable_array(lambda: _topic(reader)) or () for tp in topic)
    updated_ms, start_ms = reader.int64(), reader.int64()
    tags = reader.tagged()
    return Transaction(
        producer_id=producer_id,
        producer_epoch=epoch,
        previous_producer_id=_tag(tags, _PREVIOUS_PRODUCER_ID, INT64, NO_PRODUCER_ID),
        next_producer_id=_tag(tags, _NEXT_PRODUCER_ID, INT64, NO_PRODUCER_ID),
        timeout_ms=timeout_ms,
        state=TransactionState(status),
        partitions=partitions or NO_PARTITIONS,
        start_ms=start_ms,
        updated_ms=updated_ms,
        version=_tag(tags, _CLIENT_VERSION, INT16, 0),
    )


def _topic(reader: Reader) -> list[TopicPartition]:
    topic = reader.string()
    found = [TopicPartition(topic, index) for index in reader.array(reader.int32)]
    reader.skip_tags()
    return found


def _tag(tags: dict[int, memoryview], tag: int, layout: Struct, default: int) -> int:
    raw = tags.get(tag)
    if raw is None:
        return default
    (value,) = layout.unpack(raw)
    return int(value)
