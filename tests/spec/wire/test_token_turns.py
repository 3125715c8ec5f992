"""Delegation tokens are described in turns, however many owners a client names, and for those whose business they are."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from kraftlite.broker.handlers.tokens import SECRET_KEY
from kraftlite.host.clock import HostClock
from kraftlite.metadata.pmap import PMap
from kraftlite.metadata.records import DelegationTokenRecord
from kraftlite.model.principal import USER, Principal, Requester
from kraftlite.runtime.turns import Turns
from kraftlite.wire.apis.call import Call
from kraftlite.wire.apis.tokens import _describe as describe
from tests.harness.turns import LongestTurn

LIMIT_MS = 100
EVE = Requester(Principal(USER, "eve"), "127.0.0.1", "eve")


async def test_fifty_thousand_owners_are_not_compared_with_each_token() -> None:
    """CP-68: nobody has any of them, and the tokens are somebody else's."""
    ctx = context(PMap({str(number): token(number, f"User:u{number}") for number in range(200)}))
    owners = tuple(SimpleNamespace(principal_type=USER, principal_name=f"x{number}") for number in range(50_000))
    turns = LongestTurn()
    turns.start()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    turns.take()
    assert await described(ctx, owners) == []
    await asyncio.sleep(0)
    turns.stop()
    assert turns.take() < LIMIT_MS


async def test_tokens_are_those_of_owners_requesters_and_renewers() -> None:
    """SE-16."""
    owners = ("User:eve", "User:bob", "User:carol")
    ctx = context(PMap({str(number): token(number, owner) for number, owner in enumerate(owners)}))
    ids = {one: [found["token_id"] for found in await described(ctx, owners_of(*one))] for one in (("bob",), ("carol", "eve"))}
    assert ids == {("bob",): ["1"], ("carol", "eve"): ["0", "2"]}
    assert [found["token_id"] for found in await described(ctx, owners_of("renewer"))] == ["0", "1", "2"]
    assert len(await described(ctx, None)) == 3 and await described(ctx, ()) == []


def token(number: int, owner: str) -> DelegationTokenRecord:
    return DelegationTokenRecord(
        owner=owner,
        requester=owner,
        renewers=("User:renewer",),
        issue_timestamp_ms=1,
        max_timestamp_ms=2,
        expiration_timestamp_ms=2,
        token_id=str(number),
    )


def owners_of(*names: str) -> tuple[Any, ...]:
    return tuple(SimpleNamespace(principal_type=USER, principal_name=name) for name in names)


def context(tokens: PMap[str, DelegationTokenRecord]) -> Any:
    return SimpleNamespace(
        gate=None,
        turns=Turns(HostClock()),
        config=SimpleNamespace(values={SECRET_KEY: "secret"}),
        metadata=SimpleNamespace(image=SimpleNamespace(delegation_tokens=SimpleNamespace(tokens=tokens))),
    )


async def described(ctx: Any, owners: tuple[Any, ...] | None) -> list[Any]:
    call = SimpleNamespace(ctx=ctx, requester=EVE)
    answer = await describe(cast(Call, call), SimpleNamespace(owners=owners))
    assert answer["error_code"] == 0
    return cast(list[Any], answer["tokens"])
