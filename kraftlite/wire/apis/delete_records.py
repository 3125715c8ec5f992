"""DeleteRecords on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kraftlite.broker.handlers.delete_records import delete_records
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.protocol.primitives import milliseconds
from kraftlite.wire.apis.call import Call, cold


async def _delete(call: Call, request: Any) -> Mapping[str, object]:
    offsets: dict[TopicPartition, int] = {}
    async for topic in call.ctx.turns.each(request.topics):
        async for partition in call.ctx.turns.each(topic.partitions):
            offsets[TopicPartition(topic.name, partition.partition_index)] = partition.offset
    found = await delete_records(call.ctx, offsets, timeout_ms=milliseconds(request.timeout))
    topics: dict[str, list[dict[str, object]]] = {}
    async for tp, result in call.ctx.turns.each(found.items()):
        topics.setdefault(tp.topic, []).append(
            {"partition_index": tp.partition, "low_watermark": result.low_watermark, "error_code": result.error}
        )
    return {"throttle_time": 0, "topics": [{"name": name, "partitions": topics[name]} for name in topics]}


DELETE_RECORDS = cold(21, "DeleteRecords", versions=(0, 2), flexible_from=2, adapt=_delete)
