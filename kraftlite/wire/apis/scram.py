"""AlterUserScramCredentials and DescribeUserScramCredentials on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kraftlite.broker.handlers.scram import alter_scram, describe_scram
from kraftlite.model.errors import ErrorCode
from kraftlite.model.messages.security import (
    AlterUserScramCredentialsRequest,
    ScramDeletion,
    ScramUpsertion,
)
from kraftlite.wire.apis.call import Call, cold


async def _alter(call: Call, request: Any) -> Mapping[str, object]:
    response = await alter_scram(
        call.ctx,
        AlterUserScramCredentialsRequest(
            deletions=tuple(
                [ScramDeletion(name=one.name, mechanism=one.mechanism) async for one in call.ctx.turns.each(request.deletions)]
            ),
            upsertions=tuple(
                [
                    ScramUpsertion(
                        name=one.name,
                        mechanism=one.mechanism,
                        iterations=one.iterations,
                        salt=bytes(one.salt),
                        salted_password=bytes(one.salted_password),
                    )
                    async for one in call.ctx.turns.each(request.upsertions)
                ]
            ),
            timeout_ms=call.ctx.settings.request_timeout_ms,
            requester=call.on_behalf,
        ),
    )
    return {
        "throttle_time": 0,
        "results": [
            {"user": one.user, "error_code": one.error, "error_message": one.message}
            async for one in call.ctx.turns.each(response.results)
        ],
    }


async def _describe(call: Call, request: Any) -> Mapping[str, object]:
    users = None if request.users is None else [one.name for one in request.users]
    return {
        "throttle_time": 0,
        "error_code": ErrorCode.NONE,
        "error_message": "",
        "results": [
            {
                "user": one.user,
                "error_code": one.error,
                "error_message": one.message or "",
                "credential_infos": [{"mechanism": mechanism, "iterations": count} for mechanism, count in one.credentials],
            }
            async for one in call.ctx.turns.each(describe_scram(call.ctx, users))
        ],
    }


DESCRIBE_USER_SCRAM_CREDENTIALS = cold(50, "DescribeUserScramCredentials", versions=(0, 0), flexible_from=0, adapt=_describe)
ALTER_USER_SCRAM_CREDENTIALS = cold(51, "AlterUserScramCredentials", versions=(0, 0), flexible_from=0, adapt=_alter)
