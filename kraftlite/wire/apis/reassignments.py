"""AlterPartitionReassignments and ListPartitionReassignments on the wire."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from kraftlite.broker.handlers.context import BrokerContext
from kraftlite.broker.handlers.forwarding import bounded
from kraftlite.broker.handlers.reassignments import alter_reassignments, list_reassignments
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.controller import (
    AlterPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    PartitionName,
    ReassignablePartition,
)
from kraftlite.protocol.primitives import milliseconds
from kraftlite.wire.apis.call import Call, cold


async def _alter(call: Call, request: Any) -> Mapping[str, object]:
    partitions = []
    async for topic in call.ctx.turns.each(request.topics):
        partitions += [
            ReassignablePartition(
                topic=topic.name,
                partition=one.partition_index,
                replicas=None if one.replicas is None else tuple(NodeId(node) for node in bounded(one.replicas)),
            )
            async for one in call.ctx.turns.each(topic.partitions)
        ]
    allowed = getattr(request, "allow_replication_factor_change", True)
    values: dict[str, object] = {"throttle_time": 0, "allow_replication_factor_change": allowed, "error_message": ""}
    try:
        response = await alter_reassignments(
            call.ctx,
            AlterPartitionReassignmentsRequest(
                partitions=tuple(partitions),
                allow_replication_factor_change=allowed,
                timeout_ms=milliseconds(request.timeout),
                requester=call.on_behalf,
            ),
        )
    except ApiError as error:
        return values | {"error_code": error.code, "error_message": error.message, "responses": _refused(request, error)}
    topics: dict[str, list[dict[str, object]]] = {}
    for result in response.results:
        topics.setdefault(result.topic, []).append(
            {"partition_index": result.partition, "error_code": result.error, "error_message": result.message}
        )
    return values | {
        "error_code": ErrorCode.NONE,
        "responses": [{"name": name, "partitions": found} for name, found in topics.items()],
    }


def _refused(request: Any, error: ApiError) -> list[dict[str, object]]:
    """Every partition that was asked for, with the error of the request as a whole: what Kafka does, and clients look there."""
    told = {"error_code": error.code, "error_message": error.message}
    return [
        {"name": topic.name, "partitions": [{"partition_index": one.partition_index, **told} for one in topic.partitions]}
        for topic in request.topics
    ]


Lists: TypeAlias = Callable[[BrokerContext, ListPartitionReassignmentsRequest], Awaitable[ListPartitionReassignmentsResponse]]


async def list_as(call: Call, request: Any, decide: Lists = list_reassignments) -> Mapping[str, object]:
    partitions = None
    if request.topics is not None:
        partitions = tuple(
            PartitionName(topic=topic.name, partition=index) for topic in request.topics for index in topic.partition_indexes
        )
    # The request's own timeout is not looked at, as in Kafka: there are clients that send 0.
    timeout_ms = call.ctx.settings.request_timeout_ms
    try:
        asked = ListPartitionReassignmentsRequest(partitions=partitions, timeout_ms=timeout_ms, requester=call.on_behalf)
        response = await decide(call.ctx, asked)
    except ApiError as error:
        return {"throttle_time": 0, "error_code": error.code, "error_message": error.message, "topics": _unlisted(request)}
    topics: dict[str, list[dict[str, object]]] = {}
    for one in response.reassignments:
        topics.setdefault(one.topic, []).append(
            {
                "partition_index": one.partition,
                "replicas": one.replicas,
                "adding_replicas": one.adding,
                "removing_replicas": one.removing,
            }
        )
    return {
        "throttle_time": 0,
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "topics": [{"name": name, "partitions": found} for name, found in topics.items()],
    }


def _unlisted(request: Any) -> list[dict[str, object]]:
    """Every partition that was asked for, without replicas, as in Kafka."""
    return [
        {
            "name": topic.name,
            "partitions": [
                {"partition_index": index, "replicas": (), "adding_replicas": (), "removing_replicas": ()}
                for index in topic.partition_indexes
            ],
        }
        for topic in request.topics or ()
    ]


ALTER_PARTITION_REASSIGNMENTS = cold(45, "AlterPartitionReassignments", versions=(0, 1), flexible_from=0, adapt=_alter)
LIST_PARTITION_REASSIGNMENTS = cold(46, "ListPartitionReassignments", versions=(0, 0), flexible_from=0, adapt=list_as)
