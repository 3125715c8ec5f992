"""The largest answers that travel between nodes, one that is too large, and one that no message can express."""

from __future__ import annotations

import asyncio

import pytest

from kraftlite.model.limits import MAX_BATCH_BYTES, MIB, RPC_MAX_MESSAGE_BYTES
from kraftlite.model.messages.methods import RAFT_FETCH
from kraftlite.runtime.ports import TransportError
from kraftlite.runtime.trace.rpc import RpcRequestFailed
from tests.unit.rpc.test_transport import fetch_request, pair, until


async def test_the_largest_batch_travels_with_much_beside_it() -> None:
    size = MAX_BATCH_BYTES + 8 * MIB
    async with pair() as (client, endpoint, *_):
        fetched = await client.call(endpoint, RAFT_FETCH, fetch_request(4, max_bytes=size), 60_000)
        assert len(fetched.payload) == size


async def test_an_answer_that_no_message_holds_costs_its_call_and_no_other() -> None:
    async with pair() as (client, endpoint, node, *_):
        waiting = asyncio.create_task(client.call(endpoint, RAFT_FETCH, fetch_request(1), 60_000))
        await until(lambda: node.waiting == 1)
        with pytest.raises(TransportError, match=f"the answer has .* bytes, and a message {RPC_MAX_MESSAGE_BYTES} at most"):
            await client.call(endpoint, RAFT_FETCH, fetch_request(2, max_bytes=RPC_MAX_MESSAGE_BYTES), 20_000)
        node.release.set()
        assert (await waiting).high_watermark == 1
        assert (await client.call(endpoint, RAFT_FETCH, fetch_request(4), 20_000)).high_watermark == 4
        assert [event for event in node.events if isinstance(event, RpcRequestFailed)]


async def test_an_answer_that_no_message_can_express_costs_its_call_at_once_and_no_other() -> None:
    async with pair() as (client, endpoint, node, *_):
        with pytest.raises(TransportError, match="the handler failed: ValueError"):
            await client.call(endpoint, RAFT_FETCH, fetch_request(2**62), 60_000)
        (failed,) = [event for event in node.events if isinstance(event, RpcRequestFailed)]
        assert failed.method == "Raft/Fetch" and "ValueError" in failed.error
        assert (await client.call(endpoint, RAFT_FETCH, fetch_request(2), 5000)).high_watermark == 2
