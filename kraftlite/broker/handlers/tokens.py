"""Delegation tokens as a broker answers for them. Source: Kafka's KafkaApis and DelegationTokenManager; KIP-48; SE-16."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from kraftlite.broker.handlers.context import BrokerContext
from kraftlite.metadata.records import DelegationTokenRecord
from kraftlite.model.acls import Operation, ResourceType
from kraftlite.model.broker_configs import value_of
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.limits import MAX_OFFSET
from kraftlite.model.messages.methods import CREATE_DELEGATION_TOKEN, EXPIRE_DELEGATION_TOKEN, RENEW_DELEGATION_TOKEN
from kraftlite.model.messages.tokens import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from kraftlite.model.principal import ANONYMOUS, USER, Principal, Requester
from kraftlite.security.tokens import concerned, concerns

SECRET_KEY: Final = "delegation.token.secret.key"
MAX_RENEWERS: Final = 1_000


def token_secret(ctx: BrokerContext) -> str | None:
    """None: delegation tokens are not enabled."""
    found: str | None = value_of(ctx.config.values, SECRET_KEY)
    return found


def may_create_for(ctx: BrokerContext, requester: Requester, owner: Principal) -> bool:
    """Return whether the client may have a token for somebody else: CREATE_TOKENS on User:owner.

    Without an authorizer everybody may, as in Kafka.
    """
    if ctx.gate is None:
        return True
    return ctx.gate.rights(requester, "CreateDelegationToken").may(Operation.CREATE_TOKENS, ResourceType.USER, str(owner))


def may_describe(ctx: BrokerContext, requester: Requester, token: DelegationTokenRecord) -> bool:
    """Return whether the client may see a token that is not its business: DESCRIBE on the token, or DESCRIBE_TOKENS on its
    owner. Without an authorizer everybody may, as in Kafka."""
    if ctx.gate is None:
        return True
    rights = ctx.gate.rights(requester, "DescribeDelegationToken")
    return rights.may(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id, audited=False) or rights.may(
        Operation.DESCRIBE_TOKENS, ResourceType.USER, token.owner, audited=False
    )


def check_allowed(requester: Principal) -> None:
    """Raise ApiError where tokens are not spoken of: only who has proved its identity, and not by a token, gets one."""
    if requester == ANONYMOUS or requester.token_authenticated:
        raise ApiError(
            ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
            "Delegation Token requests are not allowed on PLAINTEXT/1-way SSL channels and on delegation token authenticated "
            "channels.",
        )


async def create_token(
    ctx: BrokerContext, requester: Requester, owner: Principal, renewers: Sequence[Principal], max_lifetime_ms: int
) -> CreateDelegationTokenResponse:
    """Raises ApiError."""
    principal = requester.principal
    check_allowed(principal)
    if str(owner) != str(principal) and not may_create_for(ctx, requester, owner):
        raise ApiError(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED, "Delegation Token authorization failed.")
    if any(renewer.kind != USER for renewer in renewers):
        raise ApiError(ErrorCode.INVALID_PRINCIPAL_TYPE, "Supplied principalType is not supported.")
    if len(renewers) > MAX_RENEWERS:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{len(renewers)} renewers: allowed are {MAX_RENEWERS}")
    timeout_ms = ctx.settings.request_timeout_ms
    request = CreateDelegationTokenRequest(
        owner=str(owner),
        requester=str(principal),
        renewers=tuple(map(str, renewers)),
        max_lifetime_ms=_within(max_lifetime_ms),
        timeout_ms=timeout_ms,
    )
    return await ctx.controller.call(CREATE_DELEGATION_TOKEN, request, timeout_ms)


async def renew_token(ctx: BrokerContext, requester: Requester, code: bytes, period_ms: int) -> int:
    """Returns the time at which the token expires now. Raises ApiError."""
    check_allowed(requester.principal)
    timeout_ms = ctx.settings.request_timeout_ms
    request = RenewDelegationTokenRequest(
        requester=str(requester.principal), hmac=code, period_ms=_within(period_ms), timeout_ms=timeout_ms
    )
    return (await ctx.controller.call(RENEW_DELEGATION_TOKEN, request, timeout_ms)).expiry_ms


async def expire_token(ctx: BrokerContext, requester: Requester, code: bytes, period_ms: int) -> int:
    """Do the same as `renew_token`; a negative period ends the token at once."""
    check_allowed(requester.principal)
    timeout_ms = ctx.settings.request_timeout_ms
    request = ExpireDelegationTokenRequest(
        requester=str(requester.principal), hmac=code, period_ms=_within(period_ms), timeout_ms=timeout_ms
    )
    return (await ctx.controller.call(EXPIRE_DELEGATION_TOKEN, request, timeout_ms)).expiry_ms


def _within(period_ms: int) -> int:
    """A period as nodes tell it each other: -1 for all that are negative, and nobody waits for longer than `MAX_OFFSET` ms."""
    return max(-1, min(period_ms, MAX_OFFSET))


async def described_tokens(ctx: BrokerContext, requester: Requester, owners: Iterable[str] | None) -> list[DelegationTokenRecord]:
    """The tokens that concern one of `owners`, and that the client may see; of all owners for None. Raises ApiError.

    There may be many of both: an owner is looked up, and the tokens are looked at in turns.
    """
    check_allowed(requester.principal)
    if token_secret(ctx) is None:
        raise ApiError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, "Delegation Token feature is not enabled.")
    named = None if owners is None else frozenset(owners)
    own = str(requester.principal)
    found = []
    async for token in ctx.turns.each(ctx.metadata.image.delegation_tokens.tokens.values()):
        if named is not None and named.isdisjoint(concerned(token)):
            continue
        if concerns(token, own) or may_describe(ctx, requester, token):
            found.append(token)
    return found
