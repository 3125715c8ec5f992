"""CreateAcls, DeleteAcls and DescribeAcls on the wire. Source: KIP-140, KIP-290; CM-56, SE-35; Kafka's AclApis."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kraftlite.broker.handlers.acls import create_acls, delete_acls, described_acls
from kraftlite.model.acls import AclBinding, AclBindingFilter
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.messages.acls import CreateAclsRequest, DeleteAclsRequest
from kraftlite.wire.apis.call import Call, cold

_NO_AUTHORIZER: Final = "No Authorizer is configured."
_DISABLED: Final = {"error_code": ErrorCode.SECURITY_DISABLED, "error_message": _NO_AUTHORIZER}
_UNKNOWN: Final = {"error_code": ErrorCode.INVALID_REQUEST, "error_message": "The filter contains unknown elements."}


async def _describe(call: Call, request: Any) -> Mapping[str, object]:
    values: dict[str, object] = {"throttle_time": 0, "error_code": ErrorCode.NONE, "error_message": "", "resources": []}
    if call.ctx.gate is None:
        return {**values, **_DISABLED, "error_message": "No Authorizer is configured on the broker"}
    wanted = AclBindingFilter(
        resource_type=request.resource_type_filter,
        resource_name=request.resource_name_filter,
        pattern_type=request.pattern_type_filter,
        principal=request.principal_filter,
        host=request.host_filter,
        operation=request.operation,
        permission_type=request.permission_type,
    )
    if wanted.is_unknown:
        return {**values, **_UNKNOWN}
    found = await described_acls(call.ctx, wanted)
    resources = [{**_pattern(pattern), "acls": list(map(_entry, entries))} for pattern, entries in found.items()]
    return {**values, "resources": resources}


def _pattern(pattern: tuple[int, str, int]) -> dict[str, object]:
    kind, name, pattern_type = pattern
    return {"resource_type": kind, "resource_name": name, "pattern_type": pattern_type}


def _entry(one: AclBinding) -> dict[str, object]:
    entry = {"principal": one.principal, "host": one.host, "operation": one.operation}
    return {**entry, "permission_type": one.permission_type}


async def _create(call: Call, request: Any) -> Mapping[str, object]:
    if call.ctx.gate is None:
        return {"throttle_time": 0, "results": [_DISABLED for _ in request.creations]}
    asked = CreateAclsRequest(
        creations=tuple([_binding(one) async for one in call.ctx.turns.each(request.creations)]),
        timeout_ms=call.ctx.settings.request_timeout_ms,
        requester=call.on_behalf,
    )
    try:
        response = await create_acls(call.ctx, asked)
    except ApiError as error:
        return {"throttle_time": 0, "results": [_told(error.code, error.message) for _ in request.creations]}
    return {"throttle_time": 0, "results": [_told(one.error, one.message or "") for one in response.results]}


def _binding(one: Any) -> AclBinding:
    return AclBinding(
        resource_type=one.resource_type,
        resource_name=one.resource_name,
        pattern_type=one.resource_pattern_type,
        principal=one.principal,
        host=one.host,
        operation=one.operation,
        permission_type=one.permission_type,
    )


async def _delete(call: Call, request: Any) -> Mapping[str, object]:
    if call.ctx.gate is None:
        return {"throttle_time": 0, "filter_results": [_DISABLED | {"matching_acls": []} for _ in request.filters]}
    asked = DeleteAclsRequest(
        filters=tuple([_filter(one) async for one in call.ctx.turns.each(request.filters)]),
        timeout_ms=call.ctx.settings.request_timeout_ms,
        requester=call.on_behalf,
    )
    try:
        response = await delete_acls(call.ctx, asked)
    except ApiError as error:
        refused = _told(error.code, error.message) | {"matching_acls": []}
        return {"throttle_time": 0, "filter_results": [refused for _ in request.filters]}
    results = [
        _told(one.error, one.message)
        | {"matching_acls": [_told(ErrorCode.NONE, None) | _pattern(pattern_of(it)) | _entry(it) for it in one.removed]}
        for one in response.results
    ]
    return {"throttle_time": 0, "filter_results": results}


def _filter(one: Any) -> AclBindingFilter:
    return AclBindingFilter(
        resource_type=one.resource_type_filter,
        resource_name=one.resource_name_filter,
        pattern_type=one.pattern_type_filter,
        principal=one.principal_filter,
        host=one.host_filter,
        operation=one.operation,
        permission_type=one.permission_type,
    )


def pattern_of(one: AclBinding) -> tuple[int, str, int]:
    return one.resource_type, one.resource_name, one.pattern_type


def _told(error: ErrorCode, message: str | None) -> dict[str, object]:
    return {"error_code": error, "error_message": message}


DESCRIBE_ACLS = cold(29, "DescribeAcls", versions=(1, 3), flexible_from=2, adapt=_describe)
CREATE_ACLS = cold(30, "CreateAcls", versions=(1, 3), flexible_from=2, adapt=_create)
DELETE_ACLS = cold(31, "DeleteAcls", versions=(1, 3), flexible_from=2, adapt=_delete)
