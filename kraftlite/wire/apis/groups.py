"""FindCoordinator, JoinGroup, SyncGroup, Heartbeat and LeaveGroup on the wire: the classic group protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kraftlite.broker.handlers.coordinators import CoordinatorFound, find_coordinator, group_coordinator
from kraftlite.coordinator.api import (
    HeartbeatRequest,
    JoinRequest,
    JoinResult,
    LeaveRequest,
    LeavingMember,
    Protocol,
    Sees,
    SyncRequest,
    SyncResult,
)
from kraftlite.model.acls import Operation
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import NO_NODE
from kraftlite.protocol.primitives import milliseconds
from kraftlite.security.gate import Rights
from kraftlite.wire.apis.call import Call, cold

BATCHED_FROM: Final = 4
"""FindCoordinator asks for several keys at once from this version on."""
LEAVE_BATCHED_FROM: Final = 3
MEMBER_ID_REQUIRED_FROM: Final = 4
PROTOCOL_TYPE_FROM: Final = 7
"""JoinGroup tells the protocol type, and may have no protocol at all, from this version on."""
SKIP_ASSIGNMENT_FROM: Final = 9
MAX_PROTOCOLS: Final = 1_000
"""The most protocols of one member. Clients have a handful."""
LEAVING_AT_ONCE: Final = 500
SYNC_NAMES_PROTOCOL: Final = 5
"""SyncGroup must name the protocol and its type from this version on."""


# --- FindCoordinator -----------------------------------------------------------------------------------------------------


async def _find_coordinator(call: Call, request: Any) -> Mapping[str, object]:
    key_type = getattr(request, "key_type", 0)
    if call.version >= BATCHED_FROM:
        found = [
            _coordinator(find_coordinator(call.ctx, call.listener, key_type, key))
            async for key in call.ctx.turns.each(request.coordinator_keys)
        ]
        return {"throttle_time": 0, "coordinators": found}
    return {"throttle_time": 0, **_coordinator(find_coordinator(call.ctx, call.listener, key_type, request.key))}


def _coordinator(found: CoordinatorFound) -> dict[str, object]:
    broker = found.broker
    return {
        "key": found.key,
        "node_id": NO_NODE if broker is None else broker.broker_id,
        "host": "" if broker is None else broker.host,
        "port": -1 if broker is None else broker.port,
        "error_code": found.error,
        "error_message": found.message,
    }


def sees(rights: Rights | None) -> Sees | None:
    """The topics that a member's regular expression may find: those that its client may describe. They are not audited, since
    nobody has named them."""
    return None if rights is None else lambda name: rights.topic(Operation.DESCRIBE, name, audited=False)


# --- JoinGroup -----------------------------------------------------------------------------------------------------------


async def _join_group(call: Call, request: Any) -> Mapping[str, object]:
    session_timeout_ms = milliseconds(request.session_timeout)
    rebalance_timeout = getattr(request, "rebalance_timeout", None)
    instance_id = getattr(request, "group_instance_id", None)
    try:
        if len(request.protocols) > MAX_PROTOCOLS:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{len(request.protocols)} protocols: allowed are {MAX_PROTOCOLS}")
        result = await group_coordinator(call.ctx).join(
            JoinRequest(
                group_id=request.group_id,
                member_id=request.member_id,
                instance_id=instance_id,
                client_id=call.client_id or "",
                client_host=f"/{call.connection.peer_host}",
                session_timeout_ms=session_timeout_ms,
                rebalance_timeout_ms=session_timeout_ms if rebalance_timeout is None else milliseconds(rebalance_timeout),
                protocol_type=request.protocol_type,
                protocols=tuple(Protocol(protocol.name, protocol.metadata) for protocol in request.protocols),
                require_known_member_id=call.version >= MEMBER_ID_REQUIRED_FROM and instance_id is None,
                can_skip_assignment=call.version >= SKIP_ASSIGNMENT_FROM,
                reason=getattr(request, "reason", None),
                sees=sees(call.rights),
            )
        )
    except ApiError as error:
        result = JoinResult(error=error.code, member_id=request.member_id)
    nameless = "" if call.version < PROTOCOL_TYPE_FROM else None
    return {
        "throttle_time": 0,
        "error_code": result.error,
        "generation_id": result.generation,
        "protocol_type": result.protocol_type,
        "protocol_name": nameless if result.protocol_name is None else result.protocol_name,
        "leader": result.leader_id,
        "skip_assignment": result.skip_assignment,
        "member_id": result.member_id,
        "members": [
            {"member_id": member.member_id, "group_instance_id": member.instance_id, "metadata": member.metadata}
            for member in result.members
        ],
    }


# --- SyncGroup, Heartbeat, LeaveGroup ------------------------------------------------------------------------------------


async def _sync_group(call: Call, request: Any) -> Mapping[str, object]:
    if call.version >= SYNC_NAMES_PROTOCOL and (request.protocol_type is None or request.protocol_name is None):
        return _sync_response(SyncResult(error=ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    try:
        result = await group_coordinator(call.ctx).sync(
            SyncRequest(
                group_id=request.group_id,
                generation=request.generation_id,
                member_id=request.member_id,
                instance_id=getattr(request, "group_instance_id", None),
                protocol_type=getattr(request, "protocol_type", None),
                protocol_name=getattr(request, "protocol_name", None),
                assignments=tuple((one.member_id, one.assignment) for one in request.assignments),
            )
        )
    except ApiError as error:
        result = SyncResult(error=error.code)
    return _sync_response(result)


def _sync_response(result: SyncResult) -> dict[str, object]:
    return {
        "throttle_time": 0,
        "error_code": result.error,
        "protocol_type": result.protocol_type,
        "protocol_name": result.protocol_name,
        "assignment": result.assignment,
    }


async def _heartbeat(call: Call, request: Any) -> Mapping[str, object]:
    try:
        error = await group_coordinator(call.ctx).heartbeat(
            HeartbeatRequest(
                group_id=request.group_id,
                generation=request.generation_id,
                member_id=request.member_id,
                instance_id=getattr(request, "group_instance_id", None),
            )
        )
    except ApiError as refused:
        error = refused.code
    return {"throttle_time": 0, "error_code": error}


async def _leave_group(call: Call, request: Any) -> Mapping[str, object]:
    batched = call.version >= LEAVE_BATCHED_FROM
    if batched:
        leaving = [
            LeavingMember(member.member_id, member.group_instance_id, getattr(member, "reason", None))
            async for member in call.ctx.turns.each(request.members)
        ]
    else:
        leaving = [LeavingMember(request.member_id, None)]
    left: list[tuple[LeavingMember, ErrorCode]] = []
    try:
        async for first in call.ctx.turns.each(range(0, max(1, len(leaving)), LEAVING_AT_ONCE)):
            some = LeaveRequest(group_id=request.group_id, members=tuple(leaving[first : first + LEAVING_AT_ONCE]))
            left += await group_coordinator(call.ctx).leave(some)
    except ApiError as error:
        return {"throttle_time": 0, "error_code": error.code, "members": []}
    top = ErrorCode.NONE if batched else left[0][1]
    return {
        "throttle_time": 0,
        "error_code": top,
        "members": [
            {"member_id": member.member_id, "group_instance_id": member.instance_id, "error_code": error}
            async for member, error in call.ctx.turns.each(left)
        ],
    }


FIND_COORDINATOR = cold(10, "FindCoordinator", versions=(0, 6), flexible_from=3, adapt=_find_coordinator)
JOIN_GROUP = cold(11, "JoinGroup", versions=(0, 9), flexible_from=6, adapt=_join_group, waits=True)
HEARTBEAT = cold(12, "Heartbeat", versions=(0, 4), flexible_from=4, adapt=_heartbeat)
LEAVE_GROUP = cold(13, "LeaveGroup", versions=(0, 5), flexible_from=4, adapt=_leave_group)
SYNC_GROUP = cold(14, "SyncGroup", versions=(0, 5), flexible_from=4, adapt=_sync_group, waits=True)
