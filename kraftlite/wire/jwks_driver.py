"""Reads the public keys that sign OAUTHBEARER tokens from a URL, again and again, off the loop.

Who serves them over https is trusted by the authorities that the `ssl.*` settings of the login module name, else by those of the
system. Source: KIP-768; Kafka's JaasOptionsUtils; SE-14.
"""

from __future__ import annotations

import asyncio
import http.client
import socket
import ssl
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

from kraftlite.model.limits import MIB
from kraftlite.model.shown import shown
from kraftlite.runtime.ports import Ports, TaskHandle
from kraftlite.runtime.trace.wire import SigningKeysRead, SigningKeysUnreadable
from kraftlite.security.signed_tokens import KeySet, SignedRules
from kraftlite.tls.contexts import load
from kraftlite.tls.errors import TlsError
from kraftlite.tls.settings import read_settings

MAX_BYTES: Final = MIB
TIMEOUT_S: Final = 10.0
"""The time that a server may take for a step, and for all of it: one that sends byte by byte must not hold a thread."""
UNREADABLE: Final = (OSError, ValueError, http.client.HTTPException, TlsError)
"""The errors that `read_url` raises."""
UNKNOWN_PAUSE_MS: Final = 60_000
"""The least time between two readings because a token names a key that is not known."""


class SigningKeys:
    """The keys in force. One reading at a time; what cannot be read leaves those that are there."""

    def __init__(self, ports: Ports, listener: str, rules: SignedRules) -> None:
        self._ports = ports
        self._listener = listener
        self._rules = rules
        self._keys: KeySet | None = None
        self._read_ms: int | None = None
        self._wanted = asyncio.Event()
        self._task: TaskHandle | None = None

    def start(self) -> None:
        self._task = self._ports.tasks.spawn(self._run(), name=f"signing-keys-{self._listener}")

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def current(self) -> KeySet | None:
        return self._keys

    def unknown(self) -> None:
        """A token names a key that is not in the set: the set may be old."""
        if self._read_ms is not None and self._ports.clock.now_ms() - self._read_ms >= UNKNOWN_PAUSE_MS:
            self._wanted.set()

    async def _run(self) -> None:
        rules, pause_ms = self._rules, self._rules.retry_ms
        while True:
            try:
                self._keys = await self._ports.tasks.run_blocking(self._read)
            except UNREADABLE as error:
                reason = shown(str(error) or type(error).__name__)
                self._ports.tracer.emit(SigningKeysUnreadable(listener=self._listener, reason=reason, retry_ms=pause_ms))
                await self._ports.clock.sleep(pause_ms)
                pause_ms = min(2 * pause_ms, rules.retry_max_ms)
                continue
            pause_ms = rules.retry_ms
            self._read_ms = self._ports.clock.now_ms()
            self._ports.tracer.emit(SigningKeysRead(listener=self._listener, keys=len(self._keys)))
            self._wanted.clear()
            timer = self._ports.clock.call_later(rules.refresh_ms, self._wanted.set)
            try:
                await self._wanted.wait()
            finally:
                timer.cancel()

    def _read(self) -> KeySet:
        """The stores are read each time as well: they may have been replaced."""
        return KeySet.parse(read_url(self._rules.url, tls=self._rules.tls))


def read_url(url: str, timeout_s: float = TIMEOUT_S, *, tls: Mapping[str, str] | None = None) -> bytes:
    """Read a small document of a file, http or https. Blocks; raises `UNREADABLE`. A redirection is not followed: it
    would lead where nobody has allowed. `tls`: `ssl.*` settings; None or empty: those of the system."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        path = Path(unquote(parts.path))
        if not path.is_file():
            raise OSError(f"{path} is not a file")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    else:
        data = _fetched(parts, timeout_s, _context(tls) if tls and parts.scheme == "https" else None)
    if len(data) > MAX_BYTES:
        raise ValueError(f"it has more than {MAX_BYTES} bytes")
    return bytes(data)


def _context(tls: Mapping[str, str]) -> ssl.SSLContext:
    problems: list[str] = []
    settings = read_settings(tls.get, lambda key: key, problems)
    if problems:
        raise TlsError(problems[0])
    return load(settings).client


def _fetched(parts: SplitResult, timeout_s: float, context: ssl.SSLContext | None) -> bytes:
    """`context` None: that of the system."""
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        connection = http.client.HTTPSConnection(parts.hostname or "", parts.port, timeout=timeout_s, context=context)
    else:
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=timeout_s)
    connection.connect()
    late = threading.Event()

    def hang_up() -> None:
        """A server may send a byte now and then, so that no step takes too long."""
        late.set()
        connection.sock.shutdown(socket.SHUT_RDWR)

    watch = threading.Timer(timeout_s, hang_up)
    watch.daemon = True
    watch.start()
    try:
        return _answered(connection, parts)
    except UNREADABLE:
        if late.is_set():
            raise TimeoutError(f"it was not there within {timeout_s:g} s") from None
        raise
    finally:
        watch.cancel()
        connection.close()


def _answered(connection: http.client.HTTPConnection, parts: SplitResult) -> bytes:
    """The body, or as much of it as shows that it is too long."""
    connection.request("GET", parts._replace(scheme="", netloc="", fragment="").geturl() or "/")
    response = connection.getresponse()
    if response.status != http.client.OK:
        raise ValueError(f"it answers with the status {response.status}, and not with 200")
    data = response.read(MAX_BYTES + 1)
    if response.length and len(data) <= MAX_BYTES:
        raise http.client.IncompleteRead(data, response.length)
    if not data:
        raise ValueError("it answers nothing")
    return data
