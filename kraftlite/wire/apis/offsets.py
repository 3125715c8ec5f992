"""ListOffsets, OffsetForLeaderEpoch and InitProducerId on the wire."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from kraftlite.broker.handlers.fetch import DEBUG_CONSUMER
from kraftlite.broker.handlers.list_offsets import OffsetQuery, list_offset, offset_for_leader_epoch
from kraftlite.broker.handlers.producer_ids import init_producer_id
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.wire.apis.call import Api, Call, cold
from kraftlite.wire.primitives import milliseconds
from kraftlite.wire.small_codec import (
    LIST_OFFSETS_FLEXIBLE,
    LIST_OFFSETS_MAX,
    LIST_OFFSETS_MIN,
    ListedOffset,
    encode_list_offsets,
    parse_list_offsets,
)


def _epoch(value: int) -> int | None:
    return None if value < 0 else value


def _list_offsets(call: Call) -> None:
    request = parse_list_offsets(call.frame, call.pos, call.version)
    times = Counter((name, partition.partition) for name, partitions in request.topics for partition in partitions)
    topics: list[tuple[str, list[ListedOffset]]] = []
    for name, partitions in request.topics:
        listed: list[ListedOffset] = []
        for partition in partitions:
            tp = TopicPartition(name, partition.partition)
            if request.isolation_level not in (0, 1):
                listed.append(ListedOffset(partition.partition, ErrorCode.UNKNOWN_SERVER_ERROR, -1, -1, -1))
                continue
            found = list_offset(
                call.ctx,
                OffsetQuery(tp, partition.timestamp, _epoch(partition.current_leader_epoch)),
                version=call.version,
                read_committed=request.isolation_level == 1,
                debug=request.replica_id == DEBUG_CONSUMER,
                duplicate=times[name, partition.partition] > 1,
            )
            listed.append(ListedOffset(partition.partition, found.error, found.timestamp, found.offset, found.leader_epoch))
        topics.append((name, listed))
    call.send((encode_list_offsets(call.correlation_id, call.version, topics),))


async def _offset_for_leader_epoch(call: Call, request: Any) -> Mapping[str, Any]:
    topics = []
    for topic in request.topics:
        partitions = []
        for partition in topic.partitions:
            found = offset_for_leader_epoch(
                call.ctx,
                TopicPartition(topic.topic, partition.partition),
                current_leader_epoch=_epoch(partition.current_leader_epoch),
                leader_epoch=partition.leader_epoch,
            )
            partitions.append(
                {
                    "error_code": found.error,
                    "partition": partition.partition,
                    "leader_epoch": found.leader_epoch,
                    "end_offset": found.end_offset,
                }
            )
        topics.append({"topic": topic.topic, "partitions": partitions})
    return {"throttle_time": 0, "topics": topics}


async def _init_producer_id(call: Call, request: Any) -> Mapping[str, Any]:
    try:
        found = await init_producer_id(
            call.ctx,
            transactional_id=request.transactional_id,
            transaction_timeout_ms=milliseconds(request.transaction_timeout),
            producer_id=getattr(request, "producer_id", -1),
            producer_epoch=getattr(request, "producer_epoch", -1),
        )
    except ApiError as error:
        return {"throttle_time": 0, "error_code": error.code, "producer_id": -1, "producer_epoch": -1}
    return {
        "throttle_time": 0,
        "error_code": ErrorCode.NONE,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
    }


LIST_OFFSETS = Api(
    key=2,
    name="ListOffsets",
    min_version=LIST_OFFSETS_MIN,
    max_version=LIST_OFFSETS_MAX,
    flexible_from=LIST_OFFSETS_FLEXIBLE,
    handle=_list_offsets,
)
INIT_PRODUCER_ID = cold(22, "InitProducerId", versions=(0, 5), flexible_from=2, adapt=_init_producer_id)
OFFSET_FOR_LEADER_EPOCH = cold(23, "OffsetForLeaderEpoch", versions=(2, 4), flexible_from=4, adapt=_offset_for_leader_epoch)
