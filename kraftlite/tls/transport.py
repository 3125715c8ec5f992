"""A transport that encrypts and decrypts what another transport carries (ADR 17).

OpenSSL works on buffers in memory here, so that a connection costs what it has sent and not a fixed buffer, a handshake is worked
on when it is its turn, and what is wrong with it is known.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import Any, Final, Protocol, cast

from kraftlite.model.limits import KIB

READ_BYTES: Final = 128 * KIB
"""The most that is read of a socket at a time."""
MAX_HANDSHAKE_BYTES: Final = 256 * KIB
"""The most that a peer may send before it is known: chains of certificates are a few kB."""
_TLS_HANDSHAKE: Final = 0x16
"""The first byte of everything that begins a TLS connection."""


class HandshakeKeeper(Protocol):
    """The part that gives handshakes their turns, and hears how they end. `buffer` is used by all of its transports: it is
    emptied before anything else is read."""

    buffer: memoryview

    def began(self, transport: TlsTransport) -> None: ...

    def due(self, transport: TlsTransport) -> None:
        """Bytes have come: `transport.shake_hands` is to be called soon."""
        ...

    def secured(self, transport: TlsTransport) -> None:
        """The handshake is done: `set_protocol` is to be called now."""
        ...

    def failed(self, transport: TlsTransport, reason: str) -> None:
        """It failed, and the connection is closed. `reason` is empty when the peer went without a word."""
        ...


class TlsTransport(asyncio.Transport, asyncio.BufferedProtocol):
    """Both: the protocol of the transport below, and the transport of the protocol above, which it has once the peer is known.

    Flow control is that of the transport below: the protocol above is told when the socket does not take what was encrypted, and
    while it does not read, the socket is not read either.
    """

    def __init__(
        self, context: ssl.SSLContext, keeper: HandshakeKeeper, *, server_hostname: str | None = None, server: bool = True
    ):
        super().__init__()
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=server, server_hostname=server_hostname)
        self._server = server
        self._keeper = keeper
        self._below: asyncio.Transport | None = None
        self._above: Any = None
        self._extra_info: dict[str, Any] = {}
        self._received = 0
        self._shaking = True
        self._paused = False
        self._feeding = False
        self._ended = False
        self._closing = False
        self.is_due = False
        """For the keeper: it is in its queue."""
        self.since_ms = 0
        self.peer = ""
        self.host = ""
        self.file_number = -1

    # --- the protocol of the transport below

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._below = below = cast(asyncio.Transport, transport)  # uvloop's are not subclasses
        peer = below.get_extra_info("peername")
        if isinstance(peer, tuple) and len(peer) >= 2:
            self.host, self.peer = str(peer[0]), f"{peer[0]}:{peer[1]}"
        sock = below.get_extra_info("socket")
        self.file_number = -1 if sock is None else sock.fileno()
        self._keeper.began(self)
        if not self._server:
            self._keeper.due(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._keeper.buffer

    def buffer_updated(self, nbytes: int) -> None:
        buffer = self._keeper.buffer
        self._incoming.write(buffer[:nbytes])
        if not self._shaking:
            self._feed()
            return
        if not self._received and self._server and buffer[0] != _TLS_HANDSHAKE:
            self.fail(f"it does not speak TLS: what it sends begins with 0x{bytes(buffer[: min(nbytes, 4)]).hex()}")
            return
        self._received += nbytes
        if self._received > MAX_HANDSHAKE_BYTES:
            self.fail(f"more than {MAX_HANDSHAKE_BYTES} bytes of a handshake")
        elif not self._closing:
            self._keeper.due(self)

    def eof_received(self) -> bool:
        if self._shaking:
            return False
        return bool(self._end())

    def pause_writing(self) -> None:
        if self._above is not None:
            self._above.pause_writing()

    def resume_writing(self) -> None:
        if self._above is not None:
            self._above.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        above, self._above = self._above, None
        if above is not None:
            above.connection_lost(exc)
        elif self._shaking:
            self._shaking = False
            self._keeper.failed(self, "" if not self._received else "the peer went in the middle of the handshake")

    # --- the handshake

    def shake_hands(self) -> None:
        """Go on with what has come."""
        if not self._shaking or self._closing:
            return
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except ssl.SSLError as error:
            self._flush()  # the alert that says why
            self.fail(reason_of(error, server=self._server))
            return
        self._shaking = False
        self._flush()
        self._keeper.secured(self)

    def fail(self, reason: str) -> None:
        """Close the connection, whose peer is not known yet, or is known and has no business here."""
        self._shaking = False
        self._closing = True
        if self._below is not None:
            self._below.close()
        self._keeper.failed(self, reason)

    def set_extra_info(self, name: str, value: object) -> None:
        self._extra_info[name] = value

    @property
    def certificate(self) -> bytes | None:
        """The peer's, in DER, when it showed one and it was verified."""
        return self._tls.getpeercert(binary_form=True)

    @property
    def cipher(self) -> tuple[str, str, int] | None:
        return self._tls.cipher()

    # --- the transport of the protocol above

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        found = self._extra_info.get(name)
        if found is not None:
            return found
        return default if self._below is None else self._below.get_extra_info(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """The protocol takes bytes into a buffer of its own. What has come already reaches it in the loop's next turn."""
        self._above = protocol
        self._feed_soon()

    def get_protocol(self) -> asyncio.BaseProtocol:
        return cast(asyncio.BaseProtocol, self._above)

    def is_closing(self) -> bool:
        return self._closing or self._below is None or self._below.is_closing()

    def is_reading(self) -> bool:
        return not self._paused

    def pause_reading(self) -> None:
        self._paused = True
        if self._below is not None and not self.is_closing():
            self._below.pause_reading()

    def resume_reading(self) -> None:
        self._paused = False
        if self._below is not None and not self.is_closing():
            self._below.resume_reading()
        self._feed_soon()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._below is None or self._closing:
            return
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self._tls.write(rest) :]
        except ssl.SSLError:
            self.abort()
            return
        self._below.write(self._outgoing.read())

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if self._below is not None:
            self._below.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return 0 if self._below is None else self._below.get_write_buffer_size()

    def close(self) -> None:
        """Send what was written, and that it was all, and close."""
        if self._closing:
            return
        self._closing = True
        if self._below is None:
            return
        with contextlib.suppress(ssl.SSLError, ValueError):  # the peer has not said the same, and need not
            self._tls.unwrap()
        self._flush()
        self._below.close()

    def abort(self) -> None:
        self._closing = True
        if self._below is not None:
            self._below.abort()

    # --- internals

    def _flush(self) -> None:
        if self._outgoing.pending and self._below is not None and not self._below.is_closing():
            self._below.write(self._outgoing.read())

    def _feed_soon(self) -> None:
        if not self._feeding:
            self._feeding = True
            asyncio.get_running_loop().call_soon(self._feed_later)

    def _feed_later(self) -> None:
        self._feeding = False
        self._feed()

    def _feed(self) -> None:
        """Hand what has come to the protocol above, as long as it wants it."""
        tls = self._tls
        while not self._paused and not self._closing and self._above is not None:
            room: memoryview = self._above.get_buffer(-1)
            count: Any  # the bytes that are in `room`
            try:
                count = tls.read(len(room), room)
            except ssl.SSLWantReadError:
                break
            except ssl.SSLZeroReturnError:
                count = 0
            except ssl.SSLError as error:
                self.set_extra_info("tls_failure", reason_of(error, server=self._server))
                self._flush()
                self.abort()
                return
            if not count:
                self._end()
                break
            self._above.buffer_updated(count)
        self._flush()

    def _end(self) -> object:
        """The peer will send no more. Return whether the connection stays open for answers."""
        if self._ended or self._above is None:
            return self._ended
        self._ended = True
        keep = self._above.eof_received()
        if not keep:
            self.close()
        return keep


_UNKNOWN_AUTHORITY: Final = (18, 19, 20, 21)
"""OpenSSL's numbers for a certificate that signed itself, alone or at the end of the chain, and for an issuer that is absent."""
_ALERTS: Final[tuple[tuple[str, str], ...]] = (
    ("UNKNOWN_CA", "the peer does not trust the authority of our certificate"),
    ("CERTIFICATE_EXPIRED", "our certificate has expired, says the peer"),
    ("CERTIFICATE_REVOKED", "our certificate is revoked, says the peer"),
    ("CERTIFICATE_REQUIRED", "the peer wants a certificate, and we show none"),
    ("CERTIFICATE_UNKNOWN", "the peer does not accept our certificate"),
    ("BAD_CERTIFICATE", "the peer does not accept our certificate"),
    ("HANDSHAKE_FAILURE", "the peer has no protocol or cipher suite in common with us, or wants a certificate"),
    ("PROTOCOL_VERSION", "the peer does not speak the versions of TLS that are allowed here"),
)


def reason_of(error: ssl.SSLError, *, server: bool) -> str:
    """One line for people."""
    if isinstance(error, ssl.SSLCertVerificationError):
        unknown = "its authority is not trusted: " if error.verify_code in _UNKNOWN_AUTHORITY else ""
        return f"the {'client' if server else 'server'}'s certificate is refused: {unknown}{error.verify_message}"
    reason = error.reason or ""
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "no client certificate, which ssl.client.auth=required asks for"
    if "ALERT" in reason:
        for name, words in _ALERTS:
            if name in reason:
                return words
    if reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "INVALID_SESSION_ID") and not server:
        return "what answers there does not speak TLS"
    if reason in ("UNSUPPORTED_PROTOCOL", "NO_PROTOCOLS_AVAILABLE", "VERSION_TOO_LOW"):
        return "no version of TLS in common (ssl.enabled.protocols)"
    if reason == "NO_SHARED_CIPHER":
        return "no cipher suite in common (ssl.cipher.suites)"
    return f"TLS: {(reason or str(error)).replace('_', ' ').lower()}"
