"""Requests of clients that the active controller decides: handed on in parts, so that none is a long turn of anybody's loop.

Source: CP-57; Kafka's `ForwardingManager` for the time that a broker tries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, ClassVar, Final, Protocol, TypeVar

from kraftlite.broker.handlers.context import BrokerContext
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.limits import MAX_FORWARD_MS, MAX_RECORDS_PER_USER_OP
from kraftlite.model.method import Method, Req, Res

T = TypeVar("T")
Entry = TypeVar("Entry")
Result = TypeVar("Result")


class _Timed(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def timeout_ms(self) -> int: ...


Divisible = TypeVar("Divisible", bound=_Timed)
"""A request that `forward_entries` may send in parts."""

PART_ENTRIES: Final = 500
"""Entries, and what is listed in them, that are handed on at a time: some 10 ms of work for the controller."""


def bounded(listed: Sequence[T]) -> Sequence[T]:
    """Cut an entry's list to the part that matters: one more than is allowed is enough for `forward_entries` to refuse it."""
    return listed if len(listed) <= MAX_RECORDS_PER_USER_OP else listed[: MAX_RECORDS_PER_USER_OP + 1]


async def forward(ctx: BrokerContext, method: Method[Req, Res], request: Req, timeout_ms: int) -> Res:
    """Raises ApiError; REQUEST_TIMED_OUT when no controller answered within `timeout_ms`, or within `MAX_FORWARD_MS`."""
    return await ctx.controller.call(method, request, min(max(timeout_ms, 0), MAX_FORWARD_MS))


async def forward_entries(
    ctx: BrokerContext,
    method: Method[Divisible, Res],
    request: Divisible,
    entries: Sequence[Entry],
    part_of: Callable[[tuple[Entry, ...]], Divisible],
    results_of: Callable[[Res], Sequence[Result]],
) -> tuple[Result, ...]:
    """The results of a request whose `entries` are decided one by one, in order, within the request's `timeout_ms`.

    A request of a usual size goes as it is; of a larger one, `part_of` makes the same request for some of its entries, and
    `results_of` takes the results out of the answer. Raises ApiError when it, or its first part, is refused as a whole.
    """
    deadline_ms = ctx.clock.now_ms() + min(max(request.timeout_ms, 0), MAX_FORWARD_MS)
    found: list[Result] = []
    for part in await _parts(ctx, entries):
        mine = request if len(part) == len(entries) else part_of(tuple(part))
        response = await ctx.controller.call(method, mine, max(0, deadline_ms - ctx.clock.now_ms()))
        found += results_of(response)
    return tuple(found)


async def _parts(ctx: BrokerContext, entries: Sequence[Entry]) -> list[list[Entry]]:
    """Raises ApiError for an entry that is too large by itself."""
    parts: list[list[Entry]] = []
    part: list[Entry] = []
    weight = 0
    async for entry in ctx.turns.each(entries):
        more = _weight(entry)
        if more > MAX_RECORDS_PER_USER_OP:
            raise ApiError(
                ErrorCode.POLICY_VIOLATION,
                f"Unable to perform excessively large batch operation: one entry has {more} parts, "
                f"at most {MAX_RECORDS_PER_USER_OP} are allowed.",
            )
        if part and weight + more > PART_ENTRIES:
            parts.append(part)
            part, weight = [], 0
        part.append(entry)
        weight += more
    return [*parts, part]


def _weight(entry: Any) -> int:
    """The entry and everything in it that is a list, and in that."""
    weight = 1
    for field in fields(entry):
        value = getattr(entry, field.name)
        if isinstance(value, tuple):
            weight += len(value)
            weight += sum(_weight(one) - 1 for one in value if is_dataclass(one))
    return weight
