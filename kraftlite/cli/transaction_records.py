"""The records of `__transaction_state` as Kafka's tools show them. Source: Kafka's TransactionLogMessageParser and
TransactionLogMessageFormatter; TA-09."""

from __future__ import annotations

import json
from struct import Struct
from typing import Any, Final, NamedTuple

from kraftlite.coordinator.core.placement import TRANSACTION_TOPIC
from kraftlite.coordinator.transactions.records import FLEXIBLE_VERSION, KEY_KIND
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.limits import MAX_INT32
from kraftlite.protocol.primitives import INT16, INT64, bounded
from kraftlite.protocol.reader import Reader

DIRECTORY_PREFIX: Final = f"{TRANSACTION_TOPIC}-"
"""The directory of a partition of the topic begins so."""
DELETED: Final = "<DELETE>"

_PREVIOUS: Final = 0
_NEXT: Final = 1
_CLIENT_VERSION: Final = 2


def _broken(reason: str) -> ApiError:
    return ApiError(ErrorCode.CORRUPT_MESSAGE, f"a record of {TRANSACTION_TOPIC}: {reason}")


_readable: Final = bounded("record", MAX_INT32, _broken)


class Versioned(NamedTuple):
    """A key with its type, or a value with its version; `data` None: of a type or version that is newer than all we know."""

    version: int
    data: dict[str, Any] | None


@_readable
def read_key(raw: bytes) -> Versioned:
    """ApiError(CORRUPT_MESSAGE) when it does not add up."""
    reader = Reader(raw, flexible=False)
    kind = reader.int16()
    return Versioned(kind, {"transactionalId": reader.string()} if kind == KEY_KIND else None)


@_readable
def read_value(raw: bytes) -> Versioned:
    """The fields by the names of Kafka's schema, in its order; states are numbers. ApiError(CORRUPT_MESSAGE) when it does not add
    up."""
    (version,) = INT16.unpack_from(raw)
    if not 0 <= version <= FLEXIBLE_VERSION:
        return Versioned(version, None)
    reader = Reader(raw, flexible=version >= FLEXIBLE_VERSION)
    reader.int16()
    producer_id, epoch, timeout_ms, status = reader.int64(), reader.int16(), reader.int32(), reader.uint8()
    partitions = reader.nullable_array(lambda: _topic(reader))
    updated_ms, start_ms = reader.int64(), reader.int64()
    tags = reader.tagged()

    def tag(name: str, number: int, layout: Struct) -> dict[str, int]:
        return {name: int(layout.unpack(tags[number])[0])} if number in tags else {}

    return Versioned(
        version,
        {
            "producerId": producer_id,
            **tag("previousProducerId", _PREVIOUS, INT64),
            **tag("nextProducerId", _NEXT, INT64),
            "producerEpoch": epoch,
            "transactionTimeoutMs": timeout_ms,
            "transactionStatus": status - 256 if status > 127 else status,
            "transactionPartitions": partitions,
            "transactionLastUpdateTimestampMs": updated_ms,
            "transactionStartTimestampMs": start_ms,
            **tag("clientTransactionVersion", _CLIENT_VERSION, INT16),
        },
    )


def _topic(reader: Reader) -> dict[str, Any]:
    found = {"topic": reader.string(), "partitionIds": list(reader.array(reader.int32))}
    reader.skip_tags()
    return found


# --- kafka-dump-log ------------------------------------------------------------------------------------------------------


def dumped(key: bytes | None, value: bytes | None, offset: int) -> tuple[dict[str, Any], str]:
    """The content of a record: for JSON, and as text in the layout of `--transaction-log-decoder`. ApiError when it
    does not add up."""
    found = Versioned(-1, None) if key is None else read_key(key)
    if found.data is None:
        skipped = f"Unknown record type {found.version} at offset {offset}, skipping."
        return {"key": None, "skipped": skipped}, f" key: {skipped}"
    shown_key = {"type": str(found.version), "data": found.data}
    if value is None:
        return {"key": shown_key, "payload": None}, f" key: {_compact(shown_key)} payload: {DELETED}"
    state = read_value(value)
    shown = {"version": str(state.version), "data": "unknown" if state.data is None else state.data}
    return {"key": shown_key, "payload": shown}, f" key: {_compact(shown_key)} payload: {_compact(shown)}"


# --- kafka-console-consumer ----------------------------------------------------------------------------------------------


def formatted(key: bytes | None, value: bytes | None) -> bytes:
    """A record as Kafka's formatter writes it; nothing for one that says nothing of a transactional id. ApiError when it does not
    add up."""
    found = Versioned(-1, None) if key is None else read_key(key)
    if found.data is None:
        return b""
    state = None if value is None else _numbered("version", read_value(value))
    return _compact({"key": _numbered("type", found), "value": state}).encode()


def _numbered(name: str, found: Versioned) -> dict[str, Any]:
    return {name: found.version, "data": "unknown" if found.data is None else found.data}


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
