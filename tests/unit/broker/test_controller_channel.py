from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from kraftlite.broker.controller_channel import RaftControllerChannel
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import Endpoint, NodeId
from kraftlite.model.messages.controller import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from kraftlite.model.messages.methods import ALLOCATE_PRODUCER_IDS
from kraftlite.runtime.ports import TransportError
from tests.harness.broker_ports import KnownLeader, ScriptedTransport, TestBed

ONE, TWO = Endpoint("c1", 1), Endpoint("c2", 2)
REQUEST = AllocateProducerIdsRequest(broker_id=NodeId(1), broker_epoch=3)
BLOCK = AllocateProducerIdsResponse(first_producer_id=0, count=1000)


def make(answer: Any, leader: Endpoint | None = ONE, attempt_timeout_ms: int | None = None) -> tuple[TestBed, KnownLeader, Any]:
    bed = TestBed(transport=ScriptedTransport(answer))
    raft = KnownLeader(leader)
    return bed, raft, RaftControllerChannel(bed.ports, raft, attempt_timeout_ms=attempt_timeout_ms)  # type: ignore[arg-type]


async def test_bl_04_follows_the_leader_of_the_quorum() -> None:
    def answer(peer: Endpoint, method: Any, request: Any) -> Any:
        if peer == ONE:
            raft.endpoint = TWO
            raise ApiError(ErrorCode.NOT_CONTROLLER)
        return BLOCK

    bed, raft, channel = make(answer)
    call = asyncio.ensure_future(channel.call(ALLOCATE_PRODUCER_IDS, REQUEST, 5_000))
    await bed.clock.run_for(100)
    assert await call == BLOCK
    assert [peer for peer, _, _ in bed.transport.calls] == [ONE, TWO]


async def test_bl_04_a_broken_connection_is_tried_again() -> None:
    failures = iter([TransportError("reset"), TransportError("refused")])

    def answer(peer: Endpoint, method: Any, request: Any) -> Any:
        for failure in failures:
            raise failure
        return BLOCK

    bed, _, channel = make(answer)
    call = asyncio.ensure_future(channel.call(ALLOCATE_PRODUCER_IDS, REQUEST, 5_000))
    await bed.clock.run_for(200)
    assert await call == BLOCK


async def test_other_refusals_reach_the_caller_at_once() -> None:
    def answer(peer: Endpoint, method: Any, request: Any) -> Any:
        raise ApiError(ErrorCode.STALE_BROKER_EPOCH, "epoch 3 is stale")

    bed, _, channel = make(answer)
    with pytest.raises(ApiError, match="STALE_BROKER_EPOCH"):
        await channel.call(ALLOCATE_PRODUCER_IDS, REQUEST, 5_000)
    assert len(bed.transport.calls) == 1


@pytest.mark.parametrize("leader", [None, ONE])
async def test_without_an_active_controller_it_times_out_saying_why(leader: Endpoint | None) -> None:
    bed, _, channel = make(None, leader)
    call = asyncio.ensure_future(channel.call(ALLOCATE_PRODUCER_IDS, REQUEST, 1_000))
    await bed.clock.run_for(990)
    assert not call.done()
    await bed.clock.run_for(20)
    with pytest.raises(ApiError, match=r"1000 ms") as caught:
        await call
    assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT


async def test_bl_04_a_silent_controller_is_given_up_when_another_leads() -> None:
    silent: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    bed, raft, channel = make(lambda peer, method, request: silent if peer == ONE else BLOCK)
    call = asyncio.ensure_future(channel.call(ALLOCATE_PRODUCER_IDS, REQUEST, 60_000))
    await bed.clock.run_for(1_000)
    assert not call.done()
    raft.endpoint = TWO
    await bed.clock.run_for(50)
    assert call.done() and await call == BLOCK
    assert silent.cancelled()


async def test_a_cancelled_call_leaves_nothing_behind() -> None:
    silent: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    bed, _, channel = make(lambda peer, method, request: silent)
    call = asyncio.ensure_future(channel.call(ALLOCATE_PRODUCER_IDS, REQUEST, 60_000))
    await bed.clock.run_for(100)
    call.cancel()
    await asyncio.wait((call,))
    await bed.clock.settle()
    assert bed.transport.pending == 0 and bed.clock.next_deadline_ms is None


async def test_a_call_that_is_given_up_may_end_with_an_error_of_its_own() -> None:
    class EndsWithAnError(ScriptedTransport):
        """As gRPC does when a call is cancelled while its deadline passes."""

        async def call(self, peer: Endpoint, method: Any, request: Any, timeout_ms: int) -> Any:
            try:
                return await super().call(peer, method, request, timeout_ms)
            except asyncio.CancelledError:
                raise TransportError("deadline exceeded") from None

    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: complaints.append(context))
    silent: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    bed = TestBed(transport=EndsWithAnError(lambda peer, method, request: silent if peer == ONE else BLOCK))
    raft = KnownLeader(ONE)
    channel = RaftControllerChannel(bed.ports, raft)  # type: ignore[arg-type]
    call = asyncio.ensure_future(channel.call(ALLOCATE_PRODUCER_IDS, REQUEST, 60_000))
    await bed.clock.run_for(100)
    raft.endpoint = TWO
    await bed.clock.run_for(50)
    assert await call == BLOCK
    gc.collect()
    assert complaints == []
