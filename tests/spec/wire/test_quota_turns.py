"""The quotas of a cluster with many users are described in turns."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kraftlite.host.clock import HostClock
from kraftlite.metadata.pmap import PMap
from kraftlite.model.messages.security import QuotaEntityPart
from kraftlite.runtime.turns import OffLoop, Turns
from kraftlite.wire.apis.call import Call
from kraftlite.wire.apis.quotas import _describe as describe
from tests.harness.turns import LongestTurn
from tests.spec.wire.test_long_requests import ThreadedTasks

LIMIT_MS = 100
MANY = 40_000


@pytest.mark.usefixtures("uncollected")
async def test_cp_68_the_quotas_of_many_users_are_described_in_turns() -> None:
    users = {(QuotaEntityPart(type="user", name=f"u{at}"),): {"producer_byte_rate": "1.5"} for at in range(MANY)}
    image = SimpleNamespace(client_quotas=SimpleNamespace(entities=PMap(users)))
    off_loop = OffLoop(ThreadedTasks())
    ctx = SimpleNamespace(turns=Turns(HostClock()), off_loop=off_loop, metadata=SimpleNamespace(image=image))
    turns = LongestTurn()
    turns.start()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    turns.take()
    answer = await describe(cast(Call, SimpleNamespace(ctx=ctx)), SimpleNamespace(components=(), strict=False))
    await asyncio.sleep(0)
    turns.stop()
    found = cast(list[Any], answer["entries"])
    assert len(found) == MANY and found[0]["values"] == [{"key": "producer_byte_rate", "value": 1.5}]
    assert turns.take() < LIMIT_MS
