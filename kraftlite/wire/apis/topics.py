"""CreateTopics, DeleteTopics and CreatePartitions on the wire: every version onto one message to the controller."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kraftlite.broker.handlers.admin import create_distinct_partitions, create_distinct_topics, delete_topics
from kraftlite.broker.handlers.forwarding import bounded
from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import ZERO_UUID, NodeId
from kraftlite.model.messages.controller import (
    ConfigPair,
    CreatableTopic,
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    MutationClient,
    ReplicaAssignment,
    TopicSelector,
)
from kraftlite.protocol.primitives import milliseconds
from kraftlite.wire.apis.call import Call, cold


def _nodes(ids: Any) -> tuple[NodeId, ...]:
    return tuple(NodeId(broker_id) for broker_id in bounded(ids))


def _charged(call: Call, *, strict_from: int) -> MutationClient:
    """The client whose quota the change is charged to; from some version on it knows that it may be refused (KIP-599)."""
    return MutationClient(user=call.principal.name, client_id=call.client_id or "", strict=call.version >= strict_from)


async def _create_topics(call: Call, request: Any) -> Mapping[str, object]:
    response = await create_distinct_topics(
        call.ctx,
        CreateTopicsRequest(
            topics=tuple([_creatable(topic) async for topic in call.ctx.turns.each(request.topics)]),
            validate_only=request.validate_only,
            timeout_ms=milliseconds(request.timeout),
            requester=call.on_behalf,
            quota=_charged(call, strict_from=6),
        ),
    )
    call.throttle(response.throttle_ms)
    return {
        "throttle_time": response.throttle_ms,
        "topics": [_created(topic) async for topic in call.ctx.turns.each(response.topics)],
    }


def _creatable(topic: Any) -> CreatableTopic:
    return CreatableTopic(
        name=topic.name,
        num_partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=tuple(
            ReplicaAssignment(partition=one.partition_index, broker_ids=_nodes(one.broker_ids))
            for one in bounded(topic.assignments)
        ),
        configs=tuple(ConfigPair(name=config.name, value=config.value) for config in bounded(topic.configs)),
    )


def _created(topic: CreatableTopicResult) -> dict[str, object]:
    """Return what was created, from the versions on that can say it (CP-59)."""
    return {
        "name": topic.name,
        "topic_id": topic.topic_id or ZERO_UUID,
        "error_code": topic.error,
        "error_message": topic.message if topic.error is not ErrorCode.NONE else None,
        "num_partitions": topic.num_partitions,
        "replication_factor": topic.replication_factor,
        "topic_config_error_code": topic.configs_error,
        "configs": [
            {
                "name": config.name,
                "value": None if config.is_sensitive else config.value,
                "read_only": config.read_only,
                "config_source": config.source,
                "is_sensitive": config.is_sensitive,
            }
            for config in topic.configs
        ],
    }


async def _delete_topics(call: Call, request: Any) -> Mapping[str, object]:
    if call.version >= 6:
        selectors = [
            TopicSelector(name=topic.name, topic_id=None if topic.topic_id in (None, ZERO_UUID) else topic.topic_id)
            async for topic in call.ctx.turns.each(request.topics)
        ]
    else:
        selectors = [TopicSelector(name=name, topic_id=None) async for name in call.ctx.turns.each(request.topic_names)]
    asked = DeleteTopicsRequest(
        topics=tuple(selectors),
        timeout_ms=milliseconds(request.timeout),
        requester=call.on_behalf,
        quota=_charged(call, strict_from=5),
    )
    response = await delete_topics(call.ctx, asked)
    call.throttle(response.throttle_ms)
    results = []
    async for topic in call.ctx.turns.each(response.topics):
        error = topic.error
        if error is ErrorCode.TOPIC_DELETION_DISABLED and call.version < 3:
            error = ErrorCode.INVALID_REQUEST  # the code is newer than the version (CM-23)
        results.append(
            {
                "name": topic.name if call.version >= 6 else topic.name or "",
                "topic_id": topic.topic_id or ZERO_UUID,
                "error_code": error,
                "error_message": topic.message,
            }
        )
    return {"throttle_time": response.throttle_ms, "responses": results}


async def _create_partitions(call: Call, request: Any) -> Mapping[str, object]:
    response = await create_distinct_partitions(
        call.ctx,
        CreatePartitionsRequest(
            topics=tuple([_grown(topic) async for topic in call.ctx.turns.each(request.topics)]),
            validate_only=request.validate_only,
            timeout_ms=milliseconds(request.timeout),
            requester=call.on_behalf,
            quota=_charged(call, strict_from=3),
        ),
    )
    call.throttle(response.throttle_ms)
    return {
        "throttle_time": response.throttle_ms,
        "results": [
            {"name": topic.name, "error_code": topic.error, "error_message": topic.message}
            async for topic in call.ctx.turns.each(response.topics)
        ],
    }


def _grown(topic: Any) -> CreatePartitionsTopic:
    return CreatePartitionsTopic(
        name=topic.name,
        count=topic.count,
        assignments=None
        if topic.assignments is None
        else tuple(
            ReplicaAssignment(partition=at, broker_ids=_nodes(one.broker_ids))
            for at, one in enumerate(bounded(topic.assignments))
        ),
    )


CREATE_TOPICS = cold(19, "CreateTopics", versions=(2, 7), flexible_from=5, adapt=_create_topics)
DELETE_TOPICS = cold(20, "DeleteTopics", versions=(1, 6), flexible_from=4, adapt=_delete_topics)
CREATE_PARTITIONS = cold(37, "CreatePartitions", versions=(0, 3), flexible_from=2, adapt=_create_partitions)
