"""AddPartitionsToTxn and EndTxn by hand: what every transaction asks. Cross-checked byte for byte with kio in tests/unit/wire.

A request has the fields that kio's has, and a response is made of the values that kio's is made of, so that the APIs need not
know which of both has read and writes their messages. Source: docs/PERFORMANCE.md, "Transactions"; KIP-98.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from kraftlite.protocol.primitives import (
    INT32,
    NO_TAGS,
    array_length,
    guarded,
    read_count,
    read_string,
    skip_tags,
    string,
)

FLEXIBLE_FROM: Final = 3
ADD_PARTITIONS_UP_TO: Final = 3
"""The last version of AddPartitionsToTxn that clients send: later ones are for several transactions, and come from brokers."""
END_TXN_UP_TO: Final = 5
END_TXN_PRODUCER_FROM: Final = 5

_PRODUCER: Final = struct.Struct(">qh")
_END: Final = struct.Struct(">qhB")
_ENDED: Final = struct.Struct(">ih")
_ENDED_WITH: Final = struct.Struct(">ihqh")
_RESULT: Final = struct.Struct(">ih")


class AddedTopic(NamedTuple):
    """A topic, and the partitions of it that are added."""

    name: str
    partitions: Sequence[int]


class AddPartitionsRequest(NamedTuple):
    """A request of a client, as it is on the wire; nothing about it is checked but its form."""

    v3_and_below_transactional_id: str
    v3_and_below_producer_id: int
    v3_and_below_producer_epoch: int
    v3_and_below_topics: Sequence[AddedTopic]


class EndTxnRequest(NamedTuple):
    """A request as it is on the wire; nothing about it is checked but its form."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool


@guarded
def parse_add_partitions(view: memoryview, pos: int, version: int) -> AddPartitionsRequest:
    """The body of a request, v0 to v3, which begins at `pos`."""
    flexible = version >= FLEXIBLE_FROM
    transactional_id, pos = read_string(view, pos, flexible)
    producer_id, producer_epoch = _PRODUCER.unpack_from(view, pos)
    count, pos = read_count(view, pos + _PRODUCER.size, flexible)
    topics = []
    for _ in range(count):
        name, pos = read_string(view, pos, flexible)
        partitions, pos = read_count(view, pos, flexible)
        topics.append(AddedTopic(name, struct.unpack_from(f">{partitions}i", view, pos)))
        pos += 4 * partitions
        if flexible:
            pos = skip_tags(view, pos)
    if flexible:
        skip_tags(view, pos)
    return AddPartitionsRequest(transactional_id, producer_id, producer_epoch, topics)


def encode_add_partitions(version: int, values: Mapping[str, Any]) -> bytes:
    """The body of a response, v0 to v3."""
    flexible = version >= FLEXIBLE_FROM
    end = NO_TAGS if flexible else b""
    topics = values["results_by_topic_v3_and_below"]
    parts = [INT32.pack(values["throttle_time"]), array_length(len(topics), flexible)]
    for topic in topics:
        results = topic["results_by_partition"]
        parts += (string(topic["name"], flexible), array_length(len(results), flexible))
        for result in results:
            parts += (_RESULT.pack(result["partition_index"], result["partition_error_code"]), end)
        parts.append(end)
    parts.append(end)
    return b"".join(parts)


@guarded
def parse_end_txn(view: memoryview, pos: int, version: int) -> EndTxnRequest:
    """The body of a request, which begins at `pos`."""
    flexible = version >= FLEXIBLE_FROM
    transactional_id, pos = read_string(view, pos, flexible)
    producer_id, producer_epoch, committed = _END.unpack_from(view, pos)
    if flexible:
        skip_tags(view, pos + _END.size)
    return EndTxnRequest(transactional_id, producer_id, producer_epoch, committed != 0)


def encode_end_txn(version: int, values: Mapping[str, Any]) -> bytes:
    """The body of a response."""
    end = NO_TAGS if version >= FLEXIBLE_FROM else b""
    throttle_ms, error = values["throttle_time"], values["error_code"]
    if version < END_TXN_PRODUCER_FROM:
        return _ENDED.pack(throttle_ms, error) + end
    return _ENDED_WITH.pack(throttle_ms, error, values["producer_id"], values["producer_epoch"]) + end
