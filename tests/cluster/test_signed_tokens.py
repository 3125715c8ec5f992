"""Signed tokens of OAUTHBEARER, as librdkafka shows them to a node whose keys come over http. SE-14."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

jwt = pytest.importorskip("jwt", reason="the extra oauth")
rsa = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.rsa", reason="the extra oauth")

from confluent_kafka.admin import AdminClient  # noqa: E402

from tests.harness.local import PATIENCE_S  # noqa: E402
from tests.harness.secured_node import MODULES, SecuredNode, secured_node  # noqa: E402

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster")]

KEY, NEXT, STRANGERS = (rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(3))
AUDIENCE, ISSUER = "kafka", "https://issuer"
REFRESH_MS = 500


class KeyServer:
    """`serve`: what is answered, which may change; it gets the request."""

    def __init__(self) -> None:
        self.serve: Callable[[BaseHTTPRequestHandler], None] = self.set_of(one=KEY)
        self.asked = 0
        self.over = threading.Event()
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                owner.asked += 1
                owner.serve(self)

            def log_message(self, format: str, *args: object) -> None:
                """Nobody reads it."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/keys"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @staticmethod
    def set_of(**keys: Any) -> Callable[[BaseHTTPRequestHandler], None]:
        found = [
            {**json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key())), "kid": kid, "use": "sig", "alg": "RS256"}
            for kid, key in keys.items()
        ]
        return answering(json.dumps({"keys": found}).encode())

    def slowly(self, request: BaseHTTPRequestHandler) -> None:
        """It begins to answer, and does not go on."""
        request.send_response(200)
        request.end_headers()
        self.over.wait(PATIENCE_S)

    def stop(self) -> None:
        self.over.set()
        self._server.shutdown()
        self._server.server_close()


def answering(body: bytes, status: int = 200) -> Callable[[BaseHTTPRequestHandler], None]:
    def serve(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    return serve


@pytest.fixture(scope="module")
def keys() -> Iterator[KeyServer]:
    found = KeyServer()
    yield found
    found.stop()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, keys: KeyServer) -> Iterator[SecuredNode]:
    extra = {
        "listener.name.sasl.sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.sasl.oauthbearer.sasl.jaas.config": f"{MODULES}.oauthbearer.OAuthBearerLoginModule required;",
        "listener.name.sasl.sasl.oauthbearer.jwks.endpoint.url": keys.url,
        "listener.name.sasl.sasl.oauthbearer.jwks.endpoint.refresh.ms": str(REFRESH_MS),
        "listener.name.sasl.sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": "100",
        "listener.name.sasl.sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": "200",
        "listener.name.sasl.sasl.oauthbearer.expected.audience": AUDIENCE,
        "listener.name.sasl.sasl.oauthbearer.expected.issuer": ISSUER,
        "org.apache.kafka.sasl.oauthbearer.allowed.urls": keys.url,
    }
    with secured_node(tmp_path_factory.mktemp("signed"), extra) as found:
        yield found


def token(key: Any = KEY, kid: str | None = "one", algorithm: str = "RS256", **claims: Any) -> str:
    now = int(time.time())
    usual = {"sub": "alice", "iat": now, "exp": now + 600, "aud": AUDIENCE, "iss": ISSUER}
    wanted = {name: value for name, value in {**usual, **claims}.items() if value is not None}
    return str(jwt.encode(wanted, key, algorithm=algorithm, headers={} if kid is None else {"kid": kid}))


def told(node: SecuredNode, shown: str) -> str:
    """What the client comes to know with this token: `in`, or the first error that is about it."""
    errors: list[str] = []
    client = AdminClient(
        {
            "bootstrap.servers": node.sasl,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": lambda _config: (shown, time.time() + 3600),
            "error_cb": lambda error: errors.append(error.str()),
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 100,
        }
    )
    asked = client.describe_cluster(request_timeout=PATIENCE_S)
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        client.poll(0.05)
        refused = [it for it in errors if "SASL" in it]
        if refused:
            return refused[0]
        if asked.done():
            assert asked.result().cluster_id
            return "in"
    raise AssertionError(f"neither let in nor refused: {errors}")


def until_in(node: SecuredNode, shown: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while (found := told(node, shown)) != "in":
        assert time.monotonic() < deadline, found


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: token(STRANGERS), id="another key"),
        pytest.param(lambda: token(STRANGERS, kid="nobody's"), id="a key that is not in the set"),
        pytest.param(lambda: token(exp=int(time.time()) - 60), id="expired"),
        pytest.param(lambda: token(exp=None), id="without an end"),
        pytest.param(lambda: token(aud="another"), id="another audience"),
        pytest.param(lambda: token(aud=None), id="no audience"),
        pytest.param(lambda: token(iss="https://another"), id="another issuer"),
        pytest.param(lambda: token(nbf=int(time.time()) + 600), id="not yet"),
        pytest.param(lambda: token(sub=None), id="nobody"),
        pytest.param(lambda: token(None, algorithm="none"), id="not signed"),
        pytest.param(lambda: token("x" * 32, algorithm="HS256"), id="a shared secret"),
    ],
)
def test_se_14_a_token_that_does_not_hold_is_refused(node: SecuredNode, make: Callable[[], str]) -> None:
    until_in(node, token())
    assert "invalid_token" in told(node, make())


def test_se_14_keys_are_rotated_and_what_cannot_be_read_changes_nothing(node: SecuredNode, keys: KeyServer) -> None:
    until_in(node, token())
    for bad in (answering(b"{}"), answering(b"x" * (3 << 20)), answering(b"", status=500), keys.slowly):
        keys.serve, before = bad, keys.asked
        deadline = time.monotonic() + PATIENCE_S
        while keys.asked == before:
            assert time.monotonic() < deadline, "the keys are not read again"
            time.sleep(0.05)
        assert told(node, token()) == "in"
        assert "invalid_token" in told(node, token(STRANGERS))
    keys.serve = keys.set_of(two=NEXT)
    keys.over.set()
    until_in(node, token(NEXT, kid="two"))
    assert "invalid_token" in told(node, token())
    keys.serve = keys.set_of(one=KEY)
    until_in(node, token())


def test_se_14_no_token_is_written_anywhere(node: SecuredNode) -> None:
    until_in(node, token())
    shown = token(exp=int(time.time()) - 60)
    assert "invalid_token" in told(node, shown)
    secret = shown.rpartition(".")[2].encode()
    assert not [path for path, written in node.written() if secret in written]


def test_se_14_without_keys_nobody_is_let_in_until_they_are_there(tmp_path: Path) -> None:
    keys = KeyServer()
    keys.serve = answering(b"", status=503)
    extra = {
        "listener.name.sasl.sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.sasl.oauthbearer.sasl.jaas.config": f"{MODULES}.oauthbearer.OAuthBearerLoginModule required;",
        "listener.name.sasl.sasl.oauthbearer.jwks.endpoint.url": keys.url,
        "listener.name.sasl.sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": "100",
        "listener.name.sasl.sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": "200",
        "org.apache.kafka.sasl.oauthbearer.allowed.urls": keys.url,
    }
    try:
        with secured_node(tmp_path, extra) as node:
            assert "invalid_token" in told(node, token())
            keys.serve = keys.set_of(one=KEY)
            until_in(node, token())
    finally:
        keys.stop()
