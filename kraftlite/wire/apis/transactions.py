"""InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn and TxnOffsetCommit on the wire.

The translation of errors for older versions is here alone, and so is what a version says of the client: which
`transaction.version` it follows (KIP-890). Source: TX-18, TX-33, TX-40, TG-03.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kraftlite.broker.handlers.producer_ids import init_producer_id
from kraftlite.broker.handlers.transaction_offsets import TransactionOfOffsets, commit_in_transaction
from kraftlite.broker.handlers.transactions import add_offsets, add_partitions, end_transaction
from kraftlite.coordinator.api import CommitRequest, OffsetToCommit
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.producer import Producer
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.protocol.primitives import milliseconds
from kraftlite.replication.enrol_driver import Identity
from kraftlite.wire.apis.call import Call, HandCodec, cold
from kraftlite.wire.transactions_codec import (
    ADD_PARTITIONS_UP_TO,
    END_TXN_UP_TO,
    encode_add_partitions,
    encode_end_txn,
    parse_add_partitions,
    parse_end_txn,
)

INIT_KNOWS_FENCED_FROM: Final = 4
KNOWS_FENCED_FROM: Final = 2
"""The first version of AddPartitionsToTxn, AddOffsetsToTxn and EndTxn whose clients know PRODUCER_FENCED."""
BATCHED_FROM: Final = 4
"""AddPartitionsToTxn is for several transactions, and comes from brokers, from this version on; its transactions are of
transaction.version 2."""
END_GIVES_EPOCH_FROM: Final = 5
"""EndTxn is of transaction.version 2 from this version on: an epoch for each transaction."""
OFFSETS_ADD_FROM: Final = 5
"""TxnOffsetCommit adds the partition of the group by itself from this version on: transaction.version 2."""
OFFSETS_KNOW_ABORTABLE_FROM: Final = 4
OFFSETS_KNOW_LOADING_FROM: Final = 2
FEW: Final = 50
"""The partitions that are worked on before others are let in: some 50 microseconds."""


def _told(error: ErrorCode, version: int, knows_from: int) -> ErrorCode:
    """Older clients know a fenced producer by its epoch alone."""
    return ErrorCode.INVALID_PRODUCER_EPOCH if error is ErrorCode.PRODUCER_FENCED and version < knows_from else error


# --- InitProducerId ------------------------------------------------------------------------------------------------------


async def _init_producer_id(call: Call, request: Any) -> Mapping[str, object]:
    try:
        found = await init_producer_id(
            call.ctx,
            transactional_id=request.transactional_id,
            transaction_timeout_ms=milliseconds(request.transaction_timeout),
            producer_id=getattr(request, "producer_id", -1),
            producer_epoch=getattr(request, "producer_epoch", -1),
        )
    except ApiError as error:
        told = _told(error.code, call.version, INIT_KNOWS_FENCED_FROM)
        return {"throttle_time": 0, "error_code": told, "producer_id": -1, "producer_epoch": -1}
    return {
        "throttle_time": 0,
        "error_code": ErrorCode.NONE,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
    }


# --- AddPartitionsToTxn, AddOffsetsToTxn, EndTxn --------------------------------------------------------------------------


async def _add_partitions(call: Call, request: Any) -> Mapping[str, object]:
    if call.version < BATCHED_FROM:
        producer = Producer(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
        partitions = await _partitions(call, request.v3_and_below_topics)
        transactional_id = request.v3_and_below_transactional_id
        found = await add_partitions(call.ctx, transactional_id, producer, partitions, version=0, from_client=True)
        return {"throttle_time": 0, "results_by_topic_v3_and_below": await _results(call, partitions, found)}
    results = []
    async for one in call.ctx.turns.each(request.transactions):
        partitions = await _partitions(call, one.topics)
        found = await add_partitions(
            call.ctx,
            one.transactional_id,
            Producer(one.producer_id, one.producer_epoch),
            partitions,
            version=2,
            from_client=False,
            verify_only=one.verify_only,
        )
        told = await _results(call, list(dict.fromkeys(partitions)) if one.verify_only else partitions, found)
        results.append({"transactional_id": one.transactional_id, "topic_results": told})
    return {"throttle_time": 0, "error_code": ErrorCode.NONE, "results_by_transaction": results}


async def _partitions(call: Call, topics: Sequence[Any]) -> list[TopicPartition]:
    if len(topics) == 1 and len(topics[0].partitions) <= FEW:
        return [TopicPartition(topics[0].name, index) for index in topics[0].partitions]
    found: list[TopicPartition] = []
    async for topic in call.ctx.turns.each(topics):
        found += [TopicPartition(topic.name, index) async for index in call.ctx.turns.each(topic.partitions)]
    return found


async def _results(
    call: Call, asked: Sequence[TopicPartition], found: Mapping[TopicPartition, ErrorCode]
) -> list[dict[str, object]]:
    """By topic, and as often as a partition is asked for."""
    topics: dict[str, list[dict[str, object]]] = {}
    for place, tp in enumerate(asked):
        if place % FEW == FEW - 1:
            await call.ctx.turns.next()
        told = _told(found[tp], call.version, KNOWS_FENCED_FROM)
        topics.setdefault(tp.topic, []).append({"partition_index": tp.partition, "partition_error_code": told})
    return [{"name": name, "results_by_partition": partitions} for name, partitions in topics.items()]


async def _add_offsets(call: Call, request: Any) -> Mapping[str, object]:
    error = ErrorCode.NONE
    try:
        producer = Producer(request.producer_id, request.producer_epoch)
        await add_offsets(call.ctx, request.transactional_id, producer, request.group_id)
    except ApiError as refused:
        error = _told(refused.code, call.version, KNOWS_FENCED_FROM)
    return {"throttle_time": 0, "error_code": error}


async def _end_txn(call: Call, request: Any) -> Mapping[str, object]:
    version = 2 if call.version >= END_GIVES_EPOCH_FROM else 0
    producer = Producer(request.producer_id, request.producer_epoch)
    error = ErrorCode.NONE
    try:
        producer = await end_transaction(call.ctx, request.transactional_id, producer, commit=request.committed, version=version)
    except ApiError as refused:
        error, producer = _told(refused.code, call.version, KNOWS_FENCED_FROM), Producer(-1, -1)
    return {
        "throttle_time": 0,
        "error_code": error,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
    }


# --- TxnOffsetCommit ------------------------------------------------------------------------------------------------------


async def _txn_offset_commit(call: Call, request: Any) -> Mapping[str, object]:
    base = CommitRequest(
        group_id=request.group_id,
        generation=getattr(request, "generation_id", -1),
        member_id=getattr(request, "member_id", ""),
        instance_id=getattr(request, "group_instance_id", None),
        offsets=(),
        producer=Producer(request.producer_id, request.producer_epoch),
    )
    transaction = TransactionOfOffsets(
        Identity(request.transactional_id, request.producer_id, request.producer_epoch),
        version=2 if call.version >= OFFSETS_ADD_FROM else 0,
        knows_abortable=call.version >= OFFSETS_KNOW_ABORTABLE_FROM,
    )
    offsets: list[OffsetToCommit] = []
    async for topic in call.ctx.turns.each(request.topics):
        offsets += [_offset(topic.name, partition) async for partition in call.ctx.turns.each(topic.partitions)]
    errors = iter(await commit_in_transaction(call.ctx, base, transaction, offsets))
    topics = []
    async for topic in call.ctx.turns.each(request.topics):
        partitions = [
            {"partition_index": partition.partition_index, "error_code": _known(next(errors), call.version)}
            for partition in topic.partitions
        ]
        topics.append({"name": topic.name, "partitions": partitions})
    return {"throttle_time": 0, "topics": topics}


def _offset(name: str, partition: Any) -> OffsetToCommit:
    leader_epoch = getattr(partition, "committed_leader_epoch", -1)
    return OffsetToCommit(
        TopicPartition(name, partition.partition_index),
        partition.committed_offset,
        None if leader_epoch < 0 else leader_epoch,
        partition.committed_metadata or "",
    )


def _known(error: ErrorCode, version: int) -> ErrorCode:
    """The first clients of transactions fail for good at a group that is being loaded (KAFKA-7296)."""
    if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < OFFSETS_KNOW_LOADING_FROM:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return error


_ADD_BY_HAND: Final = HandCodec(ADD_PARTITIONS_UP_TO, parse_add_partitions, encode_add_partitions)
_END_BY_HAND: Final = HandCodec(END_TXN_UP_TO, parse_end_txn, encode_end_txn)

INIT_PRODUCER_ID = cold(22, "InitProducerId", versions=(0, 5), flexible_from=2, adapt=_init_producer_id)
ADD_PARTITIONS_TO_TXN = cold(
    24, "AddPartitionsToTxn", versions=(0, 5), flexible_from=3, adapt=_add_partitions, waits=True, by_hand=_ADD_BY_HAND
)
ADD_OFFSETS_TO_TXN = cold(25, "AddOffsetsToTxn", versions=(0, 4), flexible_from=3, adapt=_add_offsets)
END_TXN = cold(26, "EndTxn", versions=(0, 5), flexible_from=3, adapt=_end_txn, by_hand=_END_BY_HAND)
TXN_OFFSET_COMMIT = cold(28, "TxnOffsetCommit", versions=(0, 5), flexible_from=3, adapt=_txn_offset_commit)
