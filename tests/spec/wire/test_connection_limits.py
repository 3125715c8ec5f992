"""Limits of connections that change while the node runs (KIP-402)."""

from __future__ import annotations

from tests.harness.wire_fakes import Harness
from tests.spec.wire.test_connections import METADATA_ALL


async def test_cb_05_limits_of_connections_change_while_the_node_runs() -> None:
    async with Harness(listener={"max_connections": 1}) as h:
        one, two = await h.client(), await h.client()
        assert await two.closed()
        h.listener.limit_connections(3, 2, {})
        three = await h.client()
        await three.call(3, 9, METADATA_ALL)
        assert await (await h.client()).closed(), "the limit of one address"
        h.listener.limit_connections(1, 1, {})
        await one.call(3, 9, METADATA_ALL)
        await three.call(3, 9, METADATA_ALL)
