"""AlterClientQuotas and DescribeClientQuotas on the wire. Values are doubles there, and their shortest text elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kraftlite.broker.handlers.forwarding import bounded
from kraftlite.broker.handlers.quotas import QuotaFilter, alter_quotas, describe_quotas
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.messages.security import (
    AlterClientQuotasRequest,
    QuotaAlteration,
    QuotaEntityPart,
    QuotaOp,
)
from kraftlite.wire.apis.call import Call, cold

MAX_FILTERS = 8


def _entity(parts: Sequence[QuotaEntityPart]) -> list[dict[str, object]]:
    return [{"entity_type": part.type, "entity_name": part.name} for part in parts]


async def _alter(call: Call, request: Any) -> Mapping[str, object]:
    response = await alter_quotas(
        call.ctx,
        AlterClientQuotasRequest(
            entries=tuple(
                [
                    QuotaAlteration(
                        entity=tuple(
                            QuotaEntityPart(type=part.entity_type, name=part.entity_name) for part in bounded(entry.entity)
                        ),
                        ops=tuple(
                            QuotaOp(key=op.key, value=None if op.remove else repr(float(op.value))) for op in bounded(entry.ops)
                        ),
                    )
                    async for entry in call.ctx.turns.each(request.entries)
                ]
            ),
            validate_only=request.validate_only,
            timeout_ms=call.ctx.settings.request_timeout_ms,
            requester=call.on_behalf,
        ),
    )
    # An entity that is named again is answered once, with what became of the last.
    told = {tuple(sorted(one.entity)): one async for one in call.ctx.turns.each(response.entries)}
    return {
        "throttle_time": 0,
        "entries": [
            {"error_code": one.error, "error_message": one.message, "entity": _entity(one.entity)}
            async for one in call.ctx.turns.each(told.values())
        ],
    }


async def _describe(call: Call, request: Any) -> Mapping[str, object]:
    # No type may be named twice, and there are few: what comes behind the first of that error is not looked at.
    filters = [
        QuotaFilter(type=one.entity_type, match_type=one.match_type, match=one.match) for one in request.components[:MAX_FILTERS]
    ]
    try:
        found = await describe_quotas(call.ctx, filters, strict=request.strict)
    except ApiError as error:
        return {"throttle_time": 0, "error_code": error.code, "error_message": error.message, "entries": None}
    return {
        "throttle_time": 0,
        "error_code": ErrorCode.NONE,
        "error_message": "",
        "entries": [
            {
                "entity": _entity(entry.entity),
                "values": [{"key": key, "value": float(entry.values[key])} for key in entry.values],
            }
            async for entry in call.ctx.turns.each(found)
        ],
    }


DESCRIBE_CLIENT_QUOTAS = cold(48, "DescribeClientQuotas", versions=(0, 1), flexible_from=1, adapt=_describe)
ALTER_CLIENT_QUOTAS = cold(49, "AlterClientQuotas", versions=(0, 1), flexible_from=1, adapt=_alter)
