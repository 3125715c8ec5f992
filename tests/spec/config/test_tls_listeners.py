"""Listeners that speak TLS in a node's configuration: protocols, settings of one listener, what is refused (SE-01, SE-06)."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftlite.config.server import ConfigError, ServerConfig, load
from kraftlite.tls.settings import ClientAuth
from tests.harness.certificates import Authority, Stores

CA = Authority()
KAFKAS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "listeners": "INTERNAL://localhost:9092,CONTROLLER://localhost:9093",
    "listener.security.protocol.map": "INTERNAL:SSL,CONTROLLER:SSL",
    "inter.broker.listener.name": "INTERNAL",
}


def built(**values: str) -> ServerConfig:
    return load(None, {"KAFKA_PROCESS_ROLES": "x"}, {**KAFKAS, **{key.replace("_", "."): text for key, text in values.items()}})


def refused(**values: str) -> str:
    with pytest.raises(ConfigError) as caught:
        built(**values)
    assert len(caught.value.problems) == 1, caught.value.problems
    return caught.value.problems[0]


def stores(folder: Path, name: str = "node") -> dict[str, str]:
    return Stores(folder / name).write(CA.issue(name), CA).as_kafka()


def test_se_06_a_pasted_configuration_gets_tls_between_nodes(tmp_path: Path) -> None:
    """The listener that is added for replication has the settings of the one that Kafka replicates over."""
    own = {f"listener.name.internal.{key}": value for key, value in stores(tmp_path, "internal").items()}
    config = built(**stores(tmp_path), **own)
    found = {listener.name: listener.security_protocol for listener in config.listeners}
    assert found == {"INTERNAL": "SSL", "CONTROLLER": "GRPC_TLS", "REPLICATION": "GRPC_TLS"}
    assert config.tls["REPLICATION"].keys.location == config.tls["INTERNAL"].keys.location == f"{tmp_path}/internal/keys.pem"
    assert config.tls["CONTROLLER"].keys.location == f"{tmp_path}/node/keys.pem"
    assert config.tls["INTERNAL"].client_auth is ClientAuth.NONE
    assert config.tls["REPLICATION"].client_auth is config.tls["CONTROLLER"].client_auth is ClientAuth.REQUESTED


def test_se_06_a_broker_dials_controllers_as_their_listener_says(tmp_path: Path) -> None:
    alone = {"process_roles": "broker", "node_id": "2", "listeners": "INTERNAL://localhost:9092"}
    config = built(**alone, **stores(tmp_path))
    assert config.controller_listener is not None and config.controller_listener.security_protocol == "GRPC_TLS"
    assert set(config.tls) == {"INTERNAL", "REPLICATION", "CONTROLLER"}
    plain = built(**alone, **stores(tmp_path), **{"listener.security.protocol.map": "INTERNAL:SSL,CONTROLLER:PLAINTEXT"})
    assert "CONTROLLER" not in plain.tls


def test_se_06_the_protocol_between_brokers_names_their_listener(tmp_path: Path) -> None:
    listeners = {"listeners": "PLAINTEXT://localhost:9092,SSL://localhost:9094,CONTROLLER://localhost:9093"}
    mapped = {"listener_security_protocol_map": "CONTROLLER:SSL,PLAINTEXT:PLAINTEXT,SSL:SSL"}
    values = {**listeners, **mapped, **stores(tmp_path), "inter_broker_listener_name": ""}
    assert built(**values, security_inter_broker_protocol="SSL").inter_broker_named == "SSL"
    assert built(**values).inter_broker_named == "PLAINTEXT"
    both = {**values, "inter_broker_listener_name": "SSL", "security_inter_broker_protocol": "SSL"}
    assert "exclude each other" in refused(**both)
    nothing = {**values, "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093"}
    assert "no listener has this name" in refused(**nothing, security_inter_broker_protocol="SSL")


def test_se_01_what_is_wrong_is_one_line_with_its_key(tmp_path: Path) -> None:
    told = refused()
    assert told.startswith("ssl.keystore.location is not set: a listener that speaks TLS needs")
    assert told.endswith("(listener INTERNAL, CONTROLLER, REPLICATION)")
    given = stores(tmp_path)
    assert refused(**given, ssl_client_auth="maybe").startswith("ssl.client.auth=maybe: allowed is")
    key = "listener.name.internal.ssl.keystore.location"
    assert refused(**given, **{key: "/nowhere.pem"}).startswith(f"{key}=/nowhere.pem: there is no such file")
    secret = refused(**given, ssl_keystore_password="geheim")
    assert secret.startswith("ssl.keystore.password is given") and "geheim" not in secret
    jks = tmp_path / "server.jks"
    jks.write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    told = refused(**{**given, "ssl.keystore.type": "JKS", "ssl.keystore.location": str(jks)})
    assert "keytool -importkeystore" in told
