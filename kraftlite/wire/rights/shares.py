"""The part of a request that its client may use, and the rest. A client chooses how much it names: it is looked at in turns.

Source: SE-36, CP-68.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from kraftlite.model.acls import Operation, ResourceType
from kraftlite.security.gate import Rights
from kraftlite.wire.apis.call import Call

T = TypeVar("T")


def can(rights: Rights, operation: Operation, kind: ResourceType) -> Callable[[str], bool]:
    """The question whether the client may do this with the resource of a name."""
    return lambda name: rights.may(operation, kind, name)


async def shares(
    call: Call, items: Iterable[T], may: Callable[[T], bool], refused: Callable[[T], Mapping[str, object]]
) -> tuple[list[T], list[object]]:
    """The items that may be used, and what is answered for the others, each in their order. Each item is asked about once: what
    there is may change while others have their turn."""
    allowed: list[T] = []
    refusals: list[object] = []
    async for item in call.ctx.turns.each(items):
        if may(item):
            allowed.append(item)
        else:
            refusals.append(refused(item))
    return allowed, refusals


async def all_may(call: Call, items: Iterable[T], may: Callable[[T], bool]) -> bool:
    async for item in call.ctx.turns.each(items):
        if not may(item):
            return False
    return True
