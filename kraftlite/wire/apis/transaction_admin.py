"""WriteTxnMarkers, DescribeTransactions and ListTransactions on the wire. Source: TP-26, TA-01, TA-02; KIP-664, KIP-1152."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kraftlite.broker.handlers.transactions import describe_transaction, list_transactions, write_markers
from kraftlite.coordinator.transactions.api import TransactionDescription
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.replication.api import MarkerEntry
from kraftlite.wire.apis.call import Call, cold


async def _write_markers(call: Call, request: Any) -> Mapping[str, object]:
    """Write markers; the results of all markers of one producer are together, as in Kafka."""
    markers: list[MarkerEntry] = []
    async for one in call.ctx.turns.each(request.markers):
        async for topic in call.ctx.turns.each(one.topics):
            indexes = call.ctx.turns.each(topic.partition_indexes)
            markers += [_marker(one, TopicPartition(topic.name, index)) async for index in indexes]
    errors = await write_markers(call.ctx, markers)
    found: dict[int, dict[str, dict[int, ErrorCode]]] = {int(one.producer_id): {} for one in request.markers}
    async for marker, error in call.ctx.turns.each(list(zip(markers, errors, strict=True))):
        found[marker.producer_id].setdefault(marker.tp.topic, {})[marker.tp.partition] = error
    return {"markers": [{"producer_id": producer_id, "topics": _topics(topics)} for producer_id, topics in found.items()]}


def _marker(one: Any, tp: TopicPartition) -> MarkerEntry:
    return MarkerEntry(
        producer_id=one.producer_id,
        producer_epoch=one.producer_epoch,
        coordinator_epoch=one.coordinator_epoch,
        commit=one.transaction_result,
        version=getattr(one, "transaction_version", 0),
        tp=tp,
    )


def _topics(topics: Mapping[str, Mapping[int, ErrorCode]]) -> list[dict[str, object]]:
    return [
        {"name": name, "partitions": [{"partition_index": index, "error_code": error} for index, error in errors.items()]}
        for name, errors in topics.items()
    ]


async def _describe(call: Call, request: Any) -> Mapping[str, object]:
    names = dict.fromkeys(request.transactional_ids)  # an id that is named again would be told again, with all its partitions
    found = [_description(call, name) async for name in call.ctx.turns.each(names)]
    return {"throttle_time": 0, "transaction_states": found}


def _description(call: Call, transactional_id: str) -> dict[str, object]:
    try:
        found = describe_transaction(call.ctx, transactional_id)
    except ApiError as error:
        return undescribed(transactional_id, error.code)
    return {
        "error_code": ErrorCode.NONE,
        "transactional_id": transactional_id,
        "transaction_state": found.state.title,
        "transaction_timeout": found.timeout_ms,
        "transaction_start_time": found.start_ms,
        "producer_id": found.producer.producer_id,
        "producer_epoch": found.producer.producer_epoch,
        "topics": _partitions(found),
    }


def undescribed(transactional_id: str, error: ErrorCode) -> dict[str, object]:
    """The answer of DescribeTransactions for an id that is refused."""
    return {
        "error_code": error,
        "transactional_id": transactional_id,
        "transaction_state": "",
        "transaction_timeout": 0,
        "transaction_start_time": 0,
        "producer_id": 0,
        "producer_epoch": 0,
        "topics": [],
    }


def _partitions(found: TransactionDescription) -> list[dict[str, object]]:
    topics: dict[str, list[int]] = {}
    for tp in sorted(found.partitions):
        topics.setdefault(tp.topic, []).append(tp.partition)
    return [{"topic": topic, "partitions": partitions} for topic, partitions in topics.items()]


async def _list(call: Call, request: Any) -> Mapping[str, object]:
    try:
        found = await list_transactions(
            call.ctx,
            states=request.state_filters,
            producer_ids=request.producer_id_filters,
            min_duration_ms=getattr(request, "duration_filter", -1),
            pattern=getattr(request, "transactional_id_pattern", None),
        )
    except ApiError as error:
        return {"throttle_time": 0, "error_code": error.code, "unknown_state_filters": [], "transaction_states": []}
    states = [
        {"transactional_id": one.transactional_id, "producer_id": one.producer_id, "transaction_state": one.state.title}
        async for one in call.ctx.turns.each(found.transactions)
    ]
    return {
        "throttle_time": 0,
        "error_code": ErrorCode.NONE,
        "unknown_state_filters": list(found.unknown_states),
        "transaction_states": states,
    }


WRITE_TXN_MARKERS = cold(27, "WriteTxnMarkers", versions=(1, 2), flexible_from=1, adapt=_write_markers, waits=True)
DESCRIBE_TRANSACTIONS = cold(65, "DescribeTransactions", versions=(0, 0), flexible_from=0, adapt=_describe)
LIST_TRANSACTIONS = cold(66, "ListTransactions", versions=(0, 2), flexible_from=0, adapt=_list)
