"""Links between nodes over real sockets that are cut, refused, slow and lossy."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kraftlite.faults.active import Active
from kraftlite.faults.network import FaultyTransport
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.faults import Injection, UnknownFault
from kraftlite.model.ids import Endpoint
from kraftlite.model.messages import raft as r
from kraftlite.model.messages.methods import RAFT_FETCH, VOTE
from kraftlite.rpc.transport import GrpcTransport
from kraftlite.runtime.ports import TransportError, route
from tests.unit.rpc.test_transport import fetch_request, until, vote_request

LONG_MS = 30_000
ANY = Endpoint("127.0.0.1", 0)


class Node:
    """Counts votes, and holds fetches until it is told to answer."""

    def __init__(self) -> None:
        self.votes = 0
        self.fetches = 0
        self.release = asyncio.Event()

    async def vote(self, request: r.VoteRequest) -> r.VoteResponse:
        self.votes += 1
        if request.candidate_epoch == 9:
            raise ApiError(ErrorCode.INVALID_REQUEST, "no")
        return r.VoteResponse(error=ErrorCode.NONE, leader_id=None, leader_epoch=1, leader_endpoint=None, vote_granted=True)

    async def fetch(self, request: r.RaftFetchRequest) -> r.RaftFetchResponse:
        self.fetches += 1
        await self.release.wait()
        raise ApiError(ErrorCode.INVALID_REQUEST, "no")


class Pair:
    """Node 1 calls node 2 and, in vain, node 3."""

    def __init__(self, caller: FaultyTransport, node: Node, peer: Endpoint) -> None:
        self.caller, self.node, self.peer = caller, node, peer

    def begin(self, kind: str, *, amount: int = 0, outgoing: bool = True, incoming: bool = True) -> Active:
        fault = Injection(id="f", kind=kind, for_ms=1, other=2, amount=amount, outgoing=outgoing, incoming=incoming)
        active = Active(fault, 0, lambda: None)
        active.undo = self.caller.begin(active)
        return active

    async def vote(self, epoch: int = 1, timeout_ms: int = LONG_MS) -> r.VoteResponse:
        return await self.caller.call(self.peer, VOTE, vote_request(epoch), timeout_ms)


@asynccontextmanager
async def pair() -> AsyncIterator[Pair]:
    caller, server, node = FaultyTransport(rng=random.Random(1)), GrpcTransport(), Node()
    peer = await server.serve(ANY, dict((route(VOTE, node.vote), route(RAFT_FETCH, node.fetch))))
    caller.nodes = lambda: {peer: 2, Endpoint("127.0.0.1", 1): 3}
    try:
        yield Pair(caller, node, peer)
    finally:
        await caller.close()
        await server.close()


def end(active: Active) -> None:
    assert active.undo is not None
    active.undo()


async def test_without_a_fault_it_is_the_transport_that_it_stands_for() -> None:
    async with pair() as it:
        assert "call" not in vars(it.caller)
        active = it.begin("cut")
        assert "call" in vars(it.caller)
        end(active)
        assert "call" not in vars(it.caller)
        assert (await it.vote()).vote_granted


async def test_requests_over_a_cut_never_arrive_and_their_callers_hear_of_it_when_it_ends() -> None:
    async with pair() as it:
        active = it.begin("cut")
        call = asyncio.create_task(it.vote())
        await until(lambda: active.hits == 1)
        assert it.node.votes == 0
        end(active)
        with pytest.raises(TransportError, match="connection reset at the end of a fault"):
            await call
        assert (await it.vote()).vote_granted


async def test_a_caller_hears_of_a_cut_after_its_timeout() -> None:
    async with pair() as it:
        it.begin("cut")
        with pytest.raises(TransportError, match="no answer in time"):
            await it.vote(timeout_ms=20)


async def test_a_cut_of_what_comes_in_lets_the_request_through_and_loses_the_answer() -> None:
    async with pair() as it:
        it.begin("cut-one-way", outgoing=False)
        with pytest.raises(TransportError):
            await it.vote(timeout_ms=200)
        with pytest.raises(TransportError):
            await it.vote(9, timeout_ms=200)
        assert it.node.votes == 2


async def test_an_answer_on_its_way_is_lost_by_a_cut_that_begins_meanwhile() -> None:
    async with pair() as it:
        call = asyncio.create_task(it.caller.call(it.peer, RAFT_FETCH, fetch_request(), LONG_MS))
        await until(lambda: it.node.fetches == 1)
        active = it.begin("cut")
        it.node.release.set()
        done, _ = await asyncio.wait({call}, timeout=0.2)
        assert not done
        end(active)
        with pytest.raises(TransportError, match="connection reset"):
            await call
        with pytest.raises(ApiError):
            await it.caller.call(it.peer, RAFT_FETCH, fetch_request(), LONG_MS)


async def test_a_refused_link_fails_at_once_also_what_is_under_way() -> None:
    async with pair() as it:
        call = asyncio.create_task(it.caller.call(it.peer, RAFT_FETCH, fetch_request(), LONG_MS))
        await until(lambda: it.node.fetches == 1)
        active = it.begin("refuse")
        with pytest.raises(TransportError):
            await call
        with pytest.raises(TransportError, match="connection refused"):
            await it.vote()
        assert it.node.votes == 0
        end(active)
        assert (await it.vote()).vote_granted


async def test_a_slow_link_takes_its_time_both_ways() -> None:
    async with pair() as it:
        it.begin("slow", amount=50_000)
        began = time.monotonic()
        assert (await it.vote()).vote_granted
        assert time.monotonic() - began >= 0.1
        with pytest.raises(TransportError, match="no answer in time"):
            await it.vote(timeout_ms=20)


async def test_a_lossy_link_loses_some() -> None:
    async with pair() as it:
        active = it.begin("lossy", amount=500_000)
        calls = [asyncio.create_task(it.vote(timeout_ms=1_000)) for _ in range(40)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        lost = sum(isinstance(answer, TransportError) for answer in answers)
        assert 0 < lost < 40
        assert active.hits == lost


async def test_other_links_are_left_alone() -> None:
    async with pair() as it:
        fault = Injection(id="f", kind="cut", for_ms=1, other=3)
        it.caller.begin(Active(fault, 0, lambda: None))
        assert (await it.vote()).vote_granted


async def test_a_node_that_is_not_known_is_refused() -> None:
    async with pair() as it:
        with pytest.raises(UnknownFault, match="node 7 is not known: allowed are 2, 3"):
            it.caller.begin(Active(Injection(id="f", kind="cut", for_ms=1, other=7), 0, lambda: None))
        assert (await it.vote()).vote_granted
