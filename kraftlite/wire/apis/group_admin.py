"""DescribeGroups, ListGroups and DeleteGroups on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kraftlite.broker.handlers.coordinators import group_coordinator
from kraftlite.coordinator.api import GroupDescription
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.wire.apis.call import Call, cold
from kraftlite.wire.operations import GROUP_OPERATIONS

NOT_FOUND_FROM: Final = 6
"""DescribeGroups says that there is no such group from this version on; before, that it is Dead."""
DEAD: Final = "Dead"


async def _describe_groups(call: Call, request: Any) -> Mapping[str, object]:
    """A group that is named again would be told again, with all its members: it is told once."""
    groups = [_describe(call, group_id) async for group_id in call.ctx.turns.each(dict.fromkeys(request.groups))]
    return {"throttle_time": 0, "groups": with_operations(groups, request)}


def with_operations(groups: list[dict[str, object]], request: Any) -> list[dict[str, object]]:
    """Descriptions that say what the client may do with its groups, if it asks (KIP-430)."""
    if getattr(request, "include_authorized_operations", False):
        for group in groups:
            if group["error_code"] is ErrorCode.NONE:
                group["authorized_operations"] = GROUP_OPERATIONS
    return groups


def _describe(call: Call, group_id: str) -> dict[str, object]:
    try:
        found = group_coordinator(call.ctx).describe(group_id)
        if found is not None:
            return _described(found)
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
    except ApiError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            return _nothing(group_id, error.code, error.message, "")
        if call.version >= NOT_FOUND_FROM:
            return _nothing(group_id, error.code, error.message, DEAD)
        return _nothing(group_id, ErrorCode.NONE, None, DEAD)


def _nothing(group_id: str, error: ErrorCode, message: str | None, state: str) -> dict[str, object]:
    return {
        "error_code": error,
        "error_message": message,
        "group_id": group_id,
        "group_state": state,
        "protocol_type": "",
        "protocol_data": "",
        "members": [],
    }


def _described(group: GroupDescription) -> dict[str, object]:
    return {
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "group_id": group.group_id,
        "group_state": group.state,
        "protocol_type": group.protocol_type,
        "protocol_data": group.protocol_name,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "member_metadata": member.metadata,
                "member_assignment": member.assignment,
            }
            for member in group.members
        ],
    }


async def _list_groups(call: Call, request: Any) -> Mapping[str, object]:
    """List groups. Filters are case-insensitive; an empty one lets everything pass."""
    states = {state.lower() for state in getattr(request, "states_filter", ())}
    types = {kind.lower() for kind in getattr(request, "types_filter", ())}
    try:
        groups = [group async for part in call.ctx.turns.each(group_coordinator(call.ctx).overviews()) for group in part]
    except ApiError as error:
        return {"throttle_time": 0, "error_code": error.code, "groups": []}
    return {
        "throttle_time": 0,
        "error_code": ErrorCode.NONE,
        "groups": [
            {
                "group_id": group.group_id,
                "protocol_type": group.protocol_type,
                "group_state": group.state,
                "group_type": group.group_type,
            }
            async for group in call.ctx.turns.each(groups)
            if (not states or group.state.lower() in states) and (not types or group.group_type in types)
        ],
    }


async def _delete_groups(call: Call, request: Any) -> Mapping[str, object]:
    results = []
    async for group_id in call.ctx.turns.each(dict.fromkeys(request.groups_names)):
        error = ErrorCode.NONE
        try:
            await group_coordinator(call.ctx).delete_group(group_id)
        except ApiError as refused:
            error = refused.code
        results.append({"group_id": group_id, "error_code": error})
    return {"throttle_time": 0, "results": results}


DESCRIBE_GROUPS = cold(15, "DescribeGroups", versions=(0, 6), flexible_from=5, adapt=_describe_groups)
LIST_GROUPS = cold(16, "ListGroups", versions=(0, 5), flexible_from=3, adapt=_list_groups)
DELETE_GROUPS = cold(42, "DeleteGroups", versions=(0, 2), flexible_from=2, adapt=_delete_groups)
