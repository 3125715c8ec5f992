"""One blocking connection to one broker: frames, the handshake, and by hand what carries records or times.

Each API is spoken in one version, which Apache Kafka from 3.0 on and kraftlite both know. A Fetch response is received into a
buffer that is used again and again, and its records are a view of it: they are never copied.

Source: Kafka protocol guide; KIP-35, KIP-43, KIP-152, KIP-320; CP-04, CP-05.
"""

from __future__ import annotations

import io
import socket
import ssl
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

import kraftlite.protocol.kio_import  # noqa: F401
from kraftlite import __version__
from kraftlite.client.security import SaslError, exchange, tls_context
from kraftlite.client.settings import ClientSettings
from kraftlite.model.errors import ErrorCode
from kraftlite.model.limits import MIB
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.protocol.errors import ProtocolViolation
from kraftlite.protocol.kio_codec import build_entity
from kraftlite.protocol.primitives import (
    INT32,
    NO_TAGS,
    array_length,
    guarded,
    read_array_length,
    read_count,
    read_nullable_string,
    read_string,
    read_uvarint,
    skip_tags,
    string,
    uvarint,
)

from kio.index import load_request_schema, load_response_schema  # isort: skip  # after kio_import
from kio.serial import entity_reader, entity_writer  # isort: skip

PRODUCE: Final = 0
FETCH: Final = 1
LIST_OFFSETS: Final = 2
METADATA: Final = 3
OFFSET_COMMIT: Final = 8
OFFSET_FETCH: Final = 9
FIND_COORDINATOR: Final = 10
SASL_HANDSHAKE: Final = 17
API_VERSIONS: Final = 18
LIST_GROUPS: Final = 16
INIT_PRODUCER_ID: Final = 22
SASL_AUTHENTICATE: Final = 36

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
    SASL_AUTHENTICATE: 2,
}

RECEIVE_BUFFER_BYTES: Final = 4 * MIB
SEND_CHUNK_BYTES: Final = 256 * 1024
MAX_RESPONSE_BYTES: Final = 256 * MIB
QUIET_S: Final = 2.0
"""A broker that has sent nothing for so long may have lost its leadership: then somebody else is asked."""
PADDING_BYTES: Final = 64
"""Behind the records of a fetch, so that a vectorised reader may look past their end."""

Quiet = Callable[[], None]
"""Called whenever a broker has kept quiet; raises ConnectionError to stop waiting for it."""


class ClientError(Exception):
    """A call that failed for good. `code` is Kafka's; None: nobody answered."""

    def __init__(self, text: str, code: ErrorCode | None = None) -> None:
        super().__init__(text, code)
        self.text = text
        self.code = code

    def __str__(self) -> str:
        return self.text


class Fetched(NamedTuple):
    """`records` is a view of a buffer that the client's next fetch overwrites. Offsets are exclusive ends, -1: unknown."""

    records: memoryview
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[tuple[int, int], ...]
    """(producer id, first offset) of aborted transactions, of a read_committed fetch."""


class OffsetAt(NamedTuple):
    """`offset` -1: no record is that young."""

    offset: int
    timestamp: int
    leader_epoch: int


class ProduceResult(NamedTuple):
    """`error_code` 0: written. `base_offset` -1: not known. `message`: what the broker says about an error, if anything."""

    error_code: int
    base_offset: int
    message: str = ""


class Buffer:
    """Memory for responses, used again and again; grows to the largest."""

    def __init__(self) -> None:
        self._memory = memoryview(bytearray(2 * MIB))

    def take(self, size: int) -> memoryview:
        """The first `size` bytes, with padding behind. What an earlier call returned is overwritten, never resized."""
        if size + PADDING_BYTES > len(self._memory):
            self._memory = memoryview(bytearray(size + size // 4 + PADDING_BYTES))
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
        deadline = min(deadline, time.monotonic() + settings.connect_timeout_ms / 1000)
        self._socket = _connect(address, settings, deadline)
        try:
            self._handshake(deadline)
        except BaseException:
            self._socket.close()
            raise

    def close(self) -> None:
        self._socket.close()

    # --- requests

    def ask(self, api_key: int, values: Mapping[str, Any], deadline: float, quiet: Quiet | None = None) -> Any:
        """kio's response to a request made of plain values, as `build_entity` takes them."""
        schema = cast("type[Any]", load_request_schema(api_key, VERSIONS[api_key]))
        body = io.BytesIO()
        entity_writer(schema)(body, build_entity(schema, values))
        self.send(api_key, [body.getvalue()], deadline, quiet, flexible=schema.__flexible__)
        frame = self.receive(deadline, quiet)
        response = cast("type[Any]", load_response_schema(api_key, VERSIONS[api_key]))
        try:
            _header, at = entity_reader(response.__header_schema__)(bytes(frame), 0)
            return entity_reader(response)(bytes(frame), at)[0]
        except (ValueError, IndexError, EOFError, struct.error) as error:
            raise ProtocolViolation(f"unreadable response to API {api_key}: {error}") from error

    def send(
        self,
        api_key: int,
        body: Sequence[bytes],
        deadline: float,
        quiet: Quiet | None = None,
        *,
        flexible: bool = True,
        silent: bool = False,
    ) -> None:
        """`silent`: the broker will not answer."""
        if self._waiting:
            raise ConnectionError("an earlier answer was not waited for")
        self._correlation += 1
        client_id = string(self._settings.client_id, False)
        head = struct.pack(">hhi", api_key, VERSIONS[api_key], self._correlation) + client_id + (NO_TAGS if flexible else b"")
        frame = memoryview(b"".join((INT32.pack(len(head) + sum(map(len, body))), head, *body)))
        self._waiting = not silent
        at = 0
        while at < len(frame):
            try:
                at += self._socket.send(frame[at : at + SEND_CHUNK_BYTES])
            except TimeoutError:
                _still(deadline, quiet, "did not take the request")

    def receive(self, deadline: float, quiet: Quiet | None = None, buffer: Buffer | None = None) -> memoryview:
        """The answer to the request that was sent, from its correlation id on, in `buffer` or memory of its own."""
        head = memoryview(bytearray(8))
        self._read(head, deadline, quiet)
        size, correlation = struct.unpack(">ii", head)
        if not 4 <= size <= MAX_RESPONSE_BYTES:
            raise ProtocolViolation(f"a response of {size} bytes: allowed is 4 to {MAX_RESPONSE_BYTES}")
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
                _still(deadline, quiet, "did not answer")
                continue
            if got == 0:
                raise ConnectionResetError("the broker closed the connection")
            at += got

    # --- handshake

    def _handshake(self, deadline: float) -> None:
        values = {"client_software_name": "kraftlite-spark", "client_software_version": __version__}
        answer = self.ask(API_VERSIONS, values, deadline)
        offered = {int(it.api_key): (int(it.min_version), int(it.max_version)) for it in answer.api_keys}
        wanted = [it for it in VERSIONS if it not in (SASL_HANDSHAKE, SASL_AUTHENTICATE) or self._settings.sasl is not None]
        for api_key in wanted:
            lowest, highest = offered.get(api_key, (0, -1))
            if not lowest <= VERSIONS[api_key] <= highest:
                text = f"the broker offers versions {lowest} to {highest} of API {api_key}: version {VERSIONS[api_key]} is needed"
                raise ClientError(f"{text}, as of Apache Kafka 3.0", ErrorCode.UNSUPPORTED_VERSION)
        if self._settings.sasl is not None:
            self._authenticate(deadline)

    def _authenticate(self, deadline: float) -> None:
        sasl = self._settings.sasl
        assert sasl is not None
        answer = self.ask(SASL_HANDSHAKE, {"mechanism": sasl.mechanism}, deadline)
        if code_of(answer) is not ErrorCode.NONE:
            offered = ", ".join(answer.mechanisms) or "none"
            raise ClientError(
                f"{code_of(answer).name}: sasl.mechanism={sasl.mechanism}, the broker offers {offered}", code_of(answer)
            )
        side = exchange(sasl)
        challenge: bytes | None = None
        try:
            while (message := side.answer(challenge)) is not None:
                answer = self.ask(SASL_AUTHENTICATE, {"auth_bytes": message}, deadline)
                if code_of(answer) is not ErrorCode.NONE:
                    raise SaslError(str(answer.error_message or code_of(answer).name))
                challenge = bytes(answer.auth_bytes)
        except SaslError as error:
            text = f"SASL_AUTHENTICATION_FAILED: {sasl.username} by {sasl.mechanism}: {error}"
            raise ClientError(text, ErrorCode.SASL_AUTHENTICATION_FAILED) from None


def _still(deadline: float, quiet: Quiet | None, what: str) -> None:
    if time.monotonic() >= deadline:
        raise TimeoutError(f"the broker {what} in time")
    if quiet is not None:
        quiet()


def _connect(address: tuple[str, int], settings: ClientSettings, deadline: float) -> socket.socket:
    plain = socket.create_connection(address, timeout=max(0.05, deadline - time.monotonic()))
    try:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        found: socket.socket = plain
        if settings.tls is not None:
            plain.settimeout(max(0.05, deadline - time.monotonic()))
            try:
                found = tls_context(settings.tls).wrap_socket(plain, server_hostname=address[0])
            except FileNotFoundError as error:
                raise ClientError(f"TLS: {error.strerror}: one of the files that kafka.ssl.*.location names") from None
            except ssl.SSLCertVerificationError as error:
                raise ClientError(f"TLS: {address[0]}:{address[1]} is not trusted: {error.verify_message}") from None
        found.settimeout(min(QUIET_S, settings.request_timeout_ms / 1000))
        return found
    except BaseException:
        plain.close()
        raise


def code_of(entity: Any) -> ErrorCode:
    """The `error_code` of a response or of a part of one."""
    return error_code(int(entity.error_code.value))


def error_code(number: int) -> ErrorCode:
    """UNKNOWN_SERVER_ERROR for a number that no Kafka of today uses."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


# --- by hand: records and times ------------------------------------------------------------------------------------------

_FETCH_HEAD = struct.Struct(">iiiibii")
_FETCH_PARTITION = struct.Struct(">iiqiqi")
_FETCH_ANSWER = struct.Struct(">ihi")
_FETCH_DATA = struct.Struct(">ihqqq")
_ABORTED = struct.Struct(">qq")
_PRODUCE_ANSWER = struct.Struct(">ihqqq")
_OFFSETS_PARTITION = struct.Struct(">iiq")
_OFFSETS_ANSWER = struct.Struct(">ihqqi")


def encode_fetch(
    tp: TopicPartition, offset: int, *, leader_epoch: int, max_bytes: int, max_wait_ms: int, read_committed: bool
) -> bytes:
    """Body of a Fetch request of one partition, without a session."""
    head = _FETCH_HEAD.pack(-1, max_wait_ms, 1, max_bytes, int(read_committed), 0, -1)
    partition = _FETCH_PARTITION.pack(tp.partition, leader_epoch, offset, -1, -1, max_bytes)
    topics = uvarint(2) + string(tp.topic, True) + uvarint(2) + partition + NO_TAGS + NO_TAGS
    return head + topics + uvarint(1) + string("", True) + NO_TAGS


@guarded
def decode_fetch(frame: memoryview, tp: TopicPartition) -> tuple[ErrorCode, Fetched]:
    """Of a response with that partition only. Raises ProtocolViolation."""
    pos = skip_tags(frame, 4)
    _throttle, error, _session = _FETCH_ANSWER.unpack_from(frame, pos)
    empty = Fetched(frame[:0], -1, -1, -1, ())
    if error != 0:
        return error_code(error), empty
    topics, pos = read_count(frame, pos + _FETCH_ANSWER.size, True)
    if topics != 1:
        raise ProtocolViolation(f"{topics} topics in the response to a fetch of one")
    name, pos = read_string(frame, pos, True)
    partitions, pos = read_count(frame, pos, True)
    index, error, hw, stable, start = _FETCH_DATA.unpack_from(frame, pos)
    if (name, partitions, index) != (tp.topic, 1, tp.partition):
        raise ProtocolViolation(f"{name}-{index} in the response to a fetch of {tp}")
    count, pos = read_array_length(frame, pos + _FETCH_DATA.size, True)
    aborted = []
    for _ in range(count or 0):
        aborted.append(_ABORTED.unpack_from(frame, pos))
        pos = skip_tags(frame, pos + _ABORTED.size)
    size, pos = read_uvarint(frame, pos + 4)  # behind the preferred read replica
    if pos + size - 1 > len(frame):
        raise ProtocolViolation(f"{size - 1} bytes of records in {len(frame) - pos}")
    records = frame[pos : pos + max(0, size - 1)]
    return error_code(error), Fetched(records, hw, stable, start, tuple(aborted))


def _grouped(tps: Sequence[TopicPartition]) -> dict[str, list[TopicPartition]]:
    found: dict[str, list[TopicPartition]] = {}
    for tp in tps:
        found.setdefault(tp.topic, []).append(tp)
    return found


def encode_produce(batches: Mapping[TopicPartition, bytes], *, acks: int, timeout_ms: int) -> list[bytes]:
    """Body of a Produce request, in parts: one batch for each partition."""
    grouped = _grouped(list(batches))
    parts = [b"\x00" + struct.pack(">hi", acks, timeout_ms) + array_length(len(grouped), True)]
    for topic, tps in grouped.items():
        parts.append(string(topic, True) + array_length(len(tps), True))
        for tp in tps:
            parts += (INT32.pack(tp.partition) + uvarint(len(batches[tp]) + 1), batches[tp], NO_TAGS)
        parts.append(NO_TAGS)
    parts.append(NO_TAGS)
    return parts


@guarded
def decode_produce(frame: memoryview) -> dict[TopicPartition, tuple[ErrorCode, int, str]]:
    """Error, base offset and message of each partition. Raises ProtocolViolation."""
    pos = skip_tags(frame, 4)
    found: dict[TopicPartition, tuple[ErrorCode, int, str]] = {}
    topics, pos = read_count(frame, pos, True)
    for _ in range(topics):
        name, pos = read_string(frame, pos, True)
        partitions, pos = read_count(frame, pos, True)
        for _ in range(partitions):
            index, error, base_offset, _append_time, _start = _PRODUCE_ANSWER.unpack_from(frame, pos)
            errors, pos = read_count(frame, pos + _PRODUCE_ANSWER.size, True)
            texts = []
            for _ in range(errors):
                text, pos = read_nullable_string(frame, pos + 4, True)
                texts.append(text or "")
                pos = skip_tags(frame, pos)
            message, pos = read_nullable_string(frame, pos, True)
            pos = skip_tags(frame, pos)
            found[TopicPartition(name, index)] = (error_code(error), base_offset, message or "; ".join(texts))
        pos = skip_tags(frame, pos)
    return found


def encode_list_offsets(wanted: Mapping[TopicPartition, tuple[int, int]], *, read_committed: bool) -> bytes:
    """Body of a ListOffsets request: (leader epoch, timestamp) of each partition."""
    grouped = _grouped(list(wanted))
    out = bytearray(struct.pack(">ib", -1, int(read_committed)) + array_length(len(grouped), True))
    for topic, tps in grouped.items():
        out += string(topic, True) + array_length(len(tps), True)
        for tp in tps:
            out += _OFFSETS_PARTITION.pack(tp.partition, *wanted[tp]) + NO_TAGS
        out += NO_TAGS
    return bytes(out + NO_TAGS)


@guarded
def decode_list_offsets(frame: memoryview) -> dict[TopicPartition, tuple[ErrorCode, OffsetAt]]:
    """Raises ProtocolViolation."""
    pos = skip_tags(frame, 4) + 4  # behind the throttle time
    found: dict[TopicPartition, tuple[ErrorCode, OffsetAt]] = {}
    topics, pos = read_count(frame, pos, True)
    for _ in range(topics):
        name, pos = read_string(frame, pos, True)
        partitions, pos = read_count(frame, pos, True)
        for _ in range(partitions):
            index, error, timestamp, offset, epoch = _OFFSETS_ANSWER.unpack_from(frame, pos)
            pos = skip_tags(frame, pos + _OFFSETS_ANSWER.size)
            found[TopicPartition(name, index)] = (error_code(error), OffsetAt(offset, timestamp, epoch))
        pos = skip_tags(frame, pos)
    return found
