"""Access control entries: changed by the active controller, described by any node from its image. Source: SE-35."""

from __future__ import annotations

from kraftlite.broker.handlers.context import BrokerContext
from kraftlite.broker.handlers.forwarding import forward
from kraftlite.model.acls import AclBinding, AclBindingFilter
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.limits import MAX_RECORDS_PER_USER_OP
from kraftlite.model.messages.acls import CreateAclsRequest, CreateAclsResponse, DeleteAclsRequest, DeleteAclsResponse
from kraftlite.model.messages.methods import CREATE_ACLS, DELETE_ACLS

MAX_FILTERS = 1_000
"""Filters of one DeleteAcls: each is compared with all entries."""


async def create_acls(ctx: BrokerContext, request: CreateAclsRequest) -> CreateAclsResponse:
    """Raises ApiError when the request as a whole is refused. The entries are written together, and so not handed on in parts."""
    if not request.creations:
        return CreateAclsResponse(results=())
    if len(request.creations) > MAX_RECORDS_PER_USER_OP:
        message = f"{len(request.creations)} access control entries in one request: allowed are {MAX_RECORDS_PER_USER_OP}"
        raise ApiError(ErrorCode.POLICY_VIOLATION, message)
    return await forward(ctx, CREATE_ACLS, request, request.timeout_ms)


async def delete_acls(ctx: BrokerContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    """Raises ApiError when the request as a whole is refused."""
    if not request.filters:
        return DeleteAclsResponse(results=())
    if len(request.filters) > MAX_FILTERS:
        raise ApiError(ErrorCode.POLICY_VIOLATION, f"{len(request.filters)} filters in one request: allowed are {MAX_FILTERS}")
    return await forward(ctx, DELETE_ACLS, request, request.timeout_ms)


async def described_acls(ctx: BrokerContext, wanted: AclBindingFilter) -> dict[tuple[int, str, int], list[AclBinding]]:
    """The entries that a filter matches, by the type, name and pattern of their resources."""
    found: dict[tuple[int, str, int], list[AclBinding]] = {}
    entries = ctx.metadata.image.acls.entries
    async for key in ctx.turns.each(list(entries)):
        one = entries[key].binding
        if wanted.matches(one):
            found.setdefault((one.resource_type, one.resource_name, one.pattern_type), []).append(one)
    return found
