"""One blocking connection to one broker: frames, TLS and SASL, and the handshake that tells what the broker speaks.

Nothing that a broker sends is believed: sizes are bounded before memory is taken, and what speaks another protocol is named.

Source: Kafka protocol guide; KIP-35, KIP-43, KIP-152; CP-04, CP-05.
"""

from __future__ import annotations

import errno
import socket
import ssl
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from kraftlite import __version__
from kraftlite.client.errors import ClientError
from kraftlite.client.security import SaslError, exchange, tls_context
from kraftlite.client.settings import ClientSettings
from kraftlite.model.errors import ErrorCode, error_code
from kraftlite.model.limits import MIB
from kraftlite.protocol.api_keys import (
    ADD_PARTITIONS_TO_TXN,
    API_VERSIONS,
    END_TXN,
    FETCH,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    LIST_GROUPS,
    LIST_OFFSETS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    PRODUCE,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
)
from kraftlite.protocol.errors import ProtocolViolation
from kraftlite.protocol.kio_codec import api_name, decode_response, encode_request, is_flexible, misfit
from kraftlite.protocol.primitives import INT16, INT32, NO_TAGS, string
from kraftlite.tls.errors import TlsError

VERSIONS: Final = {
    PRODUCE: 9,
    FETCH: 12,
    LIST_OFFSETS: 7,
    METADATA: 12,
    OFFSET_COMMIT: 8,
    OFFSET_FETCH: 7,
    FIND_COORDINATOR: 3,
    SASL_HANDSHAKE: 1,
    API_VERSIONS: 3,
    LIST_GROUPS: 4,
    INIT_PRODUCER_ID: 4,
    ADD_PARTITIONS_TO_TXN: 3,
    END_TXN: 3,
    SASL_AUTHENTICATE: 2,
}
"""The version in which an API is spoken unless a call says so: one that Apache Kafka from 3.0 on and kraftlite both know."""

RECEIVE_BUFFER_BYTES: Final = 4 * MIB
SEND_CHUNK_BYTES: Final = 256 * 1024
MAX_RESPONSE_BYTES: Final = 256 * MIB
_HTTP2_SETTINGS: Final = range(0x04, 0x10000, 0x100)
"""The first four bytes of HTTP/2's first frame, its length and type, read as the size of a response."""
SOFTWARE_NAME: Final = "kraftlite"
QUIET_S: Final = 2.0
"""A broker that has sent nothing for so long may have lost its leadership: then somebody else is asked."""
PADDING_BYTES: Final = 64
"""Behind the records of a fetch, so that a vectorised reader may look past their end."""

Quiet = Callable[[], None]
"""Called whenever a broker has kept quiet; raises ConnectionError to stop waiting for it."""


class Buffer:
    """Memory for responses, used again and again; taken when it is first needed, and grows to the largest."""

    def __init__(self) -> None:
        self._memory = memoryview(b"")

    def take(self, size: int) -> memoryview:
        """The first `size` bytes, with padding behind. What an earlier call returned is overwritten, never resized."""
        if size + PADDING_BYTES > len(self._memory):
            self._memory = memoryview(bytearray(max(2 * MIB, size + size // 4 + PADDING_BYTES)))
        return self._memory[:size]


class Connection:
    """Connected, and authenticated, when it is made. One request at a time; one thread; no use after an exception but `close`.

    Raises OSError and ProtocolViolation for what may go better elsewhere or later, ClientError for what will not. `deadline` is
    on `time.monotonic`.
    """

    def __init__(self, address: tuple[str, int], settings: ClientSettings, deadline: float) -> None:
        self._settings = settings
        self._correlation = 0
        self._waiting = False
        self._offered: dict[int, tuple[int, int]] | None = None
        deadline = min(deadline, time.monotonic() + settings.connect_timeout_ms / 1000)
        self._socket = _connect(address, settings, deadline)
        try:
            self._handshake(deadline)
            self._socket.settimeout(min(QUIET_S, settings.request_timeout_ms / 1000))
        except BaseException:
            self._socket.close()
            raise

    def close(self) -> None:
        self._socket.close()

    # --- requests

    def ask(
        self,
        api_key: int,
        values: Mapping[str, object],
        deadline: float,
        quiet: Quiet | None = None,
        *,
        version: int | None = None,
    ) -> Any:
        """kio's response to a request made of plain values, as `build_entity` takes them. `version` None: as in `VERSIONS`.
        ClientError for a value that fits into no request."""
        number = VERSIONS[api_key] if version is None else version
        try:
            body = encode_request(api_key, number, values)
        except (struct.error, OverflowError) as error:
            why = misfit(api_key, number, values) or f"{api_name(api_key)}: {error}"
            raise ClientError(why, ErrorCode.INVALID_REQUEST) from None
        self.send(api_key, [body], deadline, quiet, version=number, flexible=is_flexible(api_key, number))
        frame = self.receive(deadline, quiet)
        try:
            return decode_response(api_key, number, frame)
        except ProtocolViolation as error:
            raise ProtocolViolation(f"{api_name(api_key)}: {error.reason}") from error

    def send(
        self,
        api_key: int,
        body: Sequence[bytes],
        deadline: float,
        quiet: Quiet | None = None,
        *,
        version: int | None = None,
        flexible: bool = True,
        silent: bool = False,
    ) -> None:
        """`silent`: the broker will not answer. ClientError for a version that the broker does not offer."""
        if self._waiting:
            raise ConnectionError("an earlier answer was not waited for")
        if version is None:
            version = VERSIONS[api_key]
        if self._offered is not None:
            self._check_offered(api_key, version)
        self._correlation += 1
        client_id = string(self._settings.client_id, False)
        head = struct.pack(">hhi", api_key, version, self._correlation) + client_id + (NO_TAGS if flexible else b"")
        frame = memoryview(b"".join((INT32.pack(len(head) + sum(map(len, body))), head, *body)))
        self._waiting = not silent
        at = 0
        while at < len(frame):
            try:
                at += self._socket.send(frame[at : at + SEND_CHUNK_BYTES])
            except TimeoutError:
                _still(deadline, quiet, "it did not take the request in time")

    def receive(self, deadline: float, quiet: Quiet | None = None, buffer: Buffer | None = None) -> memoryview:
        """The answer to the request that was sent, from its correlation id on, in `buffer` or memory of its own."""
        head = memoryview(bytearray(8))
        if self._offered is None:
            self._read(head[:4], deadline, quiet)
            _recognise(bytes(head[:4]))
            self._read(head[4:], deadline, quiet)
        else:
            self._read(head, deadline, quiet)
        size, correlation = struct.unpack(">ii", head)
        if not 4 <= size <= MAX_RESPONSE_BYTES:
            raise ProtocolViolation(f"a response of {size} bytes: allowed is 4 to {MAX_RESPONSE_BYTES}")
        if correlation == 0 and size in _HTTP2_SETTINGS and self._offered is None:
            raise ProtocolViolation("it speaks gRPC, which nodes talk to one another; clients need a broker's Kafka listener")
        if correlation != self._correlation:
            raise ProtocolViolation(f"the response to request {correlation}, and not to {self._correlation}")
        frame = buffer.take(size) if buffer is not None else memoryview(bytearray(size))
        frame[:4] = head[4:]
        self._read(frame[4:], deadline, quiet)
        self._waiting = False
        return frame

    def _read(self, into: memoryview, deadline: float, quiet: Quiet | None) -> None:
        at, size = 0, len(into)
        while at < size:
            try:
                got = self._socket.recv_into(into[at:])
            except TimeoutError:
                silent = "it takes connections and answers nothing" if self._offered is None else "it did not answer in time"
                _still(deadline, quiet, silent)
                continue
            if got == 0:
                raise ConnectionResetError("it closed the connection without an answer")
            at += got

    # --- handshake

    def _handshake(self, deadline: float) -> None:
        """ApiVersions, which every broker answers, and SASL."""
        version = VERSIONS[API_VERSIONS]
        values = {"client_software_name": SOFTWARE_NAME, "client_software_version": __version__}
        self.send(API_VERSIONS, [encode_request(API_VERSIONS, version, values)], deadline, version=version)
        frame = self.receive(deadline)
        # A broker that does not know this version answers in version 0 (KIP-511).
        if len(frame) >= 6 and INT16.unpack_from(frame, 4)[0] == ErrorCode.UNSUPPORTED_VERSION:
            text = f"the broker does not know ApiVersions v{version}: this client needs Apache Kafka 3.0 or newer"
            raise ClientError(text, ErrorCode.UNSUPPORTED_VERSION)
        try:
            answer = decode_response(API_VERSIONS, version, frame)
        except ProtocolViolation as error:
            raise ProtocolViolation(f"{api_name(API_VERSIONS)}: {error.reason}") from error
        self._offered = {int(it.api_key): (int(it.min_version), int(it.max_version)) for it in answer.api_keys}
        if self._settings.sasl is not None:
            self._authenticate(deadline)

    def _check_offered(self, api_key: int, version: int) -> None:
        assert self._offered is not None
        lowest, highest = self._offered.get(api_key, (0, -1))
        if not lowest <= version <= highest:
            offers = f"versions {lowest} to {highest} of {api_name(api_key)}" if highest >= 0 else f"no {api_name(api_key)}"
            raise ClientError(f"the broker offers {offers}: version {version} is needed", ErrorCode.UNSUPPORTED_VERSION)

    def offers(self, api_key: int, version: int) -> bool:
        """Return whether the broker speaks this version of an API."""
        lowest, highest = (self._offered or {}).get(api_key, (0, -1))
        return lowest <= version <= highest

    def _authenticate(self, deadline: float) -> None:
        sasl = self._settings.sasl
        assert sasl is not None
        answer = self.ask(SASL_HANDSHAKE, {"mechanism": sasl.mechanism}, deadline)
        if code_of(answer) is not ErrorCode.NONE:
            offered = ", ".join(answer.mechanisms) or "none"
            raise ClientError(
                f"{code_of(answer).name}: sasl.mechanism={sasl.mechanism}, the broker offers {offered}", code_of(answer)
            )
        challenge: bytes | None = None
        try:
            side = exchange(sasl)
            while (message := side.answer(challenge)) is not None:
                answer = self.ask(SASL_AUTHENTICATE, {"auth_bytes": message}, deadline)
                if code_of(answer) is not ErrorCode.NONE:
                    raise SaslError(str(answer.error_message or code_of(answer).name))
                challenge = bytes(answer.auth_bytes)
        except SaslError as error:
            text = f"SASL_AUTHENTICATION_FAILED: {sasl.username or 'a token'} by {sasl.mechanism}: {error}"
            raise ClientError(text, ErrorCode.SASL_AUTHENTICATION_FAILED) from None


def _still(deadline: float, quiet: Quiet | None, what: str) -> None:
    if time.monotonic() >= deadline:
        raise TimeoutError(what)
    if quiet is not None:
        quiet()


def _recognise(head: bytes) -> None:
    """Raises ProtocolViolation that names what speaks there, by the first four bytes that it sends, unless it may be Kafka."""
    if 4 <= INT32.unpack(head)[0] <= MAX_RESPONSE_BYTES:
        return
    if head == b"HTTP":
        raise ProtocolViolation("it speaks HTTP, not Kafka's protocol")
    if head[0] in (0x15, 0x16) and head[1] == 3:
        raise ProtocolViolation("it speaks TLS, which security.protocol SSL or SASL_SSL is for")
    raise ProtocolViolation(f"it does not speak Kafka's protocol: its answer begins with 0x{head.hex()}")


def _connect(address: tuple[str, int], settings: ClientSettings, deadline: float) -> socket.socket:
    try:
        plain = socket.create_connection(address, timeout=max(0.05, deadline - time.monotonic()))
    except TimeoutError as error:
        raise OSError(error.errno, "the connection timed out") from None
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error)) from None
    except UnicodeError:  # of the codec for names of hosts; a broker may have told it as its own
        raise OSError(errno.EINVAL, "this cannot be the name of a host") from None
    try:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        found: socket.socket = plain
        if settings.tls is not None:
            plain.settimeout(max(0.05, deadline - time.monotonic()))
            try:
                found = tls_context(settings.tls).wrap_socket(plain, server_hostname=address[0])
            except TlsError as error:
                raise ClientError(f"TLS: {error}") from None
            except ssl.SSLCertVerificationError as error:
                raise ClientError(f"TLS: {address[0]}:{address[1]} is not trusted: {error.verify_message}") from None
        found.settimeout(min(QUIET_S, max(0.05, deadline - time.monotonic())))
        return found
    except BaseException:
        plain.close()
        raise


def code_of(entity: Any) -> ErrorCode:
    """The `error_code` of a response or of a part of one."""
    return error_code(int(entity.error_code))
