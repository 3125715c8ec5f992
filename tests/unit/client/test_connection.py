"""What a broker sends is not believed: it is bounded before memory is taken, and what is wrong is told with address and API.

Source: CP-02, CP-05; KIP-35, KIP-511.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from kraftlite.client.connection import MAX_RESPONSE_BYTES, VERSIONS, Connection
from kraftlite.client.errors import ClientError
from kraftlite.client.kafka_client import KafkaClient
from kraftlite.client.settings import ClientSettings
from kraftlite.model.errors import ErrorCode
from kraftlite.protocol.api_keys import API_VERSIONS, DESCRIBE_PRODUCERS, METADATA
from kraftlite.protocol.errors import ProtocolViolation
from kraftlite.protocol.kio_codec import decode_response, encode_response

BIG = b"\xff\xff\xff\xff\x0f"
"""2**32 - 1 as a varint."""


def offered(**changes: tuple[int, int]) -> bytes:
    ranges = dict.fromkeys(VERSIONS, (0, 20)) | {int(name[1:]): it for name, it in changes.items()}
    entries = [{"api_key": key, "min_version": low, "max_version": high} for key, (low, high) in ranges.items()]
    return encode_response(API_VERSIONS, 3, {"error_code": 0, "api_keys": entries, "throttle_time": 0})


@contextmanager
def broker(metadata: bytes, versions: bytes | None = None) -> Iterator[int]:
    """The port of a broker whose responses are these bytes: to ApiVersions behind the correlation id, to Metadata from the size
    on, in which CORR is the correlation id. After that it closes the connection."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                peer, _ = listening.accept()
            except OSError:
                return
            with peer, suppress(OSError), peer.makefile("rb") as stream:
                while head := stream.read(4):
                    request = stream.read(*struct.unpack(">i", head))
                    if request[:2] == b"\0\x12":
                        answer = request[4:8] + (offered() if versions is None else versions)
                        peer.sendall(struct.pack(">i", len(answer)) + answer)
                    else:
                        peer.sendall(metadata.replace(b"CORR", request[4:8]))
                        break

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listening.getsockname()[1]
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join(5)


def topics(port: int) -> Any:
    settings = ClientSettings(bootstrap=(f"127.0.0.1:{port}",), retry_timeout_ms=0)
    client = KafkaClient(settings)
    try:
        return client.topics()
    finally:
        client.close()


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body) + 5) + b"CORR" + b"\0" + body


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        (framed(bytes(4) + BIG), "Metadata: unreadable|Metadata: an array of 4294967294 in 0 bytes"),
        (framed(bytes(4) + b"\x02" + bytes(4) + BIG + b"x" * 9), "Metadata: a string of 4294967294 bytes in 9"),
        (framed(bytes(4) + b"\x02\0"), "Metadata: unreadable response: "),
        (framed(b""), "Metadata: unreadable response: "),
        (struct.pack(">i", MAX_RESPONSE_BYTES + 1) + b"CORR", "a response of 268435457 bytes: allowed is 4 to 268435456"),
        (struct.pack(">i", -1) + b"CORR", "a response of -1 bytes"),
        (struct.pack(">ii", 8, 77) + bytes(4), "the response to request 77, and not to 2"),
        (struct.pack(">i", 100) + b"CORR" + bytes(10), "it closed the connection without an answer"),
        (b"", "it closed the connection without an answer"),
    ],
    ids=["array", "string", "cut off", "empty", "too long", "negative", "another request's", "half", "nothing"],
)
def test_what_a_broker_sends_is_bounded_and_the_error_says_who_and_what(metadata: bytes, said: str) -> None:
    with broker(metadata) as port, pytest.raises(ClientError, match=rf"^topics: no broker answered \(127.0.0.1:{port}: ({said})"):
        topics(port)


def test_many_elements_are_refused_before_they_are_read() -> None:
    """Each costs a hundred bytes and a microsecond: five million may be a response, fifty million bytes of nothing are not."""
    replicas = 6_000_000
    partition = bytes(2 + 4 + 4 + 4) + _uvarint(replicas + 1) + bytes(4 * replicas)
    topic = b"\0\0" + b"\x02t" + bytes(16) + b"\0" + b"\x02" + partition
    frame = memoryview(b"\0\0\0\1\0" + bytes(4) + b"\x01" + b"\x02x" + bytes(4) + b"\x02" + topic)
    began = time.thread_time()
    with pytest.raises(ProtocolViolation, match="a response of more than 5000000 elements"):
        decode_response(METADATA, 12, frame)
    assert time.thread_time() - began < 1


def _uvarint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out) + bytes((value,))


def test_versions_that_are_not_offered_are_told_by_name() -> None:
    with (
        broker(b"", offered(_3=(0, 11))) as port,
        pytest.raises(ClientError, match="versions 0 to 11 of Metadata: version 12") as no,
    ):
        topics(port)
    assert no.value.code is ErrorCode.UNSUPPORTED_VERSION
    old = struct.pack(">hihhh", 35, 1, 18, 0, 2)
    with (
        broker(b"", old) as port,
        pytest.raises(ClientError, match="does not know ApiVersions v3: this client needs Apache Kafka 3"),
    ):
        topics(port)


def test_a_broker_that_stays_silent_costs_no_more_than_the_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = ("127.0.0.1", silent.getsockname()[1])
        began = time.monotonic()
        with pytest.raises(TimeoutError, match="it takes connections and answers nothing"):
            Connection(address, ClientSettings(bootstrap=(f"127.0.0.1:{address[1]}",)), began + 0.3)
        assert 0.2 < time.monotonic() - began < 10


def test_errors_and_times_of_the_future_are_read() -> None:
    body = {"error_code": 0, "throttle_time": 0, "responses": []}
    frame = memoryview(b"\0\0\0\1\0" + encode_response(0, 9, body))
    assert decode_response(0, 9, frame).responses == ()
    partition = struct.pack(">ihqqq", 0, 9_999, 1, 2**62, 0) + b"\x01\0\0"
    frame = memoryview(b"\0\0\0\1\0" + b"\x02" + b"\x02t" + b"\x02" + partition + b"\0" + bytes(4) + b"\0")
    (found,) = decode_response(0, 9, frame).responses[0].partition_responses
    assert int(found.error_code) == ErrorCode.UNKNOWN_SERVER_ERROR
    assert found.log_append_time == 2**62


def test_a_value_that_fits_into_no_request_is_named_and_nobody_is_asked_again() -> None:
    with broker(b"", offered()) as port:
        began = time.monotonic()
        settings = ClientSettings(bootstrap=(f"127.0.0.1:{port}",))
        connection = Connection(("127.0.0.1", port), settings, began + 30)
        try:
            with pytest.raises(
                ClientError, match="partition indexes 1099511627776: allowed is a whole number from -2147"
            ) as refused:
                values = {"topics": [{"name": "a", "partition_indexes": [2**40]}]}
                connection.ask(DESCRIBE_PRODUCERS, values, began + 30, version=0)
        finally:
            connection.close()
    assert refused.value.code is ErrorCode.INVALID_REQUEST, "without one it would be asked again"
