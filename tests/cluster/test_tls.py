"""Clusters of processes that speak TLS: real clients, failover, strangers, and certificates that change (SE-01 to SE-06)."""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from kraftlite.cli.main import cli
from kraftlite.wire.shared_port import HTTP2_PREFACE
from tests.harness.certificates import Authority, Stores
from tests.harness.cluster import Client, Cluster, NodeProcess, running, wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.xdist_group("tls-cluster")]

ALL = "PLAINTEXT:SSL,REPLICATION:GRPC_TLS,CONTROLLER:SSL"


@dataclass
class Secured:
    """Three nodes that are both, with TLS on every listener, and the stores of a client."""

    cluster: Cluster
    authority: Authority
    nodes: Stores
    alice: Stores

    def client(self, **options: str) -> Client:
        return Client(self.cluster.bootstrap, {**self.alice.as_librdkafka(), **options})


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("tls")
    authority = Authority()
    nodes = Stores(folder / "nodes").write(authority.issue("node"), authority)
    alice = Stores(folder / "alice").write(authority.issue("alice"), authority)
    (folder / "cluster").mkdir()
    config = {"listener.security.protocol.map": ALL, "ssl.client.auth": "required", **nodes.as_kafka()}
    with running(Cluster.create(folder / "cluster", combined=3, config=config)) as cluster:
        yield Secured(cluster, authority, nodes, alice)


def events(node: NodeProcess, name: str) -> list[dict[str, Any]]:
    lines = (line for line in node.output().splitlines() if f'"{name}"' in line)
    return [found for line in lines if (found := json.loads(line))["event"] == name]


def port_of(node: NodeProcess, listener: str) -> int:
    text = node.config_path.read_text()
    return int(text.split(f"{listener}://127.0.0.1:")[1].split(",")[0].split("\n")[0])


def test_se_06_a_cluster_whose_listeners_are_all_tls_fails_over(secured: Secured) -> None:
    client = secured.client()
    client.create_topic("failover", replicas=3)
    assert len(client.produce("failover", ["one", "two"])) == 2
    wait_for(lambda: client.isr("failover") == [1, 2, 3], "all replicas in sync")
    first = secured.cluster.nodes[client.leader("failover")]
    first.kill()
    wait_for(lambda: client.leader("failover") not in (-1, first.node_id), "another leader")
    assert len(client.produce("failover", ["three"])) == 1
    first.start()
    wait_for(lambda: client.isr("failover") == [1, 2, 3], "the first one back in sync")
    assert client.consume("failover", 3) == ["one", "three", "two"]
    for node in secured.cluster.nodes.values():
        assert not events(node, "tls.peer_refused")


@pytest.mark.parametrize("listener", ["PLAINTEXT", "REPLICATION", "CONTROLLER"])
def test_se_03_no_listener_talks_in_plain_text(secured: Secured, listener: str) -> None:
    node = secured.cluster.nodes[1]
    before = len(events(node, "tls.handshake_failed"))
    with socket.create_connection(("127.0.0.1", port_of(node, listener)), 20) as plain:
        plain.settimeout(20)
        plain.sendall(HTTP2_PREFACE)
        assert plain.recv(100) == b""
    (found,) = wait_for(lambda: events(node, "tls.handshake_failed")[before:], "the event")
    assert found["listener"] == listener and found["reason"].startswith("it does not speak TLS")


def test_se_06_a_node_of_another_authority_is_refused_on_both_sides(secured: Secured, tmp_path: Path) -> None:
    """It can neither vote nor fetch nor register; both sides say why, and nobody falls back to plain text."""
    stranger = Authority("stranger")
    stores = Stores(tmp_path / "stranger").write(stranger.issue("node"), stranger, secured.authority)
    node = secured.cluster.nodes[3]
    given = node.config_path.read_text()
    node.kill()
    others = [secured.cluster.nodes[1], secured.cluster.nodes[2]]
    before = {other.node_id: len(events(other, "tls.handshake_failed")) for other in others}
    node.config_path.write_text(given + "".join(f"{key}={value}\n" for key, value in stores.as_kafka().items()))
    try:
        node.start(wait=False)
        told = wait_for(lambda: events(node, "tls.peer_refused"), "the stranger to be refused")
        assert {event["reason"] for event in told} <= {
            "the peer does not trust the authority of our certificate",
            "the server's certificate is refused: its authority is not trusted: unable to get local issuer certificate",
        }
        for other in others:
            seen = wait_for(lambda other=other: events(other, "tls.handshake_failed")[before[other.node_id] :], "both sides")
            assert "the client's certificate is refused: its authority is not trusted" in seen[0]["reason"]
        client = secured.client()
        wait_for(lambda: len(client.admin().list_topics(timeout=10).brokers) == 2, "it is fenced, and stays out")
        assert '"event":"broker.registered"' not in node.this_run()
        assert "RECOVERY" not in node.this_run()
    finally:
        node.kill()
        node.config_path.write_text(given)
        node.start()


def test_se_02_real_clients_of_other_kinds(secured: Secured) -> None:
    """kafka-python's and openssl's TLS; a name that is not in the certificate; a client without a certificate."""
    from kafka import KafkaConsumer, KafkaProducer

    secured.client().create_topic("others", replicas=1)
    options = {
        "bootstrap_servers": secured.cluster.bootstrap.split(","),
        "security_protocol": "SSL",
        "ssl_cafile": str(secured.alice.trust),
        "ssl_certfile": str(secured.alice.keys),
        "ssl_keyfile": str(secured.alice.keys),
    }
    producer = KafkaProducer(**options)
    assert producer.send("others", b"from kafka-python").get(60).offset == 0
    producer.close()
    consumer = KafkaConsumer("others", auto_offset_reset="earliest", consumer_timeout_ms=60_000, **options)
    assert next(consumer).value == b"from kafka-python"
    consumer.close()
    without = {
        key: value for key, value in secured.alice.as_librdkafka().items() if "key" not in key and "certificate" not in key
    }
    with pytest.raises(KafkaException):
        AdminClient({"bootstrap.servers": secured.cluster.bootstrap, **without}).list_topics(timeout=5)
    address = f"127.0.0.1:{secured.cluster.nodes[1].kafka_port}"
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    files = ["-CAfile", secured.alice.trust, "-cert", secured.alice.keys, "-key", secured.alice.keys]
    for version in ("-tls1_2", "-tls1_3"):
        command = ["openssl", "s_client", "-connect", address, "-verify_return_error", "-verify_hostname", "localhost", version]
        found = subprocess.run([*command, *files], input=b"Q\n", capture_output=True, timeout=60)
        assert b"Verify return code: 0 (ok)" in found.stdout, found


def test_se_02_a_host_that_is_not_in_the_certificate_is_not_trusted(secured: Secured, tmp_path: Path) -> None:
    """Between nodes, too: the one that dials checks the name, unless `ssl.endpoint.identification.algorithm` is empty."""
    elsewhere = Stores(tmp_path / "nodes").write(secured.authority.issue("node", ["elsewhere.example"]), secured.authority)
    (tmp_path / "cluster").mkdir()
    config = {"listener.security.protocol.map": ALL, **elsewhere.as_kafka(), "offsets.topic.replication.factor": "1"}
    cluster = Cluster.create(tmp_path / "cluster", controllers=1, brokers=1, config=config)
    with running_but_not_waited(cluster):
        broker = cluster.nodes[2]
        (told, *_) = wait_for(lambda: events(broker, "tls.peer_refused"), "the controller not to be trusted")
        assert "IP address mismatch" in told["reason"]
        broker.kill()
        lines = broker.config_path.read_text() + "ssl.endpoint.identification.algorithm=\n"
        broker.config_path.write_text(lines)
        broker.start()
        with pytest.raises(KafkaException):
            AdminClient({"bootstrap.servers": cluster.bootstrap, **secured.alice.as_librdkafka()}).list_topics(timeout=5)
        unchecked = {**secured.alice.as_librdkafka(), "ssl.endpoint.identification.algorithm": "none"}
        assert AdminClient({"bootstrap.servers": cluster.bootstrap, **unchecked}).list_topics(timeout=30).brokers


class running_but_not_waited:
    """Start all nodes, and kill them at the end."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def __enter__(self) -> Cluster:
        for node in self._cluster.nodes.values():
            node.start(wait=False)
        return self._cluster

    def __exit__(self, *_error: object) -> None:
        self._cluster.kill()


def altered(client: Client, node_id: int, **values: str) -> None:
    """Raises KafkaException."""
    entries = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET) for name, value in values.items()
    ]
    resource = ConfigResource(ResourceType.BROKER, str(node_id), incremental_configs=entries)
    client.admin().incremental_alter_configs([resource])[resource].result(60)


def shown(secured: Secured, node: NodeProcess) -> bytes | None:
    """The certificate that a node shows to clients: a broker at its own listener, a mere controller at the controllers'."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(secured.alice.trust)
    context.load_cert_chain(secured.alice.keys)
    plain = socket.create_connection(("127.0.0.1", node.kafka_port or node.controller_port or 0), 20)
    with context.wrap_socket(plain, server_hostname="localhost") as tls:
        return tls.getpeercert(binary_form=True)


def test_se_05_certificates_change_on_disk_and_by_configs_without_losing_a_connection(secured: Secured, tmp_path: Path) -> None:
    client, node = secured.client(), secured.cluster.nodes[2]
    client.create_topic("rotation", replicas=3)
    assert client.produce("rotation", ["before"]) == [0]
    first = shown(secured, node)
    Stores.replace(secured.nodes.keys, secured.authority.issue("node").both())
    wait_for(lambda: shown(secured, node) != first, "the new certificate")
    assert client.admin().list_topics(timeout=30).brokers, "a client that was connected stays"
    assert client.produce("rotation", ["between"]) == [1]
    key = "listener_name_plaintext_ssl_keystore_location"
    for values, words in (
        ({"ssl_keystore_location": "/x"}, "only per-listener using the listener prefix"),
        ({key: str(tmp_path / "none")}, "there is no such file"),
        ({key: str(secured.alice.keys)}, "another distinguished name, CN=alice instead of CN=node"),
    ):
        with pytest.raises(KafkaException) as caught:
            altered(client, 2, **values)
        assert caught.value.args[0].name() == "INVALID_REQUEST" and words in caught.value.args[0].str()
    second = shown(secured, node)
    own = Stores(tmp_path / "own").write(secured.authority.issue("node"), secured.authority)
    altered(client, 2, **{key: str(own.keys)})
    wait_for(lambda: shown(secured, node) not in (first, second), "the certificate of this listener")
    wait_for(lambda: shown(secured, secured.cluster.nodes[1]) == second, "the other node to have read the same files")
    assert client.produce("rotation", ["after"]) == [2]
    Stores.replace(own.keys, "damaged")
    found = wait_for(lambda: events(node, "tls.stores_refused"), "the damaged store to be told")
    assert found[0]["listener"] == "PLAINTEXT" and "has no certificate" in found[0]["reason"]
    assert client.consume("rotation", 3) == ["after", "before", "between"]


def test_cb_07_a_mere_controller_takes_certificates_by_configs(secured: Secured, tmp_path: Path) -> None:
    (tmp_path / "cluster").mkdir()
    config = {"listener.security.protocol.map": ALL, "ssl.client.auth": "required", **secured.nodes.as_kafka()}
    with running(Cluster.create(tmp_path / "cluster", controllers=1, brokers=1, config=config)) as cluster:
        node = cluster.controllers[0]
        path = tmp_path / "client.properties"
        path.write_text(
            "".join(f"{key}={value}\n" for key, value in {"security.protocol": "SSL", **secured.alice.as_kafka()}.items())
        )
        where = ["--bootstrap-controller", f"127.0.0.1:{node.controller_port}", "--command-config", str(path)]
        key = "listener.name.controller.ssl.keystore.location"

        def keystore(location: Path) -> None:
            change = [
                "--alter",
                "--entity-type",
                "brokers",
                "--entity-name",
                str(node.node_id),
                "--add-config",
                f"{key}={location}",
            ]
            done = CliRunner().invoke(cli, ["compat", "kafka-configs", *where, *change], catch_exceptions=False)
            assert done.exit_code == 0, done.output

        first = shown(secured, node)
        own = Stores(tmp_path / "own").write(secured.authority.issue("node"), secured.authority)
        keystore(own.keys)
        wait_for(lambda: shown(secured, node) != first, "the certificate that was set for the controller")
        second = shown(secured, node)
        keystore(tmp_path / "none")
        found = wait_for(lambda: events(node, "tls.stores_refused"), "a store that there is not to be told")
        assert found[0]["listener"] == "CONTROLLER" and "no such file" in found[0]["reason"]
        assert shown(secured, node) == second, "who connects meets the last one that could be used"
        client = Client(cluster.bootstrap, secured.alice.as_librdkafka())
        client.create_topic("behind", replicas=1)
        assert client.produce("behind", ["it"]) == [0], "the broker goes on with the controller"


@pytest.mark.parametrize("kind", ["PEM", "PKCS12"])
def test_se_02_the_commands_reach_brokers_and_controllers(secured: Secured, tmp_path: Path, kind: str) -> None:
    """`--command-config` with Kafka's names, for our own commands, for those that use librdkafka, and for Kafka's tools."""
    values = secured.alice.as_kafka()
    if kind == "PKCS12":
        (tmp_path / "me.p12").write_bytes(secured.authority.issue("alice").pkcs12("geheim"))
        (tmp_path / "trust.p12").write_bytes(secured.authority.trust_pkcs12("geheim"))
        values = {"ssl.keystore.location": f"{tmp_path}/me.p12", "ssl.truststore.location": f"{tmp_path}/trust.p12"}
        values |= {"ssl.keystore.password": "geheim", "ssl.truststore.password": "geheim"}
    path = tmp_path / "client.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in {"security.protocol": "SSL", **values}.items()))
    topic, config = f"commands-{kind.lower()}", ["--command-config", str(path)]
    brokers = ["--bootstrap-server", secured.cluster.bootstrap]
    controllers = ["--bootstrap-controller", f"127.0.0.1:{port_of(secured.cluster.nodes[1], 'CONTROLLER')}"]

    def run(*arguments: str, text: str = "") -> str:
        return str(CliRunner().invoke(cli, list(arguments), input=text, catch_exceptions=False).output)

    assert topic in run("topic", "create", topic, *brokers, *config)
    assert "Error" not in run("produce", topic, *brokers, *config, text="hello\n")
    assert "hello" in run("consume", topic, "--from-beginning", "--max-messages", "1", *brokers, *config)
    assert topic in run("compat", "kafka-topics", "--list", *brokers, *config)
    assert "LeaderId" in run("compat", "kafka-metadata-quorum", *controllers, *config, "describe", "--status")
