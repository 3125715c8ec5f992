"""Real clients at a node that asks who they are. SE-10 to SE-16."""

from __future__ import annotations

import asyncio
import re
import resource
import socket
import struct
import time
from collections.abc import Iterator
from typing import Any

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

from tests.harness.secured_node import ALICE, REAUTH_MS, SECRETS, SecuredNode, login, secured_node

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("sasl")]

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
BAD = "Authentication failed"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    with secured_node(tmp_path_factory.mktemp("sasl")) as found:
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
        await asyncio.to_thread(lambda: KafkaProducer(**python_config(node.sasl, mechanism, "wrong")))
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
    unproved = node.tool("kafka-topics", "--list")
    assert unproved.returncode == 1


def test_a_controller_asks_who_its_clients_are(node: SecuredNode) -> None:
    command = ("kafka-metadata-quorum", "--bootstrap-controller", node.controller)
    config = str(node.client("SCRAM-SHA-256"))
    good = node.tool(*command, "--command-config", config, "describe", "--status", server="")
    assert good.returncode == 0 and "LeaderId" in good.stdout, good.stderr
    assert node.tool(*command, "describe", "--status", server="").returncode == 1


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


def test_no_secret_is_in_what_a_node_writes_or_tells(node: SecuredNode) -> None:
    """Runs last: after all the logins above."""
    admin = AdminClient({"bootstrap.servers": node.plain})
    (future,) = admin.describe_configs([ConfigResource(ResourceType.BROKER, "1")]).values()
    described = {name: entry.value for name, entry in future.result(30).items()}
    assert "sasl.enabled.mechanisms" in described
    explained = node.tool_of("config", "explain", "--config", str(node.folder / "server.properties"))
    assert explained.returncode == 0 and "delegation.token.secret.key" in explained.stdout
    told = [("describe configs", repr(described).encode()), ("config explain", explained.stdout.encode())]
    for secret in (*SECRETS, "carols"):
        assert not [str(path) for path, data in (*node.written(), *told) if secret.encode() in data], secret
