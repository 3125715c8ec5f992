"""Rights are asked about in turns: a client chooses how many resources it names, and each is a decision of the authorizer."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterable
from dataclasses import fields
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import pytest
from kio.index import load_request_schema

from kraftlite.metadata.records import AccessControlEntryRecord
from kraftlite.model.acls import Operation, PatternType, Permission, ResourceType
from kraftlite.model.ids import random_uuid
from kraftlite.model.principal import USER, Principal, Requester
from kraftlite.protocol.kio_codec import decode_request
from kraftlite.runtime.trace import NullTracer
from kraftlite.security.authorizer import Authorizer, Decision
from kraftlite.security.gate import Gate
from kraftlite.wire.apis.call import Call
from kraftlite.wire.rights.table import BROKER_ROWS
from tests.harness.extreme import NONE, Extreme, extreme_body

NAMES = 200
AT_ONCE = 16
"""Decisions: those about all operations on one group, and about the request as a whole."""
T = TypeVar("T")
EVE = Requester(Principal(USER, "eve"), "127.0.0.1", "eve")
LISTS = (
    (8, 9, "topics"),
    (9, 9, "groups"),
    (10, 6, "coordinator_keys"),
    (15, 5, "groups"),
    (21, 2, "topics"),
    (23, 4, "topics"),
    (24, 3, "v3_and_below_topics"),
    (28, 3, "topics"),
    (32, 4, "resources"),
    (42, 2, "groups_names"),
    (47, 0, "topics"),
    (61, 0, "topics"),
    (65, 0, "transactional_ids"),
    (68, 1, "subscribed_topic_names"),
    (69, 1, "group_ids"),
)
"""API, version and the list of what rights are needed for."""


def entry(kind: ResourceType, name: str, pattern: PatternType, who: str = "User:*") -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=random_uuid(random.Random(f"{kind} {name} {who}")),
        resource_type=kind,
        resource_name=name,
        pattern_type=pattern,
        principal=who,
        host="*",
        operation=Operation.ALL,
        permission_type=Permission.ALLOW,
    )


def authorizer_of(*kinds: ResourceType) -> Counting:
    """Everything of these kinds is allowed, and of others a few prefixes."""
    authorizer = Counting()
    entries = [entry(kind, "*", PatternType.LITERAL) for kind in kinds]
    for kind in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID):
        entries += [entry(kind, "team-" * length, PatternType.PREFIXED) for length in (1, 2, 3, 4, 5)]
    authorizer.update({one.id: one for one in entries})
    return authorizer


class Counting(Authorizer):
    """Notes how many decisions are asked for."""

    def __init__(self) -> None:
        super().__init__(frozenset(), allow_everyone=False)
        self.asked = 0

    def decide(self, principal: Principal, host: str, operation: int, resource_type: int, name: str) -> Decision:
        self.asked += 1
        return super().decide(principal, host, operation, resource_type, name)


class CountedTurns:
    """Notes the most decisions between two places where others may have their turn."""

    def __init__(self, authorizer: Counting) -> None:
        self._authorizer = authorizer
        self._last = authorizer.asked
        self.most = 0

    async def next(self) -> None:
        self.most = max(self.most, self._authorizer.asked - self._last)
        self._last = self._authorizer.asked

    async def each(self, items: Iterable[T]) -> AsyncIterator[T]:
        for item in items:
            await self.next()
            yield item


def request_of(key: int, version: int, way: str) -> Any:
    numbers = iter(range(10**9))
    how = Extreme(
        name=way,
        number=lambda _: 2,
        text=lambda: f"n{next(numbers)}",
        data=b"",
        float64=0.0,
        flag=True,
        uuid=NONE,
        entries=NAMES,
        longest=(way,),
        tags=False,
    )
    return decode_request(key, version, memoryview(extreme_body(key, version, how)), 0)


async def answered(call: Call, request: Any) -> dict[str, object]:
    """The answer of an API that has nothing."""
    nothing = {"topics": [], "members": [], "group_id": "g", "error_code": 0, "authorized_operations": 0}
    groups = [dict(nothing) for _ in getattr(request, "groups", None) or getattr(request, "group_ids", None) or ()]
    lists: dict[str, object] = {name: [] for name in ("topics", "results", "coordinators", "transaction_states", "responses")}
    return {**lists, "groups": groups, "error_code": 0}


@pytest.mark.parametrize("kinds", [(), (ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID), tuple(ResourceType)])
@pytest.mark.parametrize(("key", "version", "way"), LISTS)
async def test_who_may_what_is_decided_in_turns(key: int, version: int, way: str, kinds: tuple[ResourceType, ...]) -> None:
    """CP-68."""
    guard = BROKER_ROWS[key].guard
    assert guard is not None and way in {one.name for one in fields(cast(Any, load_request_schema(key, version)))}
    authorizer = authorizer_of(*kinds)
    turns = CountedTurns(authorizer)
    call = cast(Call, SimpleNamespace(ctx=SimpleNamespace(turns=turns), version=version))
    rights = Gate(authorizer, lambda: 0, NullTracer()).rights(EVE, str(key))
    await guard(call, rights, request_of(key, version, way), answered)
    await turns.next()
    assert authorizer.asked >= 1 and turns.most <= AT_ONCE
