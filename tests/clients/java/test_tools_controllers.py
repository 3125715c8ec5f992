"""Kafka's own tools and admin client with the addresses of controllers (KIP-919), on a cluster of processes (CB-01 to CB-04)."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.clients.java import test_capabilities, tools
from tests.clients.programs import Ready
from tests.harness.local import Cluster, running, wait_for

pytestmark = [pytest.mark.clients, pytest.mark.jvm, pytest.mark.slow, pytest.mark.xdist_group("clients")]
capability = pytest.mark.capability


@pytest.fixture(scope="module")
def controllers(java: None) -> Iterator[Cluster]:
    """Three controllers whose only broker dies with the first test."""
    with running(controllers=3, brokers=1) as found:
        yield found


class Tools:
    def __init__(self, cluster: Cluster) -> None:
        self.addresses = ",".join(cluster.node(node_id).grpc for node_id in cluster.controllers)

    def __call__(self, tool: str, *args: str, code: int = 0) -> str:
        where = ("--bootstrap-controller", self.addresses)
        args = (args[0], *where, *args[1:]) if tool == "cluster" else (*where, *args)
        done = tools.kafka_tool(f"kafka-{tool}", *args)
        assert done.code == code, f"kafka-{tool} {' '.join(args)} ended with {done.code}:\n{done.out}{done.err}"
        return done.out + done.err


@capability("--bootstrap-controller")
def test_cb_04_the_admin_client_administers_through_the_controllers(controllers: Cluster) -> None:
    """Its calls for topics do not exist there: the client itself refuses them, in 4.3."""
    controllers.create_topic("direct", replication=1)
    java = Ready(test_capabilities.TestJava.client, tools.program(), "controllers:" + Tools(controllers).addresses)
    described, altered, refused = java.admin(
        {"do": "describe_cluster"},
        {"do": "alter_configs", "topic": "direct", "config": {"retention.ms": "123456"}},
        {"do": "create_topic", "topic": "other", "partitions": 1, "replication_factor": 1},
    )
    assert described["brokers"] == [1, 2, 3]
    assert altered is None
    assert "UNSUPPORTED_ENDPOINT_TYPE" in str(refused)

    def told() -> bool:
        (configs,) = java.admin({"do": "describe_configs", "topic": "direct"})
        return bool(configs["retention.ms"] == {"value": "123456", "default": False})

    wait_for("every controller knows the config", told)


@capability("--bootstrap-controller")
def test_cb_04_every_tool_works_with_every_broker_dead(controllers: Cluster) -> None:
    kafka = Tools(controllers)
    quorum = kafka("metadata-quorum", "describe", "--status")
    leader = int(re.search(r"LeaderId: +(\d+)", quorum)[1])  # type: ignore[index]
    controllers.kill(4)
    assert kafka("cluster", "list-endpoints").count("controller") == 3
    assert "metadata.version" in kafka("features", "describe")
    added = ("--alter", "--entity-type", "brokers", "--entity-default", "--add-config", "log.retention.ms=90000000")
    assert "Completed updating default config for brokers" in kafka("configs", *added)
    shown = ("--describe", "--entity-type", "brokers", "--entity-default")
    wait_for("it is shown", lambda: "log.retention.ms=90000000" in kafka("configs", *shown))
    assert "no longer registered" in kafka("cluster", "unregister", "--id", "4")
    controllers.kill(leader)
    said = kafka("metadata-quorum", "describe", "--status")
    assert f"LeaderId:               {leader}" not in said and "LeaderEpoch" in said
