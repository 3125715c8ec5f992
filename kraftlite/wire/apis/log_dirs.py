"""DescribeLogDirs and AlterReplicaLogDirs on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kraftlite.broker.handlers.log_dirs import LogDirDescription, alter_replica_log_dir, describe_log_dirs
from kraftlite.model.errors import ErrorCode
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.wire.apis.call import Call, cold


async def _describe(call: Call, request: Any) -> Mapping[str, object]:
    wanted = None
    if request.topics is not None:
        wanted = set()
        async for topic in call.ctx.turns.each(request.topics):
            async for index in call.ctx.turns.each(topic.partitions):
                wanted.add(TopicPartition(topic.topic, index))
    return {
        "throttle_time": 0,
        "error_code": ErrorCode.NONE,
        "results": [await _directory(call, found) for found in await describe_log_dirs(call.ctx, wanted)],
    }


async def _directory(call: Call, found: LogDirDescription) -> dict[str, object]:
    topics: dict[str, list[dict[str, object]]] = {}
    async for replica in call.ctx.turns.each(found.replicas):
        topics.setdefault(replica.tp.topic, []).append(
            {
                "partition_index": replica.tp.partition,
                "partition_size": replica.size_bytes,
                "offset_lag": replica.offset_lag,
                "is_future_key": replica.is_copy,
            }
        )
    return {
        "error_code": found.error,
        "log_dir": found.path,
        "topics": [{"name": name, "partitions": partitions} for name, partitions in topics.items()],
        "total_bytes": found.total_bytes,
        "usable_bytes": found.usable_bytes,
        "is_cordoned": found.is_cordoned,
    }


async def _alter(call: Call, request: Any) -> Mapping[str, object]:
    """A replica that is named for several directories goes into the last, as in Kafka."""
    wanted: dict[TopicPartition, str] = {}
    async for directory in call.ctx.turns.each(request.dirs):
        async for topic in call.ctx.turns.each(directory.topics):
            async for index in call.ctx.turns.each(topic.partitions):
                wanted[TopicPartition(topic.name, index)] = directory.path
    results: dict[str, list[dict[str, object]]] = {}
    async for tp in call.ctx.turns.each(tuple(wanted)):
        code = alter_replica_log_dir(call.ctx, tp, wanted[tp])
        results.setdefault(tp.topic, []).append({"partition_index": tp.partition, "error_code": code})
    return {
        "throttle_time": 0,
        "results": [{"topic_name": name, "partitions": partitions} for name, partitions in results.items()],
    }


ALTER_REPLICA_LOG_DIRS = cold(34, "AlterReplicaLogDirs", versions=(1, 2), flexible_from=2, adapt=_alter)
DESCRIBE_LOG_DIRS = cold(35, "DescribeLogDirs", versions=(1, 5), flexible_from=2, adapt=_describe)
