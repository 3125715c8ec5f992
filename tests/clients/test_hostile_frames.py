"""Malformed, oversized and half-sent frames close that connection and no other (CP-02)."""

from __future__ import annotations

import contextlib
import random
import socket
import struct

import pytest

from tests.harness.local import PATIENCE_S, Cluster

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("clients")]


def connect(processes: Cluster) -> socket.socket:
    host, port = (processes.node(processes.brokers[0]).kafka or "").rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=PATIENCE_S)


def api_versions(sock: socket.socket, correlation: int) -> bytes:
    body = struct.pack(">hhih", 18, 0, correlation, -1)
    sock.sendall(struct.pack(">i", len(body)) + body)
    size = struct.unpack(">i", receive(sock, 4))[0]
    return receive(sock, size)


def receive(sock: socket.socket, n: int) -> bytes:
    data = b""
    while len(data) < n:
        part = sock.recv(n - len(data))
        if not part:
            raise ConnectionError("closed")
        data += part
    return data


HOSTILE = {
    "negative size": struct.pack(">i", -1),
    "oversized": struct.pack(">i", 2**31 - 1),
    "zero size": struct.pack(">i", 0),
    "unknown api": struct.pack(">ihhih", 10, 9999, 0, 1, -1),
    "unsupported version": struct.pack(">ihhih", 10, 3, 999, 1, -1),
    "truncated body": struct.pack(">ihhih", 10, 0, 9, 1, -1),
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
}


@pytest.mark.parametrize("name", list(HOSTILE))
def test_cp_02_only_this_connection_closes(processes: Cluster, name: str) -> None:
    bystander = connect(processes)
    api_versions(bystander, 1)
    with connect(processes) as attacker:
        attacker.sendall(HOSTILE[name])
        with contextlib.suppress(ConnectionResetError):
            assert attacker.recv(1) == b"", "a hostile frame was answered"
    assert struct.unpack(">i", api_versions(bystander, 7)[:4])[0] == 7
    bystander.close()


def test_cp_02_noise(processes: Cluster) -> None:
    rng = random.Random(7)
    bystander = connect(processes)
    for _ in range(60):
        with connect(processes) as attacker:
            body = rng.randbytes(rng.randrange(1, 300))
            key = rng.choice([0, 1, 2, 3, 18, 19, 20, 22, 32, 37, 44, 55, 60, 75])
            frame = struct.pack(">hhih", key, rng.randrange(0, 14), 1, -1) + body
            attacker.sendall(struct.pack(">i", len(frame)) + frame)
            try:
                with contextlib.suppress(OSError):  # ENOTCONN: the broker was quicker, and has closed
                    attacker.shutdown(socket.SHUT_WR)
                while attacker.recv(65536):
                    pass
            except ConnectionResetError:
                pass
    assert struct.unpack(">i", api_versions(bystander, 9)[:4])[0] == 9
    bystander.close()


def test_half_a_frame_then_close(processes: Cluster) -> None:
    with connect(processes) as attacker:
        attacker.sendall(struct.pack(">i", 1000) + b"half")
    with connect(processes) as sock:
        assert struct.unpack(">i", api_versions(sock, 3)[:4])[0] == 3
