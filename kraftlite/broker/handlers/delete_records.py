"""DeleteRecords: forget the oldest records of partitions. Source: LG-40; KIP-107."""

from __future__ import annotations

from collections.abc import Mapping

from kraftlite.broker.handlers.context import BrokerContext
from kraftlite.broker.metadata_cache import INTERNAL_TOPICS
from kraftlite.model.errors import ErrorCode
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.replication.api import DeleteRecordsResult


async def delete_records(
    ctx: BrokerContext, offsets: Mapping[TopicPartition, int], *, timeout_ms: int
) -> dict[TopicPartition, DeleteRecordsResult]:
    """Delete the records below each offset (-1: below the high watermark). Answers when the live replicas have, or in time.

    UNKNOWN_TOPIC_OR_PARTITION where the metadata knows none, INVALID_TOPIC_EXCEPTION for the broker's own topics; otherwise
    the verdict of the replicas.
    """
    results: dict[TopicPartition, DeleteRecordsResult] = {}
    wanted: dict[TopicPartition, int] = {}
    async for tp, offset in ctx.turns.each(offsets.items()):
        if tp.topic in INTERNAL_TOPICS:
            message = f"Cannot delete records of internal topic {tp.topic}"
            results[tp] = DeleteRecordsResult(tp=tp, error=ErrorCode.INVALID_TOPIC_EXCEPTION, message=message)
        elif ctx.metadata.partition(tp.topic, tp.partition) is None:
            message = f"there is no partition {tp}"
            results[tp] = DeleteRecordsResult(tp=tp, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message=message)
        else:
            wanted[tp] = offset
    if wanted:
        results.update((result.tp, result) for result in await ctx.replicas.delete_records(wanted, timeout_ms))
    return results
