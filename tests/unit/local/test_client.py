"""Whom the command line finds behind an address, and what it says of it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

import pytest

from kraftlite.client.cluster import ClusterClient
from kraftlite.client.errors import ClientError
from kraftlite.local import client
from kraftlite.protocol.api_keys import API_VERSIONS
from kraftlite.protocol.kio_codec import encode_response


@contextmanager
def server(answer: bytes | None, *, speaks_first: bool = False) -> Iterator[str]:
    """An address that answers every connection with these bytes, or, for None, takes it and says nothing."""
    listening = socket.create_server(("127.0.0.1", 0))
    taken: list[socket.socket] = []

    def serve() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            taken.append(connection)
            if answer is not None:
                with suppress(OSError):  # the client may have gone already
                    if not speaks_first:
                        connection.recv(100)
                    connection.sendall(answer)
                    connection.shutdown(socket.SHUT_WR)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{listening.getsockname()[1]}"
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        for connection in taken:
            connection.close()
        thread.join(5)


def answer(size: int = 0) -> bytes:
    """A broker's answers to the first two requests of a connection, both ApiVersions; filled up to `size` by a tagged field."""
    entry = {"api_key": 18, "min_version": 0, "max_version": 4}
    body = encode_response(18, 3, {"error_code": 0, "api_keys": [entry], "throttle_time": 0})
    if size:
        value = size - 4 - len(body) - 3  # a tag and two bytes of length
        body = body[:-1] + b"\x01\x63" + bytes((value & 0x7F | 0x80, value >> 7)) + bytes(value)
    return b"".join((4 + len(body)).to_bytes(4, "big") + number.to_bytes(4, "big") + body for number in (1, 2))


def reach(address: str, **properties: str) -> None:
    """Ask for what any broker answers, once."""
    given = {"bootstrap.servers": address, "default.api.timeout.ms": "0", **properties}
    with ClusterClient(client.admin_settings(given)) as cluster:
        cluster.call(API_VERSIONS, 3, {"client_software_name": "test", "client_software_version": "1"})


SETTINGS = b"\x00\x00\x12\x04\x00\x00\x00\x00\x00" + bytes(18)


@pytest.mark.parametrize(
    ("answer", "first", "words"),
    [
        (SETTINGS, True, "it speaks gRPC, which nodes talk to one another; clients need a broker's Kafka listener"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", False, "it speaks HTTP"),
        (b"\x15\x03\x01\x00\x02\x02\x50", False, "it speaks TLS"),
        (b"SSH-2.0-x\r\n", True, "its answer begins with 0x5353482d"),
        (b"", False, "it closed the connection without an answer"),
    ],
    ids=["gRPC", "HTTP", "TLS", "SSH", "closed"],
)
def test_what_is_no_broker_is_named(answer: bytes, first: bool, words: str) -> None:
    with server(answer, speaks_first=first) as address, pytest.raises(ClientError) as refused:
        reach(address)
    assert str(refused.value).startswith(f"no broker answered ({address}: ") and words in str(refused.value)


def test_a_port_that_is_silent_is_named() -> None:
    with server(None) as address, pytest.raises(ClientError, match="it takes connections and answers nothing"):
        reach(address, **{"socket.connection.setup.timeout.ms": "200"})


@pytest.mark.parametrize("answer", [None, b"HTTP/1.1 400 Bad Request\r\n\r\n"], ids=["silent", "HTTP"])
def test_an_address_that_gives_no_connection_is_given_up_sooner_than_a_request(answer: bytes | None) -> None:
    """The call has ten minutes here; without the shorter limit this would not end in time."""
    given = {"default.api.timeout.ms": "600000", "socket.connection.setup.timeout.ms": "100"}
    with server(answer) as address:
        settings = replace(client.admin_settings({"bootstrap.servers": address, **given}), unreachable_timeout_ms=300)
        with ClusterClient(settings) as cluster, pytest.raises(ClientError, match=f"no broker answered \\({address}: "):
            cluster.brokers()


def test_a_broker_is_found_among_others() -> None:
    with server(SETTINGS, speaks_first=True) as wrong, server(answer()) as right:
        reach(f"{wrong},{right}")


def test_a_small_answer_is_not_taken_for_grpc() -> None:
    """An answer of 18 · 256 + 4 bytes begins with the bytes of HTTP/2's first frame."""
    padded = answer(0x1204)
    assert padded[:4] == (0x1204).to_bytes(4, "big")
    with server(padded) as address:
        reach(address)
