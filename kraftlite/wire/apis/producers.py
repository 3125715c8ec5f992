"""DescribeProducers on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kraftlite.broker.handlers.producers import PartitionProducers, describe_producers
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.wire.apis.call import Call, cold


async def _describe(call: Call, request: Any) -> Mapping[str, object]:
    topics = []
    async for topic in call.ctx.turns.each(request.topics):
        partitions = [
            _partition(describe_producers(call.ctx, TopicPartition(topic.name, index)))
            async for index in call.ctx.turns.each(topic.partition_indexes)
        ]
        topics.append({"name": topic.name, "partitions": partitions})
    return {"throttle_time": 0, "topics": topics}


def _partition(found: PartitionProducers) -> dict[str, object]:
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
            for it in found.producers
        ],
    }


DESCRIBE_PRODUCERS = cold(61, "DescribeProducers", versions=(0, 0), flexible_from=0, adapt=_describe)
