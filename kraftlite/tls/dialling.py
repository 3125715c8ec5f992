"""The dialling side: one connection with its handshake done. Source: SE-06."""

from __future__ import annotations

import asyncio
import ssl

from kraftlite.tls.transport import TlsTransport


class PeerRefused(Exception):
    """The peer is not trusted, does not trust us, or does not speak TLS. The text says which."""


async def dial(
    host: str, port: int, context: ssl.SSLContext, buffer: memoryview, timeout_ms: int, *, server_name: str | None = None
) -> TlsTransport:
    """A connection that does not read yet: `set_protocol`, then `resume_reading`. `buffer` is that of all connections of the
    caller's loop. Raises OSError when nobody answers, TimeoutError among them, and PeerRefused."""
    waits = _Handshake(buffer)
    transport = TlsTransport(context, waits, server_hostname=server_name or host, server=False)
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            await asyncio.get_running_loop().create_connection(lambda: transport, host, port)
            await waits.done
    except BaseException:
        transport.abort()
        if waits.done.done() and not waits.done.cancelled():
            waits.done.exception()  # seen
        raise
    return transport


class _Handshake:
    """One handshake, worked on where its bytes come in. What comes later in many records has turns. As `HandshakeKeeper`."""

    def __init__(self, buffer: memoryview) -> None:
        self.buffer = buffer
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def began(self, transport: TlsTransport) -> None:
        pass

    def due(self, transport: TlsTransport) -> None:
        if self.done.done():
            asyncio.get_running_loop().call_soon(transport.go_on)
        else:
            transport.go_on()

    def secured(self, transport: TlsTransport) -> None:
        transport.pause_reading()
        if not self.done.done():
            self.done.set_result(None)

    def failed(self, transport: TlsTransport, reason: str) -> None:
        if not self.done.done():
            self.done.set_exception(PeerRefused(reason or "the peer closed the connection in the middle of the handshake"))
