"""The way to a node whose listener speaks TLS: gRPC dials a door that only this process may use, and what comes in there goes
out through TLS (ADR 17). So a peer is checked by the settings and certificates of the listener as they are at that time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import sys
from pathlib import Path
from typing import Final

from kraftlite.model.ids import Endpoint
from kraftlite.rpc.relay import Half, Relay
from kraftlite.runtime.ports import Tracer, TransportError
from kraftlite.runtime.trace.tls import TlsPeerRefused
from kraftlite.tls.dialling import PeerRefused, dial
from kraftlite.tls.source import TlsSource

DIAL_MS: Final = 5_000
_BACKLOG: Final = 16


class TlsDialler(Relay):
    """One per peer. Everything runs on the node's loop. `open` must have been called before gRPC dials `listen`."""

    def __init__(self, endpoint: Endpoint, source: TlsSource, tracer: Tracer) -> None:
        super().__init__()
        self._endpoint = endpoint
        self._source = source
        self._tracer = tracer
        self._server: asyncio.Server | None = None
        self._told: str | None = None
        self.failure: str | None = None
        """The reason for which the last attempt failed, for the errors of calls; None: it did not."""

    async def open(self) -> None:
        """Raises TransportError when this node has no socket left for it: a later call tries again."""
        if self._server is not None:
            return
        try:
            with contextlib.ExitStack() as made:
                sock = made.enter_context(socket.socket(socket.AF_UNIX))
                sock.bind(self.path)
                loop = asyncio.get_running_loop()
                # Up to here nothing waits: of calls that come together the first one opens the door.
                server = await loop.create_unix_server(lambda: _Local(self), sock=sock, backlog=_BACKLOG, start_serving=False)
                self._server = server
                made.pop_all()
        except OSError as error:
            raise TransportError(f"cannot dial {self._endpoint}: {error.strerror or error}") from None
        await server.start_serving()

    def accepted(self, local: _Local) -> None:
        """gRPC has dialled: do the same, through TLS."""
        self._spawn(self._join(local))

    async def _join(self, local: _Local) -> None:
        source = self._source
        try:
            host, port = self._endpoint.host, self._endpoint.port
            found = await dial(host, port, source.client_context(), self.buffer, DIAL_MS)
        except (OSError, PeerRefused) as error:
            number = error.errno if isinstance(error, OSError) else None
            reason = str(error) if number is None else os.strerror(number).lower()
            self._failed(reason or f"no answer within {DIAL_MS} ms", refused=isinstance(error, PeerRefused))
            local.abort()
            return
        if local.lost or self.closed:
            found.abort()
            local.abort()
            return
        try:
            source.watch(found)
        except ValueError as error:
            found.abort()
            self._failed(str(error), refused=True)
            local.abort()
            return
        peer = Half(self)
        peer.other, local.other = local, peer
        self._carried[peer] = None
        peer.connection_made(found)
        found.set_protocol(peer)
        self.failure = None
        if local.early:
            peer.write(bytes(local.early))
            local.early.clear()
        local.resume_reading()
        peer.resume_reading()

    def ended(self, half: Half) -> None:
        if half in self._carried:
            reason = half.extra_info("tls_failure")
            if isinstance(reason, str):
                self._failed(reason, refused=True)
            elif half.received:
                self._told = None
        super().ended(half)

    def _failed(self, reason: str, *, refused: bool) -> None:
        self.failure = reason
        if refused and reason != self._told:
            self._told = reason
            self._tracer.emit(TlsPeerRefused(peer=str(self._endpoint), reason=reason))

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        super().close()


class _Local(Half):
    """A connection of gRPC of this process to the door."""

    def __init__(self, dialler: TlsDialler) -> None:
        super().__init__(dialler)
        self._dialler = dialler

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if _is_own(transport.get_extra_info("socket")):
            self._dialler.accepted(self)
        else:
            self.abort()

    def buffer_updated(self, nbytes: int) -> None:
        super().buffer_updated(nbytes)
        if self.other is None:  # not before: uvloop begins to read after `connection_made`, paused or not
            self.pause_reading()


def _is_own(sock: socket.socket) -> bool:
    """Return whether this process is at the other end, too: whoever else could dial the door would speak with our certificate."""
    if sys.platform.startswith("linux"):
        size = struct.calcsize("3i")
        process, _, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
        return bool(process == os.getpid())
    return Path(sock.getsockname()).parent.stat().st_mode & 0o077 == 0  # its folder is ours alone
