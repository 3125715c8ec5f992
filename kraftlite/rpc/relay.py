"""Carries connections that somebody else has accepted to a gRPC server of this process (ADR 16).

gRPC binds and accepts by itself and takes no socket from outside. So it listens where only this machine can reach it, and what
comes over an accepted connection is copied there and back, in the loop of the node.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
import sys
import tempfile
import uuid
from collections.abc import Coroutine
from pathlib import Path
from typing import Final, cast

from kraftlite.model.limits import KIB
from kraftlite.model.principal import Principal

MAX_CARRIED: Final = 1_024
"""Connections at a time. A node opens one to each controller, so that a cluster comes nowhere near."""
BUFFER_BYTES: Final = 256 * KIB
"""The most that is copied at a time. One buffer serves all connections, because it is emptied before the next read."""
LINGER_S: Final = 5.0
"""The time that a peer may take to read what is left for it when gRPC has closed its side."""


class Relay:
    """The way to one gRPC server. Everything runs on the node's loop."""

    def __init__(self, most: int = MAX_CARRIED) -> None:
        self._most = most
        self._path, self._name = _private_name()
        self._carried: dict[Half, None] = {}
        """The peers' ends."""
        self._dialling: set[asyncio.Task[None]] = set()
        self._callers: dict[str, Principal] = {}
        """Peers that have shown a certificate, by the name that gRPC knows their connections by."""
        self.authenticates = False
        """Nobody is served whose connection was not carried with a principal. To be set before the server starts."""
        self.closed = False
        self.buffer = memoryview(bytearray(BUFFER_BYTES))

    @property
    def listen(self) -> str:
        """The address that the server must bind, in gRPC's words."""
        return _in_grpcs_words(self._path, self._name)

    @property
    def carried(self) -> int:
        """The connections that are carried now."""
        return len(self._carried)

    @property
    def path(self) -> str:
        """The same address as a socket takes it."""
        return self._path or self._name

    def unsent_bytes(self) -> int:
        """The bytes that peers and server have not taken yet."""
        return sum(half.unsent_bytes() for peer in self._carried for half in (peer, peer.other) if half is not None)

    def carry(self, transport: asyncio.Transport, first: bytes) -> None:
        """Take over a connection that has sent `first` so far. It is cut when there are too many, or when there is no server."""
        if self.closed or len(self._carried) >= self._most:
            transport.abort()
            return
        peer, server = Half(self), Half(self)
        peer.other, server.other = server, peer
        self._carried[peer] = None
        peer.connection_made(transport)
        transport.pause_reading()
        transport.set_protocol(peer)
        self._spawn(self._dial(peer, server, first, transport.get_extra_info("principal")))

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name="rpc-relay")
        self._dialling.add(task)
        task.add_done_callback(self._dialling.discard)

    def caller_at(self, peer: str) -> Principal | None:
        """Return who is at the other end of a connection, by gRPC's name of it; None: not carried, or without a certificate."""
        return self._callers.get(peer)

    async def _dial(self, peer: Half, server: Half, first: bytes, principal: Principal | None) -> None:
        if peer.lost:
            return  # nobody would strike it from the callers again
        sock = socket.socket(socket.AF_UNIX)
        sock.setblocking(False)
        try:
            if principal is not None:
                path, name = _private_name()
                sock.bind(path or name)
                peer.caller = _in_grpcs_words(path, name)
                self._callers[peer.caller] = principal
            sock.connect(self.path)
            await asyncio.get_running_loop().create_unix_connection(lambda: server, sock=sock)
        except OSError:  # the server is closing, or its queue is full: the peer comes again
            sock.close()
            peer.abort()
            return
        if peer.lost:
            server.abort()
            return
        server.write(first + bytes(peer.early))
        peer.early.clear()
        peer.resume_reading()

    def ended(self, half: Half) -> None:
        """One end is gone. The peer still gets what the server had for it; the server has no use for the rest."""
        other = half.other
        if half in self._carried:
            del self._carried[half]
            if half.caller is not None:
                self._callers.pop(half.caller, None)
            if other is not None:
                other.abort()
        elif other is not None:
            other.finish()

    def close(self) -> None:
        """Cut what is carried, and take no more."""
        self.closed = True
        for half in list(self._carried):
            half.abort()
        if self._path:
            shutil.rmtree(Path(self._path).parent, ignore_errors=True)


class Half(asyncio.BufferedProtocol):
    """One end of a carried connection: the peer's, or the server's. What comes in at one goes out at the other; an end that does
    not take its bytes stops the other from being read."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._transport: asyncio.Transport | None = None
        self.other: Half | None = None
        self.early = bytearray()
        """Bytes that came before there was another end: at most one read."""
        self.lost = False
        self.received = False
        self.caller: str | None = None

    def extra_info(self, name: str) -> object:
        return None if self._transport is None else self._transport.get_extra_info(name)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are not subclasses

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._relay.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.received = True
        data = bytes(self._relay.buffer[:nbytes])
        if self.other is None or not self.other.write(data):
            self.early += data

    def pause_writing(self) -> None:
        if self.other is not None:
            self.other.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None:
            self.other.resume_reading()

    def pause_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def write(self, data: bytes) -> bool:
        """Return False when this end does not exist yet."""
        if self._transport is None:
            return False
        if not self._transport.is_closing():
            self._transport.write(data)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        self._relay.ended(self)

    def unsent_bytes(self) -> int:
        return 0 if self._transport is None or self.lost else self._transport.get_write_buffer_size()

    def finish(self) -> None:
        """Close this end when it has taken what is left for it, at the latest after `LINGER_S`."""
        if self._transport is not None and not self.lost:
            self._transport.close()
            asyncio.get_running_loop().call_later(LINGER_S, self.abort)

    def abort(self) -> None:
        if self._transport is not None and not self.lost:
            self._transport.abort()


def _private_name() -> tuple[str, str]:
    """A path, or on Linux a name that is in no directory and needs no removal. Nobody else has it."""
    if sys.platform.startswith("linux"):
        return "", f"\0kraftlite-{uuid.uuid4()}"
    return str(Path(tempfile.mkdtemp(prefix="kraftlite-")) / "rpc"), ""


def _in_grpcs_words(path: str, name: str) -> str:
    return f"unix:{path}" if path else f"unix-abstract:{name[1:]}"
