"""The network between processes: loss, delay, cuts, resets, and who learns of them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import Endpoint, NodeId
from kraftlite.model.messages.introspection import NodeStatusRequest, NodeStatusResponse
from kraftlite.model.messages.methods import NODE_STATUS
from kraftlite.runtime.ports import TransportError
from kraftlite.sim.loop import VirtualLoop
from kraftlite.simhost.network import SimHostTransport, SimNetwork
from kraftlite.simhost.process import OUTSIDE, PID, context_of

ONE, TWO = NodeId(1), NodeId(2)
PEER = Endpoint("n2", 9093)


def scenario(body: Callable[[VirtualLoop, SimNetwork, SimHostTransport, SimHostTransport], Awaitable[None]]) -> None:
    loop = VirtualLoop(7)
    network = SimNetwork(loop, random.Random(7), context_of(OUTSIDE))
    one, two = network.transport(ONE, context_of(1)), network.transport(TWO, context_of(2))
    loop.run_until_complete(body(loop, network, one, two))
    loop.close()


def answer() -> NodeStatusResponse:
    return NodeStatusResponse(
        node_id=TWO,
        cluster_id="c",
        roles=(),
        broker_state=None,
        broker_epoch=None,
        raft_state="follower",
        raft_epoch=0,
        leader_id=None,
        raft_high_watermark=None,
        raft_leo=0,
        metadata_offset=-1,
        active_controller=False,
    )


class Echo:
    """A handler that takes its time, and knows how it ended."""

    def __init__(self, takes_s: float = 0.0) -> None:
        self.takes_s = takes_s
        self.served = 0
        self.cancelled = 0
        self.pids: set[int] = set()

    async def __call__(self, request: Any) -> Any:
        self.served += 1
        self.pids.add(PID.get())
        try:
            await asyncio.sleep(self.takes_s)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return answer()


def test_a_call_takes_two_delays_and_runs_in_the_processes_of_both() -> None:
    async def body(loop: VirtualLoop, network: SimNetwork, one: SimHostTransport, two: SimHostTransport) -> None:
        echo = Echo()
        await two.serve(PEER, {NODE_STATUS: echo})
        await one.call(PEER, NODE_STATUS, NodeStatusRequest(), 1000)
        assert 100 <= loop.now_us() <= 1_000
        assert echo.pids == {2}

    scenario(body)


def test_a_cut_is_silence_until_the_timeout_and_one_way_is_one_way() -> None:
    async def body(loop: VirtualLoop, network: SimNetwork, one: SimHostTransport, two: SimHostTransport) -> None:
        echo = Echo()
        await two.serve(PEER, {NODE_STATUS: echo})
        network.cut(TWO, ONE, one_way=True)
        with pytest.raises(TransportError, match="timed out"):
            await one.call(PEER, NODE_STATUS, NodeStatusRequest(), 1000)
        assert loop.now_us() >= 1_000_000
        assert echo.served == 1, "the request arrived; its answer did not"
        network.heal()
        await one.call(PEER, NODE_STATUS, NodeStatusRequest(), 1000)

    scenario(body)


def test_a_refused_link_fails_at_once_and_so_does_a_port_nobody_serves() -> None:
    async def body(loop: VirtualLoop, network: SimNetwork, one: SimHostTransport, two: SimHostTransport) -> None:
        with pytest.raises(TransportError, match="refused"):
            await one.call(PEER, NODE_STATUS, NodeStatusRequest(), 1000)
        await two.serve(PEER, {NODE_STATUS: Echo()})
        network.refuse(ONE, TWO)
        with pytest.raises(TransportError, match="refused"):
            await one.call(PEER, NODE_STATUS, NodeStatusRequest(), 1000)
        assert loop.now_us() < 10_000

    scenario(body)


def test_a_reset_is_seen_by_both_ends() -> None:
    async def body(loop: VirtualLoop, network: SimNetwork, one: SimHostTransport, two: SimHostTransport) -> None:
        echo = Echo(takes_s=10)
        await two.serve(PEER, {NODE_STATUS: echo})
        calling = asyncio.ensure_future(one.call(PEER, NODE_STATUS, NodeStatusRequest(), 5000))
        await asyncio.sleep(0.1)
        network.reset(ONE, TWO)
        with pytest.raises(TransportError, match="reset"):
            await calling
        await asyncio.sleep(0.1)
        assert echo.cancelled == 1

    scenario(body)


def test_a_callers_timeout_cancels_the_handler() -> None:
    async def body(loop: VirtualLoop, network: SimNetwork, one: SimHostTransport, two: SimHostTransport) -> None:
        echo = Echo(takes_s=10)
        await two.serve(PEER, {NODE_STATUS: echo})
        with pytest.raises(TransportError, match="timed out"):
            await one.call(PEER, NODE_STATUS, NodeStatusRequest(), 100)
        await asyncio.sleep(0.1)
        assert echo.cancelled == 1

    scenario(body)


def test_a_dead_node_resets_its_callers_and_its_port_is_free() -> None:
    async def body(loop: VirtualLoop, network: SimNetwork, one: SimHostTransport, two: SimHostTransport) -> None:
        await two.serve(PEER, {NODE_STATUS: Echo(takes_s=10)})
        calling = asyncio.ensure_future(one.call(PEER, NODE_STATUS, NodeStatusRequest(), 5000))
        await asyncio.sleep(0.1)
        two.drop()
        with pytest.raises(TransportError, match="reset"):
            await calling
        again = network.transport(TWO, context_of(3))
        await again.serve(PEER, {NODE_STATUS: Echo()})
        await one.call(PEER, NODE_STATUS, NodeStatusRequest(), 1000)

    scenario(body)


def test_loss_and_duplicates_come_as_often_as_asked() -> None:
    async def body(loop: VirtualLoop, network: SimNetwork, one: SimHostTransport, two: SimHostTransport) -> None:
        echo = Echo()
        await two.serve(PEER, {NODE_STATUS: echo})
        network.link(ONE, TWO).loss = 300_000
        network.link(ONE, TWO).duplicates = 300_000
        failed = 0
        for _ in range(300):
            try:
                await one.call(PEER, NODE_STATUS, NodeStatusRequest(), 50)
            except TransportError:
                failed += 1
        await asyncio.sleep(1)
        assert 60 <= failed <= 120
        assert 230 <= echo.served <= 320
        assert network.stats.lost == failed
        assert network.stats.duplicated > 30

    scenario(body)


def test_a_refusal_arrives_as_the_same_refusal() -> None:
    async def body(loop: VirtualLoop, network: SimNetwork, one: SimHostTransport, two: SimHostTransport) -> None:
        async def refuse(request: Any) -> Any:
            raise ApiError(ErrorCode.NOT_CONTROLLER, "not me")

        await two.serve(PEER, {NODE_STATUS: refuse})
        with pytest.raises(ApiError, match="not me"):
            await one.call(PEER, NODE_STATUS, NodeStatusRequest(), 50)

    scenario(body)


def test_a_paused_node_answers_late() -> None:
    async def body(loop: VirtualLoop, network: SimNetwork, one: SimHostTransport, two: SimHostTransport) -> None:
        await two.serve(PEER, {NODE_STATUS: Echo()})
        loop.pause(2)
        calling = asyncio.ensure_future(one.call(PEER, NODE_STATUS, NodeStatusRequest(), 5000))
        await asyncio.sleep(2)
        assert not calling.done()
        loop.resume(2)
        await calling
        assert loop.now_us() < 2_100_000

    scenario(body)


@pytest.mark.parametrize(("least_us", "most_us"), [(50, 500), (0, 0), (7, 7), (1, 1 << 40), (2_000, 40_000)])
def test_delays_are_those_that_randint_draws(least_us: int, most_us: int) -> None:
    loop, expected = VirtualLoop(7), random.Random(3)
    network = SimNetwork(loop, random.Random(3), context_of(OUTSIDE))
    loop.close()
    wanted = [expected.randint(least_us, most_us) for _ in range(200)]
    assert [network._between(least_us, most_us) for _ in range(200)] == wanted


def test_a_link_whose_longest_delay_is_less_than_its_shortest_is_refused() -> None:
    loop = VirtualLoop(7)
    network = SimNetwork(loop, random.Random(3), context_of(OUTSIDE))
    loop.close()
    with pytest.raises(ValueError, match="from 9 to 8 us"):
        network._between(9, 8)


def _lossy(network: SimNetwork) -> None:
    network.link(ONE, TWO).loss = 1


def _slow(network: SimNetwork) -> None:
    network.link(ONE, TWO).max_us = 2 * network.default.max_us


@pytest.mark.parametrize(
    ("change", "prompt"),
    [
        (lambda network: None, True),
        (lambda network: network.refuse(ONE, TWO), True),
        (lambda network: network.cut(TWO, ONE, one_way=True), True),
        (lambda network: network.cut(ONE, TWO, one_way=True), False),
        (_lossy, False),
        (_slow, False),
    ],
)
def test_a_link_is_prompt_whose_messages_arrive_or_fail_at_once(change: Callable[[SimNetwork], None], prompt: bool) -> None:
    async def body(loop: VirtualLoop, network: SimNetwork, one: SimHostTransport, two: SimHostTransport) -> None:
        change(network)
        assert network.is_prompt(ONE, TWO) is prompt

    scenario(body)
