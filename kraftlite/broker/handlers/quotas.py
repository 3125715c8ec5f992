"""AlterClientQuotas, which the active controller decides, and DescribeClientQuotas, which any broker knows. Source: KIP-546."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kraftlite.broker.handlers.context import BrokerContext
from kraftlite.broker.handlers.forwarding import forward_entries
from kraftlite.metadata.image import QuotaEntity
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.messages.methods import ALTER_CLIENT_QUOTAS
from kraftlite.model.messages.security import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterClientQuotasResult,
)

EXACT: Final = 0
DEFAULT: Final = 1
SPECIFIED: Final = 2
"""Match types of a filter."""

ORDERED_AT_ONCE: Final = 1_000
"""Entities: the first look at a change of them sorts them, a few microseconds each."""
_IP: Final = "ip"
_TYPES: Final = ("user", "client-id", _IP)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaFilter:
    """A condition on an entity: it must have a part of that type, with that name for EXACT, the default one for DEFAULT."""

    type: str
    match_type: int
    match: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaEntry:
    entity: QuotaEntity
    values: Mapping[str, str]


async def alter_quotas(ctx: BrokerContext, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    if not request.entries:
        return AlterClientQuotasResponse(entries=())
    try:
        entries = await forward_entries(
            ctx,
            ALTER_CLIENT_QUOTAS,
            request,
            request.entries,
            lambda some: replace(request, entries=some),
            lambda answer: answer.entries,
        )
        return AlterClientQuotasResponse(entries=entries)
    except ApiError as error:
        return AlterClientQuotasResponse(
            entries=tuple(
                [
                    AlterClientQuotasResult(entity=entry.entity, error=error.code, message=error.message)
                    async for entry in ctx.turns.each(request.entries)
                ]
            )
        )


async def describe_quotas(ctx: BrokerContext, filters: Sequence[QuotaFilter], *, strict: bool) -> list[QuotaEntry]:
    """Entities that pass every filter; `strict`: and have no other parts. Raises ApiError for a filter that is not allowed.

    Every user may have a quota: they are put in order off the loop, and looked at in turns.
    """
    _check(filters)
    entities = ctx.metadata.image.client_quotas.entities
    many = len(entities) > ORDERED_AT_ONCE
    ordered = await ctx.off_loop.run(len(entities), lambda: list(entities)) if many else list(entities)
    return [
        QuotaEntry(entity=entity, values=entities[entity])
        async for entity in ctx.turns.each(ordered)
        if not (strict and len(entity) != len(filters)) and all(_passes(entity, one) for one in filters)
    ]


def _passes(entity: QuotaEntity, wanted: QuotaFilter) -> bool:
    for part in entity:
        if part.type == wanted.type:
            return wanted.match_type == SPECIFIED or part.name == wanted.match
    return False


def _check(filters: Sequence[QuotaFilter]) -> None:
    seen: list[str] = []
    for one in filters:
        if not one.type:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Invalid empty entity type.")
        if one.type in seen:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Entity type {one.type} cannot appear more than once in the filter.")
        if one.type not in _TYPES:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {one.type}")
        seen.append(one.type)
        if one.match_type == EXACT:
            if one.match is None:
                raise ApiError(ErrorCode.INVALID_REQUEST, "Request specified MATCH_TYPE_EXACT, but set match string to null.")
        elif one.match_type in (DEFAULT, SPECIFIED):
            if one.match is not None:
                name = "MATCH_TYPE_DEFAULT" if one.match_type == DEFAULT else "MATCH_TYPE_SPECIFIED"
                raise ApiError(ErrorCode.INVALID_REQUEST, f"Request specified {name}, but also specified a match string.")
        else:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown match type {one.match_type}")
    if _IP in seen and len(seen) > 1:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            "Invalid entity filter component combination. IP filter component should not be used with user or clientId filter "
            "component.",
        )
