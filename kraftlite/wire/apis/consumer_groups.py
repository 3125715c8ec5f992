"""ConsumerGroupHeartbeat and ConsumerGroupDescribe on the wire (KIP-848)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kraftlite.broker.handlers.coordinators import consumer_groups, consumer_heartbeat
from kraftlite.coordinator.api import AssignedTopic, ConsumerGroupDescription, ConsumerHeartbeatRequest
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import ZERO_UUID
from kraftlite.protocol.primitives import milliseconds
from kraftlite.wire.apis.call import Call, cold
from kraftlite.wire.apis.group_admin import with_operations
from kraftlite.wire.apis.groups import sees

_CLASSIC, _CONSUMER = 0, 1
"""Types of members in ConsumerGroupDescribe."""


async def _heartbeat(call: Call, request: Any) -> Mapping[str, object]:
    timeout_ms = milliseconds(request.rebalance_timeout)
    topics, owned = request.subscribed_topic_names, request.topic_partitions
    try:
        result = await consumer_heartbeat(
            call.ctx,
            ConsumerHeartbeatRequest(
                group_id=request.group_id,
                member_id=request.member_id,
                member_epoch=request.member_epoch,
                instance_id=request.instance_id,
                rack_id=request.rack_id,
                rebalance_timeout_ms=None if timeout_ms == -1 else timeout_ms,
                topics=None if topics is None else tuple(topics),
                regex=getattr(request, "subscribed_topic_regex", None),
                server_assignor=request.server_assignor,
                owned=None if owned is None else tuple((one.topic_id or ZERO_UUID, tuple(one.partitions)) for one in owned),
                client_id=call.client_id or "",
                client_host=f"/{call.connection.peer_host}",
                sees=sees(call.rights),
            ),
            call.version,
        )
    except ApiError as error:
        return {
            "throttle_time": 0,
            "error_code": error.code,
            "error_message": error.message,
            "member_id": None,
            "member_epoch": 0,
            "heartbeat_interval": 0,
            "assignment": None,
        }
    assignment = result.assignment
    return {
        "throttle_time": 0,
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "member_id": result.member_id,
        "member_epoch": result.member_epoch,
        "heartbeat_interval": result.heartbeat_interval_ms,
        "assignment": None
        if assignment is None
        else {"topic_partitions": [{"topic_id": topic_id, "partitions": indexes} for topic_id, indexes in assignment]},
    }


async def _describe(call: Call, request: Any) -> Mapping[str, object]:
    """A group that is named again would be told again, with all its members: it is told once."""
    groups = [_group(call, group_id) async for group_id in call.ctx.turns.each(dict.fromkeys(request.group_ids))]
    return {"throttle_time": 0, "groups": with_operations(groups, request)}


def _group(call: Call, group_id: str) -> dict[str, object]:
    try:
        if not group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
        return _described(consumer_groups(call.ctx).describe_consumers(group_id))
    except ApiError as error:
        return {
            "error_code": error.code,
            "error_message": error.message,
            "group_id": group_id,
            "group_state": "",
            "group_epoch": 0,
            "assignment_epoch": 0,
            "assignor_name": "",
            "members": [],
        }


def _described(group: ConsumerGroupDescription) -> dict[str, object]:
    return {
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "group_id": group.group_id,
        "group_state": group.state,
        "group_epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "assignor_name": group.assignor,
        "members": [
            {
                "member_id": member.member_id,
                "instance_id": member.instance_id,
                "rack_id": member.rack_id,
                "member_epoch": member.member_epoch,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "subscribed_topic_names": member.topics,
                "subscribed_topic_regex": member.regex,
                "assignment": _assignment(member.assignment),
                "target_assignment": _assignment(member.target),
                "member_type": _CLASSIC if member.classic else _CONSUMER,
            }
            for member in group.members
        ],
    }


def _assignment(topics: Sequence[AssignedTopic]) -> dict[str, object]:
    return {
        "topic_partitions": [
            {"topic_id": topic.topic_id, "topic_name": topic.topic, "partitions": topic.partitions} for topic in topics
        ]
    }


CONSUMER_GROUP_HEARTBEAT = cold(68, "ConsumerGroupHeartbeat", versions=(0, 1), flexible_from=0, adapt=_heartbeat)
CONSUMER_GROUP_DESCRIBE = cold(69, "ConsumerGroupDescribe", versions=(0, 1), flexible_from=0, adapt=_describe)
