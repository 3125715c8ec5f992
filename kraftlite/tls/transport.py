"""A transport that encrypts and decrypts what another transport carries (ADR 17).

OpenSSL works on buffers in memory here, so that a connection costs what it has sent and not a fixed buffer, a handshake is worked
on when it is its turn, and what is wrong with it is known.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from typing import Any, Final, Protocol, cast

from kraftlite.model.limits import KIB
from kraftlite.tls.records import Records

READ_BYTES: Final = 128 * KIB
"""The most that is read of a socket at a time."""
MAX_HANDSHAKE_BYTES: Final = 256 * KIB
"""The most that a peer may send before it is known: chains of certificates are a few kB."""
RECORDS_AT_ONCE: Final = 16
"""The records of a connection that are read before others have their turn. Whoever sends much fills them: 128 KiB are eight. But
they may have a byte each, and then are thousands, of which each costs as much as a full one."""
MAX_RECORDS_WITHOUT_DATA: Final = 32
"""The most records in a row that only ask for new keys, and the times that it is answered while it reads nothing: each costs some
20 µs. A client sends one in many GB."""
_TLS_HANDSHAKE: Final = 0x16
"""The first byte of everything that begins a TLS connection."""


class HandshakeKeeper(Protocol):
    """The part that gives handshakes and many small records their turns, and hears how handshakes end. `buffer` is used by all of
    its transports: it is emptied before anything else is read."""

    buffer: memoryview

    def began(self, transport: TlsTransport) -> None: ...

    def due(self, transport: TlsTransport) -> None:
        """There is work: `transport.go_on` is to be called soon."""
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
        self._records = Records()
        self._without_data = self._unread = 0
        self._blocked = False
        """The socket below does not take more."""
        self._received = 0
        self._shaking = True
        self._paused = False
        self._feeding = False
        self._behind = False
        """There are records yet to be read; while there are, no more bytes are taken."""
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
        self._records.add(buffer[:nbytes])
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
        self._blocked = True
        if self._above is not None:
            self._above.pause_writing()

    def resume_writing(self) -> None:
        self._blocked, self._unread = False, 0
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

    def go_on(self) -> None:
        """Go on with what has come: the handshake, or the records that had to wait."""
        if self._shaking:
            self._shake_hands()
        elif self._behind:
            self._behind = False
            self._feed()
            if not self._behind and not self._paused and self._below is not None and not self.is_closing():
                self._below.resume_reading()

    def _shake_hands(self) -> None:
        if self._closing:
            return
        try:
            while True:
                try:
                    self._tls.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    if not self._records.feed(self._incoming, 1):
                        self._flush()
                        return
        except ssl.SSLError as error:
            self._flush()  # the alert that says why
            self.fail(reason_of(error, server=self._server))
            return
        self._shaking = False
        self._flush()
        self._acknowledge()
        self._keeper.secured(self)

    def _acknowledge(self) -> None:
        """Have the kernel acknowledge the last message of a handshake now. Nothing answers it, as there are no tickets: a client
        that waits for acknowledgements, as librdkafka does, would send its first request 40 ms later."""
        sock = None if self._below is None else self._below.get_extra_info("socket")
        if self._server and sock is not None and hasattr(socket, "TCP_QUICKACK"):  # Linux
            with contextlib.suppress(OSError):  # of a connection that is gone
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)

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
        if self._behind:
            return
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
        """Hand what has come to the protocol above, as long as it wants it, and others need not wait too long."""
        tls, left = self._tls, RECORDS_AT_ONCE
        while not self._paused and not self._closing and self._above is not None and not self._behind:
            room: memoryview = self._above.get_buffer(-1)
            count: Any  # the bytes that are in `room`
            try:
                count = tls.read(len(room), room)
            except ssl.SSLWantReadError:
                if not self._answered():
                    return
                if not left and self._records.is_whole:
                    self._wait_for_others()
                count = self._records.feed(self._incoming, left)
                if not count:
                    break
                left -= count
                self._without_data += count
                continue
            except ssl.SSLZeroReturnError:
                count = 0
            except ssl.SSLError as error:
                self._broken(reason_of(error, server=self._server))
                return
            if not count:
                self._end()
                break
            self._without_data = 0
            self._above.buffer_updated(count)
        self._flush()

    def _answered(self) -> bool:
        """Return whether the peer may go on after a record without data, to which OpenSSL may have answered."""
        if self._outgoing.pending:
            self._unread += self._blocked
            self._flush()
        if max(self._without_data, self._unread) <= MAX_RECORDS_WITHOUT_DATA:
            return True
        self._broken(f"more than {MAX_RECORDS_WITHOUT_DATA} records in a row without data, or answers to them that are not read")
        return False

    def _broken(self, reason: str) -> None:
        self.set_extra_info("tls_failure", reason)
        self._flush()
        self.abort()

    def _wait_for_others(self) -> None:
        self._behind = True
        if self._below is not None and not self.is_closing():
            self._below.pause_reading()
        self._keeper.due(self)

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
