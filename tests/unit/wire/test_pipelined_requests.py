"""Requests that come together: the first few are taken together, the rest in turns."""

from __future__ import annotations

import asyncio
import struct
import time

from kraftlite.wire.frames import RUN_REQUESTS, Connection, ConnectionLimits
from tests.unit.wire.test_leased_frames import Owner


async def test_what_an_idempotent_producer_has_under_way_is_taken_before_anything_else_happens_on_the_node() -> None:
    """Else the broker may begin to lead between two of its requests, and the second is out of order."""
    happened: list[str] = []

    def handle(connection: Connection, frame: memoryview) -> None:
        if not happened:
            asyncio.get_running_loop().call_soon(happened.append, "else")
        happened.append("request")
        time.sleep(0.0015)  # more than the slice of time that a connection has
        connection.open_slot().send((b".",))

    limits = ConnectionLimits(max_request_bytes=1_000_000)
    server = await asyncio.get_running_loop().create_server(lambda: Connection(Owner(), handle, limits), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    try:
        count = RUN_REQUESTS + 2
        writer.write(struct.pack(">i2s", 2, b"ab") * count)
        assert await reader.readexactly(count) == b"." * count
        assert happened == ["request"] * RUN_REQUESTS + ["else"] + ["request"] * 2
    finally:
        writer.close()
        server.close()
