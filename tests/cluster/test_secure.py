"""kraftlite up --secure: one flag closes a cluster, and the files that come with it open it for those who may."""

from __future__ import annotations

import json
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

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
from kraftlite.ui import beside

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
    telling = {"kraftlite.log.level": "debug", "kraftlite.faults.enable": "true", "kraftlite.metrics.port": "0"}
    local.up(data_dir, controllers=1, brokers=2, secure=True, extra=telling)
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
        (str(secure_dir(closed.data_dir) / "ca.crl"), "ca.crl has no certificate in PEM"),
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


def private_key_lines(path: Path) -> list[str]:
    """Those of PEM that are different in every key."""
    blocks = re.findall(r"-----BEGIN [A-Z ]*PRIVATE KEY-----\n(.*?)-----END", path.read_text(), re.DOTALL)
    return [line for block in blocks for line in block.splitlines()[1:]]


def secrets_of(closed: Closed) -> dict[str, str]:
    """What must be nowhere but in `secure`, by what it is."""
    found = {f"the password of {user}": closed.password(user) for user in FIRST_USERS}
    keys = [secure_dir(closed.data_dir) / "ca.key", *secure_dir(closed.data_dir).glob("node-*.pem")]
    for path in [*keys, *(client_dir(closed.data_dir, user) / "user.pem" for user in FIRST_USERS)]:
        lines = private_key_lines(path)
        assert lines, f"{path} has no key"
        found |= {f"line {n} of the key in {path.name}": line for n, line in enumerate(lines)}
    return found


def told(closed: Closed, recording: Path) -> Iterator[tuple[str, bytes]]:
    """Whatever the cluster, its page and its commands say to its administrator, and what every process shows of itself."""
    state = closed.state
    for node in state.nodes:
        assert node.metrics is not None and node.pid is not None
        yield f"metrics {node.id}", urllib.request.urlopen(f"http://{node.metrics}/metrics", timeout=30).read()
        for file in ("cmdline", "environ"):
            yield f"{file} of {node.id}", Path(f"/proc/{node.pid}/{file}").read_bytes()
    commands = [
        ("ps", "-o", "json"),
        ("describe", "lasting", "-o", "json"),
        ("logs",),
        ("explain", "partition", "lasting-0"),
        ("explain", "node", "2"),
        ("user", "list", "-o", "json"),
        ("acl", "list", "-o", "json"),
        ("certs", "show", "--json"),
        ("config", "describe", "--broker", "2", "-o", "json"),
        ("fault", "list", "--json"),
        *(("config", "explain", "--config", str(path)) for path in closed.data_dir.glob("node-*/*.properties")),
    ]
    for command in commands:
        done = CliRunner().invoke(
            cli, command, env={"KRAFTLITE_DATA_DIR": str(closed.data_dir), "KRAFTLITE_BOOTSTRAP_SERVER": ""}
        )
        assert done.exit_code == 0, f"{command}: {done.output}"
        yield " ".join(command), done.output.encode()
    admin = AdminClient(closed.librdkafka("admin"))
    for node in state.nodes[1:]:
        (future,) = admin.describe_configs([ConfigResource(ResourceType.BROKER, str(node.id))]).values()
        described = {
            name: (entry.value, [it.value for it in entry.synonyms.values()]) for name, entry in future.result(30).items()
        }
        assert "listeners" in described
        yield f"described configs of {node.id}", repr(described).encode()
    links = beside.start(closed.data_dir)
    try:
        base, _, token = links["operator"].partition("/#")
        for path in ("cluster", "state", "stories?name=lasting-0", "timeline"):
            request = urllib.request.Request(f"{base}/api/v1/{path}", headers={"Authorization": f"Bearer {token}"})
            yield f"page: {path}", urllib.request.urlopen(request, timeout=30).read()
    finally:
        beside.stop(closed.data_dir)
    yield "the recording", recording.read_bytes()


def test_no_file_of_a_node_and_no_answer_has_a_secret(closed: Closed, tmp_path: Path) -> None:
    """Logs at their most talkative, traces, configurations, the metadata log, recordings, the page, metrics, and every command;
    after faults, a death, and logins that failed: not even a wrong password is there, which is often a mistyped one."""
    recording = tmp_path / "recording.kljsonl"
    command = [sys.executable, "-m", "kraftlite", "record", str(recording), "--data-dir", str(closed.data_dir)]
    recorder = subprocess.Popen(command)
    try:
        wait_for(lambda: recording.exists() and b'"k":"node"' in recording.read_bytes(), "nothing is recorded")
        closed.run("fault", "api", "Produce", "--error", "NOT_ENOUGH_REPLICAS", "--count", "1", "--for", "1m")
        guess = "mistyped-hunter2"
        errors: list[str] = []
        config = {**closed.librdkafka("alice"), "sasl.password": guess, "error_cb": lambda error: errors.append(error.name())}
        producer = Producer(config)
        wait_for(lambda: producer.poll(0.1) and "_AUTHENTICATION" in errors, "nobody was refused")
        assert produced(closed.librdkafka("admin"), "lasting", "three") is None
        secrets = {**secrets_of(closed), "a wrong password": guess}
        answers = dict(told(closed, recording))
    finally:
        recorder.send_signal(signal.SIGINT)
        recorder.wait(60)
    files = {
        str(path): path.read_bytes()
        for path in [recording, *closed.data_dir.rglob("*")]
        if path.is_file() and secure_dir(closed.data_dir) not in path.parents
    }
    assert len(files) > 30
    assert any(b"SCRAM-SHA-512: " in data for name, data in files.items() if "log" in name), "the refused login was told"
    where = {what: [it for it, data in {**answers, **files}.items() if text.encode() in data] for what, text in secrets.items()}
    assert {what: found for what, found in where.items() if found} == {}


def test_what_has_a_secret_is_its_owners_alone(closed: Closed) -> None:
    """Whoever else has a login on the machine reads none of it."""
    for path in secure_dir(closed.data_dir).rglob("*"):
        assert path.stat().st_mode & 0o077 == 0 or secure_dir(closed.data_dir).stat().st_mode & 0o077 == 0, path
    for user in FIRST_USERS:
        for path in client_dir(closed.data_dir, user).iterdir():
            assert path.stat().st_mode & 0o077 == 0, path
    for path in closed.data_dir.glob("node-*"):
        assert path.stat().st_mode & 0o077 == 0, path


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
