"""TLS and SASL of the client, against a small broker of this test that knows the handshake and nothing else.

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
from kraftlite.client.errors import ClientError
from kraftlite.client.kafka_client import KafkaClient
from kraftlite.client.properties import settings_from
from kraftlite.model.errors import ErrorCode
from kraftlite.protocol.api_keys import API_VERSIONS, METADATA, SASL_AUTHENTICATE, SASL_HANDSHAKE
from kraftlite.protocol.kio_codec import decode_request, encode_response

ITERATIONS = 4_096


class Broker:
    """Answers ApiVersions, SASL and Metadata on loopback. Knows alice, whose password is "secret"."""

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
                offered = [{"api_key": key, "min_version": 0, "max_version": 20} for key in VERSIONS]
                body = {"error_code": 0, "api_keys": offered, "throttle_time": 0}
            elif api_key == SASL_HANDSHAKE:
                known = request.mechanism in self._mechanisms
                body = {"error_code": 0 if known else 33, "mechanisms": list(self._mechanisms)}
                side = (self._plain if request.mechanism == "PLAIN" else self._scram)(request.mechanism)
                next(side)
            elif api_key == SASL_AUTHENTICATE:
                error, text, answer = side.send(bytes(request.auth_bytes))
                body = {"error_code": error, "error_message": text, "auth_bytes": answer, "session_lifetime": 0}
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


def connect(there: Broker, host: str = "127.0.0.1", **options: str) -> dict[str, Any]:
    named = {name.replace("__", "."): value for name, value in options.items()}
    given = {"bootstrap.servers": f"{host}:{there.port}", "default.api.timeout.ms": "500", **named}
    client = KafkaClient(settings_from(given))
    try:
        return client.topics()
    finally:
        client.close()


def sasl(mechanism: str, password: str = "secret") -> dict[str, str]:
    return {
        "security__protocol": "SASL_PLAINTEXT",
        "sasl__mechanism": mechanism,
        "sasl__username": "alice",
        "sasl__password": password,
    }


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_who_knows_the_password_gets_in(mechanism: str) -> None:
    with broker(mechanism) as there:
        assert connect(there, **sasl(mechanism)) == {}
        steps = 1 if mechanism == "PLAIN" else 2
        assert there.seen == [str(API_VERSIONS), str(SASL_HANDSHAKE), *[str(SASL_AUTHENTICATE)] * steps, str(METADATA)]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_a_wrong_password_is_an_error_at_once(mechanism: str) -> None:
    with broker(mechanism) as there:
        with pytest.raises(ClientError, match=f"SASL_AUTHENTICATION_FAILED: alice by {mechanism}: .*nvalid") as caught:
            connect(there, **sasl(mechanism, "wrong"))
        assert caught.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
        assert there.seen.count(str(SASL_HANDSHAKE)) == 1, "it was tried again"


def test_a_broker_that_does_not_know_the_password_is_not_believed() -> None:
    with (
        broker("SCRAM-SHA-256", honest=False) as there,
        pytest.raises(ClientError, match="the server does not know the password"),
    ):
        connect(there, **sasl("SCRAM-SHA-256"))


def test_a_mechanism_that_the_broker_does_not_offer() -> None:
    told = "UNSUPPORTED_SASL_MECHANISM: sasl.mechanism=PLAIN, the broker offers SCRAM-SHA-256"
    with broker("SCRAM-SHA-256") as there, pytest.raises(ClientError, match=told):
        connect(there, **sasl("PLAIN"))


# --- TLS


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for localhost that has signed itself, with its key."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    folder = tmp_path_factory.mktemp("tls")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    alternative = ["-addext", "subjectAltName=DNS:localhost"]
    files = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    subprocess.run([*command.split(), *alternative, *files], check=True, capture_output=True)
    (folder / "both.pem").write_text((folder / "cert.pem").read_text() + (folder / "key.pem").read_text())
    return folder


@pytest.fixture
def tls(pem: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem / "both.pem")
    return context


def test_tls_with_files_and_with_texts(pem: Path, tls: ssl.SSLContext) -> None:
    cert, key = (pem / "cert.pem").read_text(), (pem / "key.pem").read_text()
    with broker(context=tls) as there:
        assert connect(there, "localhost", security__protocol="SSL", ssl__truststore__location=str(pem / "cert.pem")) == {}
        assert connect(there, "localhost", security__protocol="SSL", ssl__truststore__certificates=cert) == {}
    tls.load_verify_locations(pem / "cert.pem")
    tls.verify_mode = ssl.CERT_REQUIRED
    trust = {"security__protocol": "SSL", "ssl__truststore__certificates": cert}
    with broker(context=tls) as there:
        assert connect(there, "localhost", **trust, ssl__keystore__location=str(pem / "both.pem")) == {}
        mine = {"ssl__keystore__certificate__chain": cert, "ssl__keystore__key": key}
        assert connect(there, "localhost", **trust, **mine) == {}
        with pytest.raises(ClientError, match="no broker answered"):
            connect(there, "localhost", **trust)


def test_tls_texts_in_one_line(pem: Path, tls: ssl.SSLContext) -> None:
    """As Kafka takes them, and as they come out of a properties file or a secret store."""
    cert, key = ((pem / name).read_text().replace("\n", " ").strip() for name in ("cert.pem", "key.pem"))
    tls.load_verify_locations(pem / "cert.pem")
    tls.verify_mode = ssl.CERT_REQUIRED
    both = {
        "ssl__truststore__certificates": f"{cert} {cert}",
        "ssl__keystore__certificate__chain": cert,
        "ssl__keystore__key": key,
    }
    with broker(context=tls) as there:
        assert connect(there, "localhost", security__protocol="SSL", **both) == {}


def test_a_certificate_that_nobody_vouches_for_is_an_error_at_once(tls: ssl.SSLContext) -> None:
    with broker(context=tls) as there, pytest.raises(ClientError, match=r"TLS: localhost:\d+ is not trusted: self"):
        connect(there, "localhost", security__protocol="SSL")


def test_the_hosts_name_is_checked_unless_told(pem: Path, tls: ssl.SSLContext) -> None:
    trust = {"security__protocol": "SSL", "ssl__truststore__location": str(pem / "cert.pem")}
    with broker(context=tls) as there:
        with pytest.raises(ClientError, match=r"TLS: 127.0.0.1:\d+ is not trusted: .*IP address mismatch"):
            connect(there, **trust)
        assert connect(there, **trust, ssl__endpoint__identification__algorithm="") == {}


def test_a_file_that_is_not_there_is_an_error_at_once(tls: ssl.SSLContext) -> None:
    with broker(context=tls) as there, pytest.raises(ClientError, match=r"TLS: No such file or directory: .*ssl"):
        connect(there, "localhost", security__protocol="SSL", ssl__truststore__location="/nowhere.pem")
