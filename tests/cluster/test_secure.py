"""kraftlite up --secure: one flag closes a cluster, and the files that come with it open it for those who may."""

from __future__ import annotations

import json
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from kraftlite.cli.main import cli
from kraftlite.local import cluster as local
from kraftlite.local.secure import client_dir, command_config, peer_tls, secure_dir
from kraftlite.local.state import LocalCluster, load
from kraftlite.model.errors import ApiError
from kraftlite.model.ids import Endpoint
from kraftlite.model.messages.introspection import NodeStatusRequest
from kraftlite.model.messages.methods import NODE_STATUS
from kraftlite.rpc.transport import GrpcTransport
from kraftlite.runtime.trace import ListTracer
from kraftlite.security.first_users import FIRST_USERS

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("secure-cluster")]


@dataclass
class Closed:
    """A running cluster that `up --secure` has made."""

    data_dir: Path

    @property
    def state(self) -> LocalCluster:
        return load(self.data_dir)

    def run(self, *arguments: str, user: str = "admin", ok: bool = True, **more: Any) -> Result:
        env = {"KRAFTLITE_DATA_DIR": str(self.data_dir), "KRAFTLITE_BOOTSTRAP_SERVER": "", "KRAFTLITE_COMMAND_CONFIG": ""}
        if user != "admin":
            env["KRAFTLITE_COMMAND_CONFIG"] = str(command_config(self.data_dir, user))
        done = CliRunner().invoke(cli, arguments, env=env, **more)
        assert (done.exit_code == 0) is ok, f"{arguments}: {done.output}"
        return done

    def librdkafka(self, user: str, kind: str = "librdkafka") -> dict[str, Any]:
        text = (client_dir(self.data_dir, user) / f"{kind}.conf").read_text()
        return {**dict(line.split("=", 1) for line in text.splitlines()), "log_level": 0}

    def password(self, user: str) -> str:
        return str(json.loads((client_dir(self.data_dir, user) / "python.json").read_text())["sasl_plain_password"])


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Closed]:
    data_dir = tmp_path_factory.mktemp("closed")
    local.up(data_dir, controllers=1, brokers=2, secure=True)
    try:
        yield Closed(data_dir)
    finally:
        local.down(data_dir)


def wait_for(condition: Callable[[], object], what: str, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def produced(config: dict[str, Any], topic: str, value: str) -> KafkaError | None:
    """What became of one record."""
    told: list[KafkaError | None] = []
    producer = Producer({**config, "message.timeout.ms": 20_000})
    producer.produce(topic, value.encode(), on_delivery=lambda error, _: told.append(error))
    producer.flush(30)
    return told[0]


def consumed(config: dict[str, Any], topic: str, group: str) -> list[str]:
    consumer = Consumer({**config, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[str] = []
    try:
        deadline = time.monotonic() + 60
        while not found and time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is None:
                continue
            if message.error():
                return [message.error().name()]
            found.append(message.value().decode())
        return found
    finally:
        consumer.close()


def test_users_may_do_what_acls_say_and_nothing_before(closed: Closed) -> None:
    """SE-31, SE-34: with a password over SASL_SSL, and with a certificate over SSL."""
    closed.run("create-topic", "orders", "--partitions", "1", "--replication-factor", "2")
    refused = produced(closed.librdkafka("alice"), "orders", "early")
    assert refused is not None and refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert "this user may not see topic orders" in closed.run("describe", "orders", user="alice", ok=False).output
    closed.run("acl", "add", "--principal", "alice", "-p", "write", "--topic", "orders")
    closed.run("acl", "add", "--principal", "bob", "-p", "read", "--topic", "orders", "--group", "readers")
    wait_for(lambda: produced(closed.librdkafka("alice"), "orders", "first") is None, "the grant has no effect")
    assert consumed(closed.librdkafka("bob", "librdkafka-mtls"), "orders", "readers") == ["first"]
    assert produced(closed.librdkafka("bob", "librdkafka-mtls"), "orders", "bob's") is not None
    decision = closed.run("acl", "test", "--principal", "bob", "-p", "write", "--topic", "orders", ok=False).output
    assert decision.startswith("DENIED")


def test_a_password_that_was_changed_opens_no_other_connection(closed: Closed) -> None:
    old = closed.librdkafka("bob")
    closed.run("user", "rotate", "bob", "--password-stdin", input="brand new secret\n")
    new = closed.librdkafka("bob")
    assert new["sasl.password"] == "brand new secret" != old["sasl.password"]

    def tried(config: dict[str, Any]) -> str | None:
        errors: list[str] = []
        consumer = Consumer({**config, "group.id": "x", "error_cb": lambda error: errors.append(error.name())})
        try:
            consumer.list_topics(timeout=10)
            return None
        except KafkaException:
            consumer.poll(1)  # the reason comes to the callback
            return ",".join(errors)
        finally:
            consumer.close()

    wait_for(lambda: tried(new) is None, "the new password is refused")
    assert "_AUTHENTICATION" in str(tried(old))
    closed.run("user", "add", "carol")
    wait_for(lambda: tried(closed.librdkafka("carol")) is None, "a new user cannot log in")
    closed.run("user", "delete", "carol")
    assert not client_dir(closed.data_dir, "carol").exists()
    assert [line.split()[0] for line in closed.run("user", "list").output.splitlines()[1:]] == sorted(FIRST_USERS)


def fingerprint(address: str, ca: Path) -> bytes:
    host, _, port = address.rpartition(":")
    context = ssl.create_default_context(cafile=ca)
    with socket.create_connection((host, int(port)), timeout=10) as plain, context.wrap_socket(plain, server_hostname=host) as it:
        found = it.getpeercert(binary_form=True)
    assert found is not None
    return found


def test_new_certificates_are_shown_without_a_restart(closed: Closed) -> None:
    """SE-05."""
    ca = secure_dir(closed.data_dir) / "ca.pem"
    address = next(node.kafka for node in closed.state.nodes if node.kafka is not None)
    before, pids = fingerprint(address, ca), [node.pid for node in closed.state.nodes]
    closed.run("certs", "rotate")
    wait_for(lambda: fingerprint(address, ca) != before, "the node shows its old certificate")
    assert [node.pid for node in closed.state.nodes] == pids
    assert len(closed.run("certs", "show").output.splitlines()) == 1 + 1 + 3 + len(FIRST_USERS)


def opened(closed: Closed, user: str) -> ssl.SSLSocket:
    """A connection on which the user has shown its certificate."""
    context = ssl.create_default_context(cafile=secure_dir(closed.data_dir) / "ca.pem")
    context.load_cert_chain(client_dir(closed.data_dir, user) / "user.pem")
    host, _, port = str(closed.librdkafka(user, "librdkafka-mtls")["bootstrap.servers"]).split(",")[0].rpartition(":")
    return context.wrap_socket(socket.create_connection((host, int(port)), timeout=30), server_hostname=host)


def answers(connection: ssl.SSLSocket) -> bool:
    """Whether ApiVersions is answered."""
    try:
        connection.sendall(bytes.fromhex("0000000a" + "00120000" + "00000007" + "ffff"))
        return connection.recv(4) != b""
    except OSError:
        return False


def test_a_certificate_that_was_revoked_is_refused_and_its_connections_are_closed(closed: Closed) -> None:
    """SE-07."""
    closed.run("user", "add", "dora")
    with opened(closed, "dora") as hers, opened(closed, "alice") as other:
        assert answers(hers) and answers(other)
        assert "CN=dora is revoked" in closed.run("certs", "revoke", "dora").output
        hers.settimeout(30)
        while hers.recv(4096):
            pass  # the rest of the answer; then the end
        assert not answers(opened(closed, "dora"))
        other.recv(1 << 16)
        assert answers(other), "nobody else is closed"
    shown = json.loads(closed.run("certs", "show", "--json").output)
    assert [row["owner"] for row in shown if row["state"] == "revoked"] == ["user dora"]
    assert "_TRANSPORT" not in str(produced(closed.librdkafka("dora"), "orders", "by password")), "a password is not touched"
    closed.run("user", "rotate", "dora")
    with opened(closed, "dora") as anew:
        assert answers(anew), "a new certificate is as good as any"
    closed.run("user", "delete", "dora")
    for wrong, told in (
        ("authority", "'authority' has no certificate here: allowed are node-1, node-2, node-3, admin, alice, bob, and files"),
        (str(secure_dir(closed.data_dir) / "ca.pem"), "the authority's certificate cannot be revoked"),
        (str(secure_dir(closed.data_dir) / "ca.crl"), "ca.crl cannot be revoked: "),
    ):
        assert told in closed.run("certs", "revoke", wrong, ok=False).output


def test_a_leader_that_dies_is_replaced_and_comes_back(closed: Closed) -> None:
    closed.run("create-topic", "lasting", "--partitions", "1", "--replication-factor", "2")
    admin = closed.librdkafka("admin")
    assert produced(admin, "lasting", "one") is None
    closed.run("kill", "leader", "lasting-0")
    wait_for(lambda: produced(admin, "lasting", "two") is None, "no other leader")
    dead = next(node.id for node in closed.state.nodes if node.state == "stopped")
    closed.run("restart", str(dead))

    def whole() -> bool:
        described = json.loads(closed.run("describe", "lasting", "-o", "json").output)
        return sorted(described["topics"][0]["partitions"][0]["isr"]) == [2, 3]

    wait_for(whole, "the ISR is not whole")


def test_no_file_of_a_node_has_a_password(closed: Closed) -> None:
    """Not the logs, not the traces, not the configurations, and not the metadata log."""
    secrets = [closed.password(user).encode() for user in FIRST_USERS]
    files = [path for node in closed.state.nodes for path in Path(node.directory).rglob("*") if path.is_file()]
    assert len(files) > 20
    assert [str(path) for path in files if any(secret in path.read_bytes() for secret in secrets)] == []


def test_a_closed_cluster_stays_closed(closed: Closed) -> None:
    refused = closed.run("up", "--detach", "--data-dir", str(closed.data_dir))
    assert "is up" in refused.output, "without the flag it is the cluster that is there"
    with pytest.raises(local.LocalError, match="was made with --secure"):
        local.up(closed.data_dir, secure=False)


async def asked(closed: Closed, user: str) -> list[str]:
    """What the nodes say to a user who speaks to them as nodes do."""
    tls = peer_tls(closed.state, user)
    transport = GrpcTransport(tracer=ListTracer())
    transport.protect(lambda service: tls)
    found = []
    try:
        for node in closed.state.nodes:
            host, _, port = str(node.grpc).rpartition(":")
            try:
                answer = await transport.call(Endpoint(host, int(port)), NODE_STATUS, NodeStatusRequest(), 10_000)
                found.append(str(answer.node_id))
            except ApiError as error:
                found.append(error.code.name)
    finally:
        await transport.close()
    return found


async def test_a_user_cannot_pass_for_a_node_and_the_administrator_is_told_what_nodes_are_told(closed: Closed) -> None:
    """SE-06: a certificate of the cluster's authority is not enough for the methods of nodes."""
    assert await asked(closed, "alice") == ["CLUSTER_AUTHORIZATION_FAILED"] * 3
    assert await asked(closed, "admin") == ["1", "2", "3"]
