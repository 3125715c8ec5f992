"""Handshakes that are under way: bounded in number and time, and worked on in turns. Source: SE-03."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable
from time import perf_counter_ns
from typing import Final

from kraftlite.tls.transport import READ_BYTES, TlsTransport

MAX_HANDSHAKES: Final = 1_024
"""Handshakes at a time; beyond them the oldest is cut."""
HANDSHAKE_MS: Final = 10_000
"""The time in which a peer has to be known; the time that gRPC gives it, too."""
TURN_NS: Final = 3_000_000
"""Handshakes, and connections with many small records, use so much of one turn of the loop. A single handshake takes some 0.3 to
2 ms, for the most part of keys of RSA."""


class Handshakes:
    """The handshakes of one listener, on its loop. `context` gives the one for the next connection. `secured` hears of those
    that are done, `failed` of the others, with the reason."""

    def __init__(
        self,
        now_ms: Callable[[], int],
        context: Callable[[], ssl.SSLContext],
        secured: Callable[[TlsTransport], None],
        failed: Callable[[TlsTransport, str], None],
        *,
        most: int = MAX_HANDSHAKES,
    ) -> None:
        self.buffer = memoryview(bytearray(READ_BYTES))
        self._now_ms = now_ms
        self._context = context
        self._secured = secured
        self._failed = failed
        self._most = most
        self._under_way: dict[TlsTransport, None] = {}
        self._due: deque[TlsTransport] = deque()
        self._working = False
        self.done = 0
        self.refused = 0

    def __len__(self) -> int:
        return len(self._under_way)

    def transport(self) -> TlsTransport:
        """A server's side for the next connection."""
        return TlsTransport(self._context(), self)

    def sweep(self) -> None:
        """Cut those that take too long. To be called every few seconds."""
        now_ms = self._now_ms()
        for transport in list(self._under_way):
            if now_ms - transport.since_ms < HANDSHAKE_MS:
                break
            transport.fail(f"the handshake was not done within {HANDSHAKE_MS} ms")

    def abort(self) -> None:
        """Cut all, without a word."""
        under_way, self._under_way = self._under_way, {}
        for transport in under_way:
            transport.abort()

    # --- HandshakeKeeper

    def began(self, transport: TlsTransport) -> None:
        if len(self._under_way) >= self._most:
            next(iter(self._under_way)).fail(f"more than {self._most} handshakes are under way")
        transport.since_ms = self._now_ms()
        self._under_way[transport] = None

    def due(self, transport: TlsTransport) -> None:
        if not transport.is_due:
            transport.is_due = True
            self._due.append(transport)
        if not self._working:
            self._working = True
            asyncio.get_running_loop().call_soon(self._work)

    def _work(self) -> None:
        until_ns = perf_counter_ns() + TURN_NS
        while self._due:
            transport = self._due.popleft()
            transport.is_due = False
            transport.go_on()
            if self._due and perf_counter_ns() >= until_ns:
                asyncio.get_running_loop().call_soon(self._work)
                return
        self._working = False

    def secured(self, transport: TlsTransport) -> None:
        if self._under_way.pop(transport, False) is not False:
            self.done += 1
            self._secured(transport)

    def failed(self, transport: TlsTransport, reason: str) -> None:
        known = self._under_way.pop(transport, False) is not False
        if reason and known:
            self.refused += 1
            self._failed(transport, reason)
