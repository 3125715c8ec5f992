"""Limits of connections that change while a broker runs (KIP-402)."""

from __future__ import annotations

from tests.harness.wire_fakes import Harness

METADATA_ALL = {
    "topics": None,
    "allow_auto_topic_creation": False,
    "include_cluster_authorized_operations": False,
    "include_topic_authorized_operations": False,
}


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
