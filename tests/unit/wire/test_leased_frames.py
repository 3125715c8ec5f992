"""A frame that is kept while it is worked on off the loop: nothing else comes from its connection until it is given back."""

from __future__ import annotations

import asyncio
import struct

from kraftlite.wire.frames import Connection, ConnectionLimits
from kraftlite.wire.share import NodeShare


class Owner:
    def __init__(self) -> None:
        self.share = NodeShare(self.now_ms)

    def opened(self, connection: Connection) -> bool:
        return True

    def closed(self, connection: Connection, reason: str | None) -> None: ...

    def now_ms(self) -> int:
        return 0


async def test_a_leased_frame_stays_as_it_is_and_what_comes_behind_it_waits() -> None:
    taken: list[memoryview] = []
    connections: list[Connection] = []

    def handle(connection: Connection, frame: memoryview) -> None:
        taken.append(frame)
        if len(taken) == 1:
            connection.lease_frame()
            connections.append(connection)
        connection.open_slot().send((bytes(frame[:1]),))

    limits = ConnectionLimits(max_request_bytes=1_000_000)
    server = await asyncio.get_running_loop().create_server(lambda: Connection(Owner(), handle, limits), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    try:
        frames = [bytes([at]) * size for at, size in ((1, 10), (2, 20), (3, 300_000))]
        writer.write(b"".join(struct.pack(">i", len(frame)) + frame for frame in frames))
        assert await reader.readexactly(1) == b"\x01"
        for _ in range(20):
            await asyncio.sleep(0.002)
        assert [bytes(frame) for frame in taken] == [frames[0]]
        connections[0].return_frame()
        assert await reader.readexactly(2) == b"\x02\x03"
        assert bytes(taken[-1]) == frames[2]
    finally:
        writer.close()
        server.close()
