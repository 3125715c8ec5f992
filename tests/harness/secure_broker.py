"""A small broker that knows the handshakes of TLS and SASL, and next to nothing else.

Source: KIP-43, KIP-84, KIP-152; RFC 5802.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import shutil
import socket
import ssl
import struct
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kraftlite.client.connection import VERSIONS
from kraftlite.protocol.api_keys import API_VERSIONS, DESCRIBE_CLUSTER, METADATA, SASL_AUTHENTICATE, SASL_HANDSHAKE
from kraftlite.protocol.kio_codec import decode_request, encode_response

ITERATIONS = 4_096


class Broker:
    """Answers ApiVersions, SASL, Metadata and DescribeCluster on loopback. Knows alice, whose password is "secret"."""

    def __init__(self, mechanisms: tuple[str, ...] = (), context: ssl.SSLContext | None = None, honest: bool = True) -> None:
        self._mechanisms = mechanisms
        self._context = context
        self._honest = honest
        self.seen: list[str] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(10)

    def _serve(self) -> None:
        while True:
            try:
                plain, _ = self._listening.accept()
            except OSError:
                return
            try:
                peer = plain if self._context is None else self._context.wrap_socket(plain, server_side=True)
                with peer:
                    self._talk(peer)
            except (ConnectionError, ssl.SSLError) as error:
                self.seen.append(type(error).__name__)
                plain.close()

    def _talk(self, peer: socket.socket) -> None:
        side: Any = None
        stream = peer.makefile("rb")
        while head := stream.read(4):
            frame = memoryview(stream.read(*struct.unpack(">i", head)))
            api_key, version, correlation, size = struct.unpack_from(">hhih", frame)
            flexible = api_key != SASL_HANDSHAKE
            request = decode_request(api_key, version, frame, 10 + size + flexible)
            body: dict[str, Any]
            if api_key == API_VERSIONS:
                offered = [{"api_key": key, "min_version": 0, "max_version": 20} for key in (*VERSIONS, DESCRIBE_CLUSTER)]
                body = {"error_code": 0, "api_keys": offered, "throttle_time": 0}
            elif api_key == SASL_HANDSHAKE:
                known = request.mechanism in self._mechanisms
                body = {"error_code": 0 if known else 33, "mechanisms": list(self._mechanisms)}
                side = (self._plain if request.mechanism == "PLAIN" else self._scram)(request.mechanism)
                next(side)
            elif api_key == SASL_AUTHENTICATE:
                error, text, answer = side.send(bytes(request.auth_bytes))
                body = {"error_code": error, "error_message": text, "auth_bytes": answer, "session_lifetime": 0}
            elif api_key == DESCRIBE_CLUSTER:
                broker = {"broker_id": 1, "host": "localhost", "port": self.port, "rack": None}
                body = {"error_code": 0, "error_message": None, "throttle_time": 0, "endpoint_type": 1, "controller_id": 1}
                body |= {"cluster_id": "the-cluster", "brokers": [broker], "cluster_authorized_operations": 0}
            else:
                assert api_key == METADATA
                broker = {"node_id": 1, "host": "127.0.0.1", "port": self.port, "rack": None}
                body = {"throttle_time": 0, "brokers": [broker], "cluster_id": "x", "controller_id": 1, "topics": []}
            self.seen.append(f"{api_key}")
            tags = b"\0" if flexible and api_key != API_VERSIONS else b""
            answer = struct.pack(">i", correlation) + tags + encode_response(api_key, version, body)
            peer.sendall(struct.pack(">i", len(answer)) + answer)

    def _plain(self, _mechanism: str) -> Iterator[Any]:
        message = yield
        good = message == b"\0alice\0secret"
        yield (0, None, b"") if good else (58, "Invalid username or password", b"")

    def _scram(self, mechanism: str) -> Iterator[Any]:
        kind = "sha256" if mechanism.endswith("256") else "sha512"

        def mac(key: bytes, data: bytes) -> bytes:
            return hmac.new(key, data, kind).digest()

        first = (yield).decode().removeprefix("n,,")
        nonce = first.partition("r=")[2] + "server"
        salt = b"salt of alice"
        challenge = f"r={nonce},s={base64.b64encode(salt).decode()},i={ITERATIONS}"
        salted = hashlib.pbkdf2_hmac(kind, b"secret" if self._honest else b"guess", salt, ITERATIONS)
        final = (yield (0, None, challenge.encode())).decode()
        unproved, _, proof = final.partition(",p=")
        signed = f"{first},{challenge},{unproved}".encode()
        client_key = mac(salted, b"Client Key")
        wanted = bytes(a ^ b for a, b in zip(client_key, mac(hashlib.new(kind, client_key).digest(), signed), strict=True))
        if self._honest and base64.b64decode(proof) != wanted:
            yield (58, "Authentication failed during authentication due to invalid credentials", b"")
        yield (0, None, b"v=" + base64.b64encode(mac(mac(salted, b"Server Key"), signed)))


@contextmanager
def broker(*mechanisms: str, context: ssl.SSLContext | None = None, honest: bool = True) -> Iterator[Broker]:
    found = Broker(mechanisms, context, honest)
    try:
        yield found
    finally:
        found.close()


def certificate(folder: Path) -> Path:
    """The folder, with a certificate for localhost that has signed itself, and its key. Skips where there is no openssl."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    alternative = ["-addext", "subjectAltName=DNS:localhost"]
    files = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    subprocess.run([*command.split(), *alternative, *files], check=True, capture_output=True)
    (folder / "both.pem").write_text((folder / "cert.pem").read_text() + (folder / "key.pem").read_text())
    return folder
