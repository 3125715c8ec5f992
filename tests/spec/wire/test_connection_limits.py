"""Limits of connections and of how fast they are made, also while a broker runs. CB-05, QU-08, QU-09 (KIP-402, KIP-612)."""

from __future__ import annotations

import asyncio

import pytest

from kraftlite.quotas.rates import QuotaWindows
from kraftlite.runtime.trace.wire import ConnectionClosed, ConnectionRefused
from kraftlite.wire.doors import ConnectionRules, Door, Doors
from tests.harness.clock import FakeClock
from tests.harness.wire_fakes import LISTENER, Harness, RawClient, until

METADATA_ALL = {
    "topics": None,
    "allow_auto_topic_creation": False,
    "include_cluster_authorized_operations": False,
    "include_topic_authorized_operations": False,
}


async def serve(client: RawClient) -> None:
    await client.call(3, 9, METADATA_ALL)


async def waits(client: RawClient, h: Harness) -> None:
    before = h.apis.requests.total()
    client.send(18, 0, {})
    with pytest.raises(TimeoutError):
        await client.read_frame(timeout=0.05)
    assert h.apis.requests.total() == before


async def test_cb_05_limits_of_connections_change_while_the_node_runs() -> None:
    async with Harness(rules=ConnectionRules(most=1)) as h:
        one, two = await h.client(), await h.client()
        await serve(one)
        await waits(two, h)
        h.doors.update(ConnectionRules(most=2, most_per_ip=2))
        await two.read_frame()
        h.doors.update(ConnectionRules(most=5, most_per_ip=2))
        assert await (await h.client()).closed(), "the limit of one address"
        h.doors.update(ConnectionRules(most=1, most_per_ip=1))
        await serve(one)
        await serve(two)


async def test_cp_06_total_connection_limit() -> None:
    """One too many is served when another one has gone, as in Kafka (QU-08)."""
    async with Harness(rules=ConnectionRules(most=1)) as h:
        one, two = await h.client(), await h.client()
        await one.call(3, 9, METADATA_ALL)
        await until(lambda: h.listener.door.waiting == 1)
        one.close()
        await two.call(3, 9, METADATA_ALL)


async def test_qu_08_a_listener_has_a_limit_of_its_own() -> None:
    async with Harness(rules=ConnectionRules(most_of={LISTENER: 1, "OTHER": 0})) as h:
        one, two = await h.client(), await h.client()
        await serve(one)
        await waits(two, h)
        one.close()
        await two.read_frame()


async def test_qu_08_a_client_that_gives_up_waiting_takes_nobodys_place() -> None:
    async with Harness(rules=ConnectionRules(most=1)) as h:
        one, two, three = await h.client(), await h.client(), await h.client()
        await serve(one)
        await until(lambda: h.listener.door.waiting == 2)
        two.close()
        one.close()
        await serve(three)


async def test_qu_08_no_more_wait_than_fit_into_the_queue() -> None:
    async with Harness(rules=ConnectionRules(most=1), listener={"backlog": 2}) as h:
        one = await h.client()
        await serve(one)
        await h.client()
        await h.client()
        await until(lambda: h.listener.door.waiting == 2)
        assert await (await h.client()).closed()
        assert any(isinstance(event, ConnectionRefused) for event in h.tracer.events)


async def test_qu_09_connections_beyond_the_rate_come_in_one_after_the_other() -> None:
    """Two a second: ten full windows allow twenty at first, and the next one waits for half a second."""
    async with Harness(rules=ConnectionRules(rate=2)) as h:
        for _ in range(20):
            await serve(await h.client())
        late, later = await h.client(), await h.client()
        await waits(late, h)
        h.clock.advance(500)
        await late.read_frame()
        await waits(later, h)
        h.clock.advance(1_000)
        await later.read_frame()


async def test_qu_09_a_rate_of_one_listener() -> None:
    async with Harness(rules=ConnectionRules(rate_of={LISTENER: 1})) as h:
        for _ in range(10):
            await serve(await h.client())
        late = await h.client()
        await waits(late, h)
        h.clock.advance(1_000)
        await late.read_frame()


async def test_qu_09_an_address_beyond_its_quota_is_kept_unserved_and_closed() -> None:
    async with Harness() as h:
        h.doors.ip_quota = lambda address: 1.0 if address == "127.0.0.1" else None
        for _ in range(10):
            await serve(await h.client())
        late = await h.client()
        await waits(late, h)
        h.clock.advance(1_000)
        assert await late.closed()
        assert [event.reason for event in h.tracer.events if isinstance(event, ConnectionClosed)] == [
            "127.0.0.1 makes more connections than its quota allows"
        ]
        h.clock.advance(10_000)
        await serve(await h.client())


class Guest:
    def __init__(self, host: str = "10.0.0.1") -> None:
        self.peer_host = host
        self.lost = False
        self.muted = False
        self.reason: str | None = None

    def mute(self, delay_ms: int) -> None:
        self.muted = True

    def unmute(self) -> None:
        self.muted = False

    def fail(self, reason: str) -> None:
        self.reason = reason


def test_qu_09_no_more_come_in_than_the_rate_allows_whoever_tries() -> None:
    """Some thousand at once: they come in at the rate, in their order, and those that are refused count for nobody."""
    clock = FakeClock()
    doors = Doors(clock, ConnectionRules(rate=5), QuotaWindows())
    door = Door(doors, "L", 1_000)
    guests = [Guest() for _ in range(1_500)]
    refused = [guest for guest in guests if door.arrive(guest) is not None]
    assert len(refused) == 500 - 50
    inside: list[int] = []
    for _ in range(60):
        clock.advance(1_000)
        inside.append(door.count)
    assert door.count <= 5 * 71
    assert max(later - earlier for earlier, later in zip(inside, inside[11:], strict=False)) <= 5 * 12 + 1
    assert door.count >= 5 * 40
    assert [guest.muted for guest in guests if guest not in refused][: door.count] == [False] * door.count


def test_qu_09_the_memory_of_addresses_is_bounded() -> None:
    doors = Doors(FakeClock(), ConnectionRules(), QuotaWindows(), 10)
    doors.ip_quota = lambda _address: 5.0
    door = Door(doors, "L", 10)
    for number in range(100):
        assert door.arrive(Guest(f"10.0.0.{number}")) is None
    assert len(doors._addresses) == 10


async def test_qu_08_what_waits_is_closed_with_its_listener() -> None:
    async with Harness(rules=ConnectionRules(most=1)) as h:
        one, two = await h.client(), await h.client()
        await serve(one)
        await until(lambda: h.listener.door.waiting == 1)
        stopping = asyncio.ensure_future(h.listener.stop())
        assert await two.closed()
        h.clock.advance(1_000)
        await stopping
