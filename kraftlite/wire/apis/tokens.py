"""CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken and DescribeDelegationToken on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kraftlite.broker.handlers.tokens import create_token, described_tokens, expire_token, renew_token, token_secret
from kraftlite.metadata.records import DelegationTokenRecord
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.principal import Principal
from kraftlite.protocol.primitives import milliseconds
from kraftlite.security.tokens import token_hmac
from kraftlite.wire.apis.call import Call, cold


async def _create(call: Call, request: Any) -> Mapping[str, object]:
    requester = call.requester
    owner = requester.principal
    if getattr(request, "owner_principal_name", None):
        owner = Principal(request.owner_principal_type or "", request.owner_principal_name)
    renewers = [Principal(it.principal_type, it.principal_name) async for it in call.ctx.turns.each(request.renewers)]
    answer: dict[str, object] = {
        "error_code": ErrorCode.NONE,
        "principal_type": owner.kind,
        "principal_name": owner.name,
        "token_requester_principal_type": requester.principal.kind,
        "token_requester_principal_name": requester.principal.name,
        "issue_timestamp": 0,
        "expiry_timestamp": 0,
        "max_timestamp": 0,
        "token_id": "",
        "hmac": b"",
        "throttle_time": 0,
    }
    try:
        token = await create_token(call.ctx, requester, owner, renewers, milliseconds(request.max_lifetime))
    except ApiError as error:
        return {**answer, "error_code": error.code, "issue_timestamp": -1, "expiry_timestamp": -1, "max_timestamp": -1}
    return {
        **answer,
        "issue_timestamp": token.issued_ms,
        "expiry_timestamp": token.expiry_ms,
        "max_timestamp": token.max_ms,
        "token_id": token.token_id,
        "hmac": token.hmac,
    }


async def _renew(call: Call, request: Any) -> Mapping[str, object]:
    try:
        expiry_ms = await renew_token(call.ctx, call.requester, bytes(request.hmac), milliseconds(request.renew_period))
    except ApiError as error:
        return {"error_code": error.code, "expiry_timestamp": 0, "throttle_time": 0}
    return {"error_code": ErrorCode.NONE, "expiry_timestamp": expiry_ms, "throttle_time": 0}


async def _expire(call: Call, request: Any) -> Mapping[str, object]:
    try:
        expiry_ms = await expire_token(call.ctx, call.requester, bytes(request.hmac), milliseconds(request.expiry_time_period))
    except ApiError as error:
        return {"error_code": error.code, "expiry_timestamp": 0, "throttle_time": 0}
    return {"error_code": ErrorCode.NONE, "expiry_timestamp": expiry_ms, "throttle_time": 0}


async def _describe(call: Call, request: Any) -> Mapping[str, object]:
    ctx, owners = call.ctx, None
    if request.owners is not None:
        owners = [str(Principal(it.principal_type, it.principal_name)) async for it in ctx.turns.each(request.owners)]
    secret = token_secret(ctx)
    try:
        found = await described_tokens(ctx, call.requester, owners)
        tokens = [_described(token, secret or "") async for token in ctx.turns.each(found)]
    except ApiError as error:
        return {"error_code": error.code, "tokens": [], "throttle_time": 0}
    return {"error_code": ErrorCode.NONE, "tokens": tokens, "throttle_time": 0}


def _described(token: DelegationTokenRecord, secret: str) -> Mapping[str, object]:
    owner, requester = Principal.written(token.owner), Principal.written(token.requester)
    return {
        "principal_type": owner.kind,
        "principal_name": owner.name,
        "token_requester_principal_type": requester.kind,
        "token_requester_principal_name": requester.name,
        "issue_timestamp": token.issue_timestamp_ms,
        "expiry_timestamp": token.expiration_timestamp_ms,
        "max_timestamp": token.max_timestamp_ms,
        "token_id": token.token_id,
        "hmac": token_hmac(secret, token.token_id),
        "renewers": [
            {"principal_type": renewer.kind, "principal_name": renewer.name} for renewer in map(Principal.written, token.renewers)
        ],
    }


CREATE_DELEGATION_TOKEN = cold(38, "CreateDelegationToken", versions=(1, 3), flexible_from=2, adapt=_create)
RENEW_DELEGATION_TOKEN = cold(39, "RenewDelegationToken", versions=(1, 2), flexible_from=2, adapt=_renew)
EXPIRE_DELEGATION_TOKEN = cold(40, "ExpireDelegationToken", versions=(1, 2), flexible_from=2, adapt=_expire)
DESCRIBE_DELEGATION_TOKEN = cold(41, "DescribeDelegationToken", versions=(1, 3), flexible_from=2, adapt=_describe)
