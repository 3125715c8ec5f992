"""DescribeProducers on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kraftlite.broker.handlers.producers import PartitionProducers, describe_producers
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.wire.apis.call import Call, cold


async def _describe(call: Call, request: Any) -> Mapping[str, object]:
    """A partition that is named again would be told again, with all its producers: it is told once."""
    named: dict[TopicPartition, None] = {}
    async for topic in call.ctx.turns.each(request.topics):
        async for index in call.ctx.turns.each(topic.partition_indexes):
            named[TopicPartition(topic.name, index)] = None
    topics: dict[str, list[dict[str, object]]] = {topic.name: [] for topic in request.topics}
    async for tp in call.ctx.turns.each(named):
        topics[tp.topic].append(await _partition(call, describe_producers(call.ctx, tp)))
    return {"throttle_time": 0, "topics": [{"name": name, "partitions": found} for name, found in topics.items()]}


async def _partition(call: Call, found: PartitionProducers) -> dict[str, object]:
    return {
        "partition_index": found.partition,
        "error_code": found.error,
        "error_message": found.message,
        "active_producers": [
            {
                "producer_id": it.producer_id,
                "producer_epoch": it.producer_epoch,
                "last_sequence": it.last_sequence,
                "last_timestamp": it.last_timestamp_ms,
                "coordinator_epoch": it.coordinator_epoch,
                "current_txn_start_offset": -1 if it.txn_start_offset is None else it.txn_start_offset,
            }
            async for it in call.ctx.turns.each(found.producers)
        ],
    }


DESCRIBE_PRODUCERS = cold(61, "DescribeProducers", versions=(0, 0), flexible_from=0, adapt=_describe)
