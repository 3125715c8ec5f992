"""The in-memory network that other tests stand on."""

from __future__ import annotations

import asyncio

import pytest

from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import Endpoint
from kraftlite.model.messages.controller import UnregisterBrokerRequest
from kraftlite.model.messages.introspection import ReplicaStatesRequest, ReplicaStatesResponse
from kraftlite.model.messages.methods import REPLICA_STATES, UNREGISTER_BROKER
from kraftlite.runtime.ports import TransportError
from tests.harness.clock import FakeClock
from tests.harness.transport import MemNetwork, MemTransport

REQUEST = ReplicaStatesRequest(topics=None)
TWO = Endpoint("two", 9093)


async def answer(request: ReplicaStatesRequest) -> ReplicaStatesResponse:
    if request.topics == ("refuse",):
        raise ApiError(ErrorCode.INVALID_REQUEST, "no")
    if request.topics == ("wait",):
        await asyncio.Event().wait()
    return ReplicaStatesResponse(replicas=())


async def network(clock: FakeClock | None = None) -> tuple[MemNetwork, MemTransport, MemTransport]:
    net = MemNetwork(clock)
    one, two = net.transport("one"), net.transport("two")
    assert await two.serve(TWO, {REPLICA_STATES: answer}) == TWO
    return net, one, two


async def test_calls_are_answered_refused_and_typed() -> None:
    net, one, two = await network()
    assert await one.call(TWO, REPLICA_STATES, REQUEST, 1000) == ReplicaStatesResponse(replicas=())
    assert net.calls == [("one", "two", "ReplicaStates")]
    with pytest.raises(ApiError, match="INVALID_REQUEST: no"):
        await one.call(TWO, REPLICA_STATES, ReplicaStatesRequest(topics=("refuse",)), 1000)
    with pytest.raises(TransportError, match="not served"):
        await one.call(TWO, UNREGISTER_BROKER, UnregisterBrokerRequest(broker_id=1, timeout_ms=1), 1000)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        await one.call(TWO, UNREGISTER_BROKER, REQUEST, 1000)
    with pytest.raises(OSError, match="address already in use"):
        await two.serve(TWO, {})
    assert (await two.serve(Endpoint("two", 0), {})).port > 0


async def test_a_cut_link_refuses_both_ways_until_it_is_healed() -> None:
    net, one, _ = await network()
    waiting = asyncio.create_task(one.call(TWO, REPLICA_STATES, ReplicaStatesRequest(topics=("wait",)), 1000))
    await FakeClock.settle()
    net.cut("one", "two")
    with pytest.raises(TransportError, match="connection reset"):
        await waiting
    with pytest.raises(TransportError, match="connection refused"):
        await one.call(TWO, REPLICA_STATES, REQUEST, 1000)
    net.heal("one")
    await one.call(TWO, REPLICA_STATES, REQUEST, 1000)


async def test_a_held_link_and_a_slow_handler_end_with_the_timeout() -> None:
    clock = FakeClock()
    net, one, _ = await network(clock)
    net.hold("one", "two")
    for topics in (None, ("wait",)):
        call = asyncio.create_task(one.call(TWO, REPLICA_STATES, ReplicaStatesRequest(topics=topics), 500))
        await clock.run_for(499)
        assert not call.done()
        await clock.run_for(1)
        with pytest.raises(TransportError, match="timed out"):
            await call
        net.heal()


async def test_a_delayed_link_takes_its_time() -> None:
    clock = FakeClock()
    net, one, _ = await network(clock)
    net.delay("one", "two", 30)
    call = asyncio.create_task(one.call(TWO, REPLICA_STATES, REQUEST, 500))
    await clock.run_for(29)
    assert not call.done()
    await clock.run_for(1)
    assert call.done() and await call == ReplicaStatesResponse(replicas=())


async def test_a_killed_node_fails_its_callers_and_can_come_back() -> None:
    net, one, _ = await network()
    waiting = asyncio.create_task(one.call(TWO, REPLICA_STATES, ReplicaStatesRequest(topics=("wait",)), 1000))
    await FakeClock.settle()
    net.kill("two")
    with pytest.raises(TransportError, match="connection reset"):
        await waiting
    with pytest.raises(TransportError, match="connection refused"):
        await one.call(TWO, REPLICA_STATES, REQUEST, 1000)
    await net.transport("two").serve(TWO, {REPLICA_STATES: answer})
    await one.call(TWO, REPLICA_STATES, REQUEST, 1000)
