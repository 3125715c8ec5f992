"""Every API in every version, asked for the least, the most, nothing and null: answered, or the connection is closed (CP-02)."""

from __future__ import annotations

import asyncio
import struct

import pytest

from kraftlite.coordinator.core.placement import OFFSETS_TOPIC
from tests.harness.extreme import EXTREMES, Extreme, everything, extreme_request
from tests.harness.offsets_log import GroupHarness
from tests.harness.wire_fakes import RawClient, partition

PRODUCE, API_VERSIONS = 0, 18


async def send_to(h: GroupHarness, client: RawClient, key: int, version: int, how: Extreme) -> bytes | None:
    """The answer, or None: the connection was closed. Time goes on until one of them."""
    client.send_frame(extreme_request(key, version, how, 5))
    if key == PRODUCE and how.number(">h") == 0:  # acks=0 has no answer, so something else is asked behind it
        client.send_frame(struct.pack(">hhih", API_VERSIONS, 0, 6, -1))
    reading = asyncio.ensure_future(client.read_frame(20))
    try:
        while not reading.done():
            await asyncio.wait((reading,), timeout=0.02)
            if not reading.done():
                h.clock.advance(500)
        return reading.result()
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


@pytest.mark.parametrize("how", EXTREMES, ids=lambda how: how.name)
async def test_every_api_survives_its_extremes(how: Extreme) -> None:
    async with GroupHarness({"events": [partition([1])], OFFSETS_TOPIC: [partition([1])]}) as h:
        failed: list[str] = []
        for key, version in everything(h.apis.ranges):
            client = await h.client()
            if (await send_to(h, client, key, version, how)) is None:
                client.close()
            failed += [f"{key} v{version}: {what}" for what in (*h.faults, *h.bugs, *h.tasks.failures)]
            h.faults.clear()
            h.tasks.failures.clear()
            h.tracer.events.clear()
        assert not failed, "\n".join(failed)
