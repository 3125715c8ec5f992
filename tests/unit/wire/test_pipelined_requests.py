"""Requests that come together: the first few are taken together, the rest in turns."""

from __future__ import annotations

import asyncio
import struct
from time import perf_counter_ns

from kraftlite.wire.frames import Connection, ConnectionLimits
from kraftlite.wire.turns import SLICE_NS, Turns
from tests.unit.wire.test_leased_frames import Owner

UNDER_WAY = 5
"""An idempotent producer keeps at most so many."""


async def test_what_an_idempotent_producer_has_under_way_is_taken_before_anything_else_happens_on_the_node() -> None:
    """Else the broker may begin to lead between two of its requests, and the second is out of order."""
    happened: list[str] = []

    def handle(connection: Connection, frame: memoryview) -> None:
        if not happened:
            asyncio.get_running_loop().call_soon(happened.append, "else")
        happened.append("request")
        connection.open_slot().send((b".",))

    def connect() -> Connection:
        owner = Owner()
        owner.share.turns = Turns(lambda: perf_counter_ns() - SLICE_NS)  # a slice is over as soon as it begins
        return Connection(owner, handle, ConnectionLimits(max_request_bytes=1_000_000))

    server = await asyncio.get_running_loop().create_server(connect, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    try:
        count = UNDER_WAY + 2
        writer.write(struct.pack(">i2s", 2, b"ab") * count)
        assert await reader.readexactly(count) == b"." * count
        assert happened[: UNDER_WAY + 1] == ["request"] * UNDER_WAY + ["else"]
        assert happened.count("request") == count
    finally:
        writer.close()
        server.close()
