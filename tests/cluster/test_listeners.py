"""Listeners that change while nodes run, asked of a controller, which does not know the files of brokers (CB-06)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kraftlite.protocol.kio_codec import build_entity
from tests.clients.raw import Closed, Connection
from tests.harness.cluster import free_ports
from tests.harness.local import Cluster, running, wait_for

# isort: split
from kio.index import load_request_schema

pytestmark = pytest.mark.cluster

CONTROLLER, BROKER = 1, 2
NONE, INVALID_REQUEST = 0, 42
MAP = "listener.security.protocol.map"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with running(controllers=1, brokers=1) as found:
        yield found


def asked(address: str, key: int, version: int, values: dict[str, Any]) -> Any:
    with contextlib.closing(Connection(address)) as connection:
        return connection.ask(build_entity(load_request_schema(key, version), values))


def change(cluster: Cluster, node_id: int, configs: dict[str, str | None]) -> tuple[int, str | None]:
    pairs = [{"name": key, "config_operation": 1 if value is None else 0, "value": value} for key, value in configs.items()]
    resource = {"resource_type": 4, "resource_name": str(node_id), "configs": pairs}
    answer = asked(cluster.node(CONTROLLER).grpc, 44, 1, {"resources": [resource], "validate_only": False})
    return int(answer.responses[0].error_code), answer.responses[0].error_message


def known_at(port: int) -> list[int]:
    query = {"topics": [], "allow_auto_topic_creation": False, "include_topic_authorized_operations": False}
    try:
        return [it.port for it in asked(f"127.0.0.1:{port}", 3, 12, query).brokers]
    except (OSError, Closed):
        return []


def test_cb_06_what_a_broker_cannot_have_is_told_and_changes_nothing(cluster: Cluster, tmp_path: Path) -> None:
    broker, (port, other) = cluster.node(BROKER), free_ports(tmp_path, 2)
    words = f"node {CONTROLLER} is only a controller, whose listeners only its file can change"
    assert change(cluster, CONTROLLER, {"listeners": "CONTROLLER://127.0.0.1:1"}) == (INVALID_REQUEST, words)

    file = f"PLAINTEXT://{broker.kafka},REPLICATION://{broker.grpc}"
    protocols = "PLAINTEXT:PLAINTEXT,REPLICATION:GRPC,CONTROLLER:GRPC,ADDED:PLAINTEXT"
    added = {"listeners": f"{file},ADDED://127.0.0.1:{port}", MAP: protocols}
    assert change(cluster, BROKER, added) == (NONE, None)
    wait_for("the broker to serve there", lambda: known_at(port) == [port])

    def told(what: str) -> bool:
        lines = Path(broker.trace_path).read_text().splitlines()
        return any("broker.dynamic_config_ignored" in line and what in line for line in lines)

    for wanted, what in (
        (f"PLAINTEXT://{broker.kafka},ADDED://127.0.0.1:{other}", "REPLICATION is not there"),
        (f"{file},ADDED://127.0.0.1:{cluster.node(CONTROLLER).grpc.rpartition(':')[2]}", "Address already in use"),
    ):
        assert change(cluster, BROKER, {"listeners": wanted}) == (NONE, None), "a controller does not know what a broker can have"
        wait_for("the broker to tell it", lambda what=what: told(what))
        assert known_at(port) == [port], "everything is as it was"

    cluster.kill(BROKER)
    cluster.restart(BROKER)
    assert known_at(int(str(broker.kafka).rpartition(":")[2])), "the others open"
    assert change(cluster, BROKER, added) == (NONE, None)
    wait_for("the broker to serve there again", lambda: known_at(port) == [port])


def test_cb_06_logins_of_an_open_listener_are_refused_by_controllers_too(cluster: Cluster) -> None:
    logins: dict[str, str | None] = {"listener.name.plaintext.sasl.enabled.mechanisms": "PLAIN"}
    error, words = change(cluster, BROKER, logins)
    assert error == INVALID_REQUEST and words is not None and "the listener is open and keeps its logins" in words
    assert change(cluster, BROKER, {"listener.name.later.sasl.enabled.mechanisms": "PLAIN"}) == (NONE, None)
