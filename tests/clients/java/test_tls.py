"""Kafka's own tools, and so its Java client, at listeners that speak TLS (SE-02, SE-03, SE-05, SE-06)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.clients.java.tools import Missing, jars, kafka_tool
from tests.harness.certificates import Authority, Stores
from tests.harness.cluster import Cluster, running

pytestmark = [pytest.mark.clients, pytest.mark.jvm, pytest.mark.slow, pytest.mark.xdist_group("clients")]

PASSWORD = "geheim"
CA = Authority()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One node; its stores are in PKCS12, and named by Kafka's default type."""
    try:
        jars()
    except Missing as missing:
        pytest.skip(str(missing))
    folder = tmp_path_factory.mktemp("java-tls")
    (folder / "node.p12").write_bytes(CA.issue("node").pkcs12(PASSWORD, [CA.certificate]))
    (folder / "trust.p12").write_bytes(CA.trust_pkcs12(PASSWORD))
    config = {
        "listener.security.protocol.map": "PLAINTEXT:SSL,REPLICATION:GRPC_TLS,CONTROLLER:SSL",
        "ssl.client.auth": "required",
        "ssl.keystore.location": str(folder / "node.p12"),
        "ssl.keystore.password": PASSWORD,
        "ssl.truststore.location": str(folder / "trust.p12"),
        "ssl.truststore.password": PASSWORD,
        "offsets.topic.replication.factor": "1",
    }
    (folder / "cluster").mkdir()
    with running(Cluster.create(folder / "cluster", combined=1, config=config)) as found:
        yield found


def written(folder: Path, name: str, values: Mapping[str, str]) -> str:
    path = folder / f"{name}.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in {"security.protocol": "SSL", **values}.items()))
    return str(path)


def client(folder: Path, kind: str, authority: Authority = CA) -> str:
    certificate = authority.issue("java")
    if kind == "PEM":
        return written(folder, kind, Stores(folder).write(certificate, CA).as_kafka())
    (folder / "me.p12").write_bytes(certificate.pkcs12(PASSWORD))
    (folder / "trust.p12").write_bytes(CA.trust_pkcs12(PASSWORD))
    stores = {"ssl.keystore.location": f"{folder}/me.p12", "ssl.truststore.location": f"{folder}/trust.p12"}
    return written(folder, kind, {**stores, "ssl.keystore.password": PASSWORD, "ssl.truststore.password": PASSWORD})


@pytest.mark.parametrize("kind", ["PEM", "PKCS12"])
def test_se_02_tools_create_write_and_read(cluster: Cluster, tmp_path: Path, kind: str) -> None:
    server, config, topic = ("--bootstrap-server", cluster.bootstrap), client(tmp_path, kind), f"java-{kind.lower()}"
    made = kafka_tool("kafka-topics", *server, "--command-config", config, "--create", "--topic", topic)
    assert made.code == 0, made
    sent = kafka_tool("kafka-console-producer", *server, "--command-config", config, "--topic", topic, stdin="one\ntwo\n")
    assert sent.code == 0, sent
    options = ("--from-beginning", "--max-messages", "2", "--timeout-ms", "60000")
    read = kafka_tool("kafka-console-consumer", *server, "--command-config", config, "--topic", topic, *options)
    assert read.out.splitlines() == ["one", "two"], read


def test_se_06_tools_come_to_a_controller(cluster: Cluster, tmp_path: Path) -> None:
    controller = f"127.0.0.1:{cluster.nodes[1].controller_port}"
    config = client(tmp_path, "PEM")
    found = kafka_tool(
        "kafka-metadata-quorum", "--bootstrap-controller", controller, "--command-config", config, "describe", "--status"
    )
    assert found.code == 0 and "LeaderId:               1" in found.out, found


def test_se_03_a_certificate_of_strangers_is_refused_as_java_tells_it(cluster: Cluster, tmp_path: Path) -> None:
    config = client(tmp_path, "PEM", Authority("stranger"))
    found = kafka_tool("kafka-topics", "--bootstrap-server", cluster.bootstrap, "--command-config", config, "--list")
    assert found.code != 0 and "SslAuthenticationException" in found.out + found.err, found
    assert "its authority is not trusted" in cluster.nodes[1].output()


def test_se_05_kafka_configs_replaces_a_key_store(cluster: Cluster, tmp_path: Path) -> None:
    server = ("--bootstrap-server", cluster.bootstrap, "--command-config", client(tmp_path, "PEM"))
    (tmp_path / "renewed.p12").write_bytes(CA.issue("node").pkcs12(PASSWORD))
    broker = ("--alter", "--entity-type", "brokers", "--entity-name", "1", "--add-config")
    key = "listener.name.plaintext.ssl.keystore"
    done = kafka_tool("kafka-configs", *server, *broker, f"{key}.location={tmp_path}/renewed.p12,{key}.password={PASSWORD}")
    assert done.code == 0, done
    wrong = kafka_tool("kafka-configs", *server, *broker, f"{key}.password=falsch")
    assert wrong.code != 0 and "InvalidRequestException" in wrong.out + wrong.err, wrong
    shown = kafka_tool("kafka-configs", *server, "--describe", "--entity-type", "brokers", "--entity-name", "1")
    assert f"{key}.password=null" in shown.out and PASSWORD not in shown.out, shown
    assert PASSWORD not in cluster.nodes[1].output()
