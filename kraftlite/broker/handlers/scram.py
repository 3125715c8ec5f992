"""AlterUserScramCredentials, which the active controller decides, and DescribeUserScramCredentials, which any broker knows.

Source: KIP-554; CM-59.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kraftlite.broker.handlers.context import BrokerContext
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.messages.methods import ALTER_USER_SCRAM_CREDENTIALS
from kraftlite.model.messages.security import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramResult,
)
from kraftlite.security.scram import NUMBERS


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramUser:
    """`credentials`: (mechanism, iterations)."""

    user: str
    error: ErrorCode
    message: str | None
    credentials: tuple[tuple[int, int], ...] = ()


MAX_CHANGES: Final = 2_000


async def alter_scram(ctx: BrokerContext, request: AlterUserScramCredentialsRequest) -> AlterUserScramCredentialsResponse:
    if not request.deletions and not request.upsertions:
        return AlterUserScramCredentialsResponse(results=())
    try:
        _check_size(request)
        return await ctx.controller.call(ALTER_USER_SCRAM_CREDENTIALS, request, request.timeout_ms)
    except ApiError as error:
        users = dict.fromkeys([*(one.name for one in request.deletions), *(one.name for one in request.upsertions)])
        return AlterUserScramCredentialsResponse(
            results=tuple(
                [ScramResult(user=user, error=error.code, message=error.message) async for user in ctx.turns.each(users)]
            )
        )


def _check_size(request: AlterUserScramCredentialsRequest) -> None:
    """Raise ApiError(POLICY_VIOLATION): they are written together, and so are not handed to the controller in parts."""
    count = len(request.deletions) + len(request.upsertions)
    if count > MAX_CHANGES:
        raise ApiError(ErrorCode.POLICY_VIOLATION, f"{count} credentials in one request: allowed are {MAX_CHANGES}")


def describe_scram(ctx: BrokerContext, users: Sequence[str] | None) -> Iterator[ScramUser]:
    """All users that have credentials for None or none; one by one, since a client says how many it means."""
    credentials = ctx.metadata.image.scram.credentials
    count = Counter(users or ())
    for user in dict.fromkeys(users or (name for name, _mechanism in credentials)):
        known = tuple((it, credentials[user, it].iterations) for it in NUMBERS.values() if (user, it) in credentials)
        if count[user] > 1:
            message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
            yield ScramUser(user=user, error=ErrorCode.DUPLICATE_RESOURCE, message=message)
        elif not known:
            message = f"Attempt to describe a user credential that does not exist: {user}"
            yield ScramUser(user=user, error=ErrorCode.RESOURCE_NOT_FOUND, message=message)
        else:
            yield ScramUser(user=user, error=ErrorCode.NONE, message=None, credentials=known)
