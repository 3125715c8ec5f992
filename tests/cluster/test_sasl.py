"""Real clients at a node that asks who they are. SE-10 to SE-16."""

from __future__ import annotations

import asyncio
import hmac
import re
import resource
import socket
import struct
import time
import urllib.request
from base64 import b64decode, b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError

from kraftlite.security.scram import credential_from, salted_password
from tests.fuzz.strangers import client_hello
from tests.fuzz.targets import rss_bytes_of, thread_cpu_s
from tests.harness.authorized import User
from tests.harness.certificates import Authority, Stores
from tests.harness.cluster import free_ports
from tests.harness.secured_node import ALICE, REAUTH_MS, SECRETS, SecuredNode, login, secured_node

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("sasl")]

AUTHORITY = Authority()
NODE = AUTHORITY.issue("node")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
BAD = "Authentication failed"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    folder = tmp_path_factory.mktemp("sasl")
    stores = Stores(folder / "node").write(NODE, AUTHORITY).as_kafka()
    (metrics,) = free_ports(folder / "node", 1)
    telling = {
        "kraftlite.log.level": "debug",
        "kraftlite.trace.enable": "true",
        "kraftlite.trace.file": str(folder / "trace.jsonl"),
        "kraftlite.metrics.port": str(metrics),
    }
    with secured_node(folder, telling, stores) as found:
        found.metrics = f"http://127.0.0.1:{metrics}/metrics"
        yield found


@pytest.fixture
def topic(node: SecuredNode, request: pytest.FixtureRequest) -> str:
    name = re.sub(r"[^\w-]", "-", request.node.name)[:100]
    admin = AdminClient({"bootstrap.servers": node.plain})
    for future in admin.create_topics([NewTopic(name, 1, 1)]).values():
        future.result(30)
    return name


def librdkafka(server: str, mechanism: str, name: str = "alice", password: str = ALICE) -> dict[str, Any]:
    found = {"bootstrap.servers": server, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism}
    if mechanism == "OAUTHBEARER":
        return {**found, "enable.sasl.oauthbearer.unsecure.jwt": "true", "sasl.oauthbearer.config": f"principal={name}"}
    return {**found, "sasl.username": name, "sasl.password": password}


def refusal(config: dict[str, Any], words: str) -> str:
    """What librdkafka tells its user, when that has these words; all that it told when it never has."""
    told: list[str] = []
    producer = Producer({**config, "error_cb": lambda error: told.append(error.str())})
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        producer.poll(0.1)
        found = next((text for text in told if words in text), None)
        if found is not None:
            return found
    return repr(told)


@pytest.mark.parametrize("mechanism", [*MECHANISMS, "OAUTHBEARER"])
def test_librdkafka(node: SecuredNode, topic: str, mechanism: str) -> None:
    config = librdkafka(node.sasl, mechanism)
    producer = Producer(config)
    failed: list[Any] = []
    producer.produce(topic, mechanism, callback=lambda error, _message: failed.append(error))
    assert producer.flush(30) == 0 and failed == [None]
    consumer = Consumer({**config, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found = [message.value() for message in consumer.consume(1, 30)]
    consumer.close()
    assert found == [mechanism.encode()]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python(node: SecuredNode, topic: str, mechanism: str) -> None:
    config = python_config(node.sasl, mechanism, ALICE)
    producer = KafkaProducer(**config)
    producer.send(topic, mechanism.encode()).get(30)
    producer.close()
    consumer = KafkaConsumer(topic, **config, auto_offset_reset="earliest", consumer_timeout_ms=30_000)
    assert next(iter(consumer)).value == mechanism.encode()
    consumer.close()


def python_config(server: str, mechanism: str, password: str) -> dict[str, Any]:
    return {
        "bootstrap_servers": server,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
        "sasl_plain_password": password,
    }


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_aiokafka(node: SecuredNode, topic: str, mechanism: str) -> None:
    config = python_config(node.sasl, mechanism, ALICE)
    async with AIOKafkaProducer(**config) as producer:
        await producer.send_and_wait(topic, mechanism.encode())
    async with AIOKafkaConsumer(topic, **config, auto_offset_reset="earliest") as consumer:
        assert (await asyncio.wait_for(consumer.getone(), 30)).value == mechanism.encode()


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_wrong_password_is_told_to_each_client(node: SecuredNode, mechanism: str) -> None:
    assert BAD in await asyncio.to_thread(refusal, librdkafka(node.sasl, mechanism, password="wrong"), BAD)
    with pytest.raises(KafkaError):  # of which kind depends on whether it sees the answer or the end of the connection first
        await asyncio.to_thread(lambda: KafkaProducer(**python_config(node.sasl, mechanism, "wrong"), bootstrap_timeout_ms=3000))
    producer = AIOKafkaProducer(**python_config(node.sasl, mechanism, "wrong"))
    with pytest.raises(KafkaConnectionError):
        await producer.start()
    await producer.stop()
    ours = node.tool("kafka-topics", "--list", config=node.client(mechanism, password="wrong"))
    assert ours.returncode == 1 and f"SASL_AUTHENTICATION_FAILED: alice by {mechanism}: {BAD}" in ours.stdout + ours.stderr


def test_an_unknown_mechanism_is_told_with_those_that_are_enabled(node: SecuredNode) -> None:
    words = "broker's supported mechanisms: SCRAM-SHA-256"
    assert words in refusal(librdkafka(node.controller, "SCRAM-SHA-512"), words)


@pytest.mark.parametrize("mechanism", [*MECHANISMS, "OAUTHBEARER"])
def test_our_own_clients(node: SecuredNode, topic: str, mechanism: str) -> None:
    found = node.tool("kafka-topics", "--list", config=node.client(mechanism))
    assert found.returncode == 0 and topic in found.stdout.split()
    unproved = node.tool("kafka-topics", "--list", config=node.nobody())
    assert unproved.returncode == 1


def test_a_controller_asks_who_its_clients_are(node: SecuredNode) -> None:
    command = ("kafka-metadata-quorum", "--bootstrap-controller", node.controller)
    config = str(node.client("SCRAM-SHA-256"))
    good = node.tool(*command, "--command-config", config, "describe", "--status", server="")
    assert good.returncode == 0 and "LeaderId" in good.stdout, good.stderr
    nobody = str(node.nobody())
    assert node.tool(*command, "--command-config", nobody, "describe", "--status", server="").returncode == 1


def test_a_credential_that_is_deleted_lets_nobody_in_any_more(node: SecuredNode, topic: str) -> None:
    """SE-12: who is in stays until the session ends."""
    admin = AdminClient({"bootstrap.servers": node.plain})
    mechanism = ScramMechanism.SCRAM_SHA_256

    def alter(change: Any) -> None:
        for future in admin.alter_user_scram_credentials([change]).values():
            future.result(30)

    alter(UserScramCredentialUpsertion("carol", ScramCredentialInfo(mechanism, 4096), b"carols"))
    config = librdkafka(node.sasl, "SCRAM-SHA-256", "carol", "carols")
    staying = Producer(config)
    staying.produce(topic, b"before")
    assert staying.flush(30) == 0
    leaving_told: list[str] = []
    short = {**config, "bootstrap.servers": node.short, "error_cb": lambda error: leaving_told.append(error.str())}
    leaving = Producer(short)
    leaving.produce(topic, b"before")
    assert leaving.flush(30) == 0
    alter(UserScramCredentialDeletion("carol", mechanism))
    staying.produce(topic, b"after")
    assert staying.flush(30) == 0
    assert BAD in refusal(config, BAD)
    deadline = time.monotonic() + 30
    while not any(BAD in text for text in leaving_told) and time.monotonic() < deadline:
        leaving.poll(0.2)
    assert any(BAD in text for text in leaving_told), "a session that ends is not begun again"


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_producing_for_longer_than_a_session_shows_no_error(node: SecuredNode, topic: str, mechanism: str) -> None:
    """SE-15: librdkafka authenticates again on the same connection."""
    errors: list[Any] = []
    failed: list[Any] = []
    producer = Producer({**librdkafka(node.short, mechanism), "error_cb": lambda error: errors.append(error.str())})
    end = time.monotonic() + 3 * REAUTH_MS / 1000
    while time.monotonic() < end:
        producer.produce(topic, b"x", callback=lambda error, _message: failed.append(error) if error else None)
        producer.poll(0.01)
    assert producer.flush(30) == 0 and failed == [] and errors == []


def test_delegation_tokens(node: SecuredNode, topic: str) -> None:
    """SE-16."""
    alice = node.client("SCRAM-SHA-256")
    made = node.tool(
        "kafka-delegation-tokens", "--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob", config=alice
    )
    found = re.search(r"\n([-\w]{22}) +(\S+) +User:alice +User:alice +\[User:bob\]", made.stdout)
    assert found is not None, made.stdout + made.stderr
    token, code = found.groups()
    config = node.properties("token", login("SCRAM-SHA-512", token, code, ' tokenauth="true"'))
    assert topic in node.tool("kafka-topics", "--list", config=config).stdout.split()
    again = node.tool("kafka-delegation-tokens", "--create", "--max-life-time-period", "-1", config=config)
    assert again.returncode == 1 and "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED" in again.stderr, "a token begets no token"
    described = node.tool("kafka-delegation-tokens", "--describe", "--owner-principal", "User:alice", config=node.client("PLAIN"))
    assert token in described.stdout
    gone = node.tool("kafka-delegation-tokens", "--expire", "--expiry-time-period", "-1", "--hmac", code, config=alice)
    assert gone.returncode == 0, gone.stderr
    deadline = time.monotonic() + 20
    while node.tool("kafka-topics", "--list", config=config).returncode == 0:
        assert time.monotonic() < deadline, "a token that was ended still logs in"


def test_half_handshakes_keep_nobody_out(node: SecuredNode, topic: str) -> None:
    """2,000 connections that begin and go no further, beside a good client."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4096)), hard))
    host, _, port = node.sasl.partition(":")
    handshake = struct.pack(">hhih", 17, 1, 1, -1) + struct.pack(">h", 5) + b"PLAIN"
    held: list[socket.socket] = []
    try:
        for number in range(2_000):
            held.append(socket.create_connection((host, int(port)), timeout=30))
            if number % 2:
                held[-1].sendall(struct.pack(">i", len(handshake)) + handshake)
        config = librdkafka(node.sasl, "SCRAM-SHA-256")
        for at in range(5):
            producer = Producer(config)
            producer.produce(topic, str(at))
            assert producer.flush(30) == 0
    finally:
        for one in held:
            one.close()


def test_strangers_that_begin_with_tls_cost_little(node: SecuredNode, topic: str) -> None:
    """2,000 connections that say half a ClientHello, or all of it and nothing more: memory is bounded, and a client that is in is
    answered within 200 ms of the processor's time that the node uses in between."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4096)), hard))
    assert node.process is not None
    host, _, port = node.secure.partition(":")
    hello = client_hello("localhost", True)
    admin = AdminClient({**librdkafka(node.sasl, "PLAIN"), "socket.timeout.ms": 20_000})
    assert topic in admin.list_topics(timeout=20).topics
    before = rss_bytes_of(node.process.pid)
    held: list[socket.socket] = []
    try:
        for number in range(2_000):
            held.append(socket.create_connection((host, int(port)), timeout=30))
            held[-1].sendall(hello if number % 2 else hello[: len(hello) // 2])
            if number % 200 == 0:
                used = thread_cpu_s(node.process.pid, node.process.pid)
                assert topic in admin.list_topics(timeout=20).topics
                assert thread_cpu_s(node.process.pid, node.process.pid) - used < 0.2
        assert rss_bytes_of(node.process.pid) - before < 256 << 20
    finally:
        for one in held:
            one.close()
    told = [line for line in (node.folder / "log").read_text().splitlines() if "handshake_failed" in line or "under way" in line]
    assert len(told) < 1_000, "a line for each of them"


def test_no_secret_is_in_what_a_node_writes_or_tells(node: SecuredNode) -> None:
    """Runs last: after all the logins above, with the log at its most talkative."""
    admin = AdminClient({"bootstrap.servers": node.plain})
    (future,) = admin.describe_configs([ConfigResource(ResourceType.BROKER, "1")]).values()
    described = {name: entry.value for name, entry in future.result(30).items()}
    assert "sasl.enabled.mechanisms" in described
    explained = node.tool_of("config", "explain", "--config", str(node.folder / "server.properties"))
    assert explained.returncode == 0 and "delegation.token.secret.key" in explained.stdout
    assert BAD in refusal(librdkafka(node.sasl, "PLAIN", password="wrong"), BAD)
    assert BAD in refusal(librdkafka(node.sasl, "SCRAM-SHA-256", password="wrong"), BAD)
    metrics = urllib.request.urlopen(node.metrics, timeout=20).read()
    assert b"kafka_server" in metrics
    users = admin.describe_user_scram_credentials(["alice"])["alice"].result(30)
    told = [
        ("describe configs", repr(described).encode()),
        ("config explain", explained.stdout.encode()),
        ("metrics", metrics),
        ("describe users", repr(users.__dict__).encode()),
    ]
    written = [*node.written(), (node.folder / "trace.jsonl", (node.folder / "trace.jsonl").read_bytes()), *told]
    assert any(b"authentication failed" in data for path, data in written if str(path).endswith("trace.jsonl"))
    key = [line for line in NODE.key_pem().splitlines() if not line.startswith("-")]
    keys = derived(node, "SCRAM-SHA-256")
    for secret in (*SECRETS, "carols", *key, *keys.hidden):
        looked_for = secret if isinstance(secret, bytes) else secret.encode()
        assert not [str(path) for path, data in written if looked_for in data], secret
    for secret in keys.stored:  # which are in the metadata log, as in Kafka, and nowhere else
        found = [path for path, data in written if secret in data or secret.hex().encode() in data or b64encode(secret) in data]
        assert found and all(node.folder / "data" in Path(path).parents for path in found), (secret, found)


class Derived(NamedTuple):
    """`hidden`: texts and bytes that are nowhere. `stored`: those of a credential."""

    hidden: tuple[str | bytes, ...]
    stored: tuple[bytes, ...]


def derived(node: SecuredNode, mechanism: str) -> Derived:
    """All that comes of alice's password: by the salt and the iterations that the node tells who begins to log in."""
    user = Plainly("alice", node.sasl)
    user.call(17, 1, {"mechanism": mechanism})
    first = user.call(36, 2, {"auth_bytes": b"n,,n=alice,r=abc"}).auth_bytes.decode()
    user.close()
    said = dict(part.split("=", 1) for part in first.split(","))
    salted = salted_password(mechanism, ALICE, b64decode(said["s"]), int(said["i"]))
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    credential = credential_from(mechanism, salted, b64decode(said["s"]), int(said["i"]))
    forms = (form for one in (salted, client_key) for form in (one, one.hex(), b64encode(one)))
    return Derived(tuple(forms), (credential.stored_key, credential.server_key))


class Plainly(User):
    """A connection that has not logged in."""

    def _opened(self) -> socket.socket:
        return self._connected(None)
