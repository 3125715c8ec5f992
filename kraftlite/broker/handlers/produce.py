"""Produce: what is refused before the log is asked, and the answers put back in the order of the request.

Source: CP-16, CP-17, RP-01, RP-10; KIP-98 (transactional checks), KIP-110 (zstd from v7 on).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple
from uuid import UUID

from kraftlite.broker.handlers.context import BrokerContext
from kraftlite.broker.metadata_cache import INTERNAL_TOPICS
from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import ZERO_UUID
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.replication.api import LeaderHint, ProduceEntry, ProduceResult

ADMIN_CLIENT_ID: Final = "__admin_client"
"""Kafka's own tools may write to internal topics; they say so by this client id."""

_MIN_BATCH_BYTES: Final = 61
_LENGTH: Final = struct.Struct(">i")
_LOG_OVERHEAD: Final = 12
"""Offset and length, which the length leaves out."""
_MAGIC_AT: Final = 16
_ATTRIBUTES_LOW_AT: Final = 22
_CODEC_MASK: Final = 0x07
_ZSTD: Final = 4
_TRANSACTIONAL: Final = 0x10


class ProduceItem(NamedTuple):
    """One partition of a request: by `name`, or by `topic_id` when `name` is None. `records`: exactly one batch is expected."""

    name: str | None
    topic_id: UUID | None
    partition: int
    records: memoryview | None


class ProduceCall(NamedTuple):
    """A request. `zstd_allowed`: its version may carry zstd."""

    acks: int
    timeout_ms: int
    transactional_id: str | None
    client_id: str | None
    zstd_allowed: bool
    items: Sequence[ProduceItem]


def produce(ctx: BrokerContext, call: ProduceCall, on_done: Callable[[list[ProduceResult]], None]) -> None:
    """Append and call `on_done` once, with a result per item in the order of the items: before returning unless the entries wait
    for their followers. No `records` is looked at after the return."""
    results: list[ProduceResult | None] = []
    entries: list[ProduceEntry] = []
    for item in call.items:
        checked = _check(ctx, call, item)
        if isinstance(checked, ProduceResult):
            results.append(checked)
        else:
            results.append(None)
            entries.append(checked)
    if len(entries) == len(results):
        if entries:
            ctx.replicas.append(
                entries,
                acks=call.acks,
                timeout_ms=call.timeout_ms,
                on_done=lambda done: on_done([_with_hint(ctx, result) for result in done] if _failed(done) else done),
            )
        else:
            on_done([])
        return

    def merge(done: list[ProduceResult]) -> None:
        appended = iter(done)
        on_done([_with_hint(ctx, next(appended)) if found is None else found for found in results])

    if entries:
        ctx.replicas.append(entries, acks=call.acks, timeout_ms=call.timeout_ms, on_done=merge)
    else:
        merge([])


def _failed(results: list[ProduceResult]) -> bool:
    for result in results:  # noqa: SIM110 - a generator would cost more than the check
        if result.error is not ErrorCode.NONE:
            return True
    return False


def _check(ctx: BrokerContext, call: ProduceCall, item: ProduceItem) -> ProduceEntry | ProduceResult:
    name, topic_id, partition, records = item
    if name is None:
        topic = ctx.metadata.topic_by_id(topic_id or ZERO_UUID)
        tp = TopicPartition("" if topic is None else topic.name, partition)
        if topic is None:
            return _refused(tp, ErrorCode.UNKNOWN_TOPIC_ID)
    else:
        topic = ctx.metadata.topic(name)
        tp = TopicPartition(name, partition)
    if topic is None or partition not in topic.partitions:
        return _refused(tp, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if tp.topic in INTERNAL_TOPICS and call.client_id != ADMIN_CLIENT_ID:
        return _refused(tp, ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {tp.topic}")
    if call.transactional_id is not None:
        return _refused(tp, ErrorCode.INVALID_TXN_STATE, f"no transaction of {call.transactional_id} is open here")
    if records is None or len(records) < _MIN_BATCH_BYTES or _LENGTH.unpack_from(records, 8)[0] + _LOG_OVERHEAD > len(records):
        return _refused(tp, ErrorCode.INVALID_RECORD, "a produce request must have exactly one record batch per partition")
    if records[_MAGIC_AT] != 2:
        return _refused(
            tp,
            ErrorCode.INVALID_RECORD if records[_MAGIC_AT] < 2 else ErrorCode.CORRUPT_MESSAGE,
            f"magic {records[_MAGIC_AT]}: only record batches with magic 2 are accepted",
        )
    attributes = records[_ATTRIBUTES_LOW_AT]
    if attributes & _TRANSACTIONAL:
        return _refused(tp, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactional records need a transactional id")
    if attributes & _CODEC_MASK == _ZSTD and not call.zstd_allowed:
        return _refused(tp, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce v7 or later")
    return ProduceEntry(tp=tp, topic_id=topic.topic_id, records=records)


def _refused(tp: TopicPartition, error: ErrorCode, message: str | None = None) -> ProduceResult:
    return ProduceResult(tp=tp, error=error, message=message)


def _with_hint(ctx: BrokerContext, result: ProduceResult) -> ProduceResult:
    """A client that came to the wrong broker learns who leads; the metadata image knows when the partition is not hosted here."""
    if result.error is not ErrorCode.NOT_LEADER_OR_FOLLOWER or result.leader is not None:
        return result
    found = ctx.metadata.leader_of(*result.tp)
    if found is None:
        return result
    return replace(result, leader=LeaderHint(leader_id=found[0], leader_epoch=found[1]))
