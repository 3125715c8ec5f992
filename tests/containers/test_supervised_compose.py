"""`KRAFTLITE_FAULTS=true docker compose up` with a real engine: nodes end and come back, and their containers stay."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.containers.engine import NODES, cluster, compose, docker, eventually

pytestmark = pytest.mark.containers


@pytest.fixture(scope="module", autouse=True)
def stack() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KRAFTLITE_FAULTS", "true")  # for each call of compose, which else would make other containers
        with cluster():
            yield


def run(*args: str) -> str:
    """One of our commands, in the container of broker 4."""
    return docker("exec", "kafka-1", "kraftlite", *args, timeout=240)


def states() -> dict[int, str]:
    return {node["id"]: node["state"] for node in json.loads(run("ps", "-o", "json"))["nodes"]}


def containers() -> list[str]:
    return [docker("inspect", "-f", "{{.State.Status}} {{.State.StartedAt}}", name) for name in NODES]


def ledger() -> list[dict[str, Any]]:
    return [
        json.loads(line) for line in docker("exec", "kafka-1", "cat", "/var/lib/kraftlite/cluster/faults.ledger").splitlines()
    ]


def test_nodes_are_killed_and_paused_and_started_again_and_no_container_ends() -> None:
    before = containers()
    admin = AdminClient({"bootstrap.servers": "localhost:29092,localhost:39092,localhost:49092"})
    admin.create_topics([NewTopic("orders", 1, replica_assignment=[[5, 6, 4]])])["orders"].result(60)
    assert states() == dict.fromkeys(range(1, 7), "running")
    assert json.loads(run("kill", "leader", "orders-0", "-o", "json")) == {"node": 5, "done": "killed"}
    assert json.loads(run("pause", "6", "-o", "json")) == {"node": 6, "done": "paused"}
    killed = json.loads(run("kill", "controller", "-o", "json"))["node"]
    assert killed in (1, 2, 3)
    assert states() == {**dict.fromkeys(range(1, 7), "running"), 5: "stopped", 6: "paused", killed: "stopped"}
    run("resume", "6")
    run("restart", str(killed))
    run("restart", "5")
    run("restart", "6")
    assert states() == dict.fromkeys(range(1, 7), "running")
    assert containers() == before
    asked = [(it["kind"], it["node"]) for it in ledger() if it["event"].endswith("asked")]
    assert asked == [
        ("kill", 5),
        ("pause", 6),
        ("kill", killed),
        ("resume", 6),
        ("restart", killed),
        ("restart", 5),
        ("restart", 6),
    ]


def test_the_faults_of_running_nodes_are_there_too() -> None:
    run("fault", "cut", "4", "1", "--for", "1s")
    eventually("the nodes end it", lambda: any(it.get("door") == "node" for it in ledger()))


def test_docker_stops_a_container_as_before() -> None:
    run("kill", "6")
    for name in ("kafka-3", "controller-3"):
        docker("stop", "-t", "60", name)
        assert docker("inspect", "-f", "{{.State.ExitCode}}", name) == "0"
        compose("start", name)
    for name in ("kafka-3", "controller-3"):
        eventually(f"{name} healthy", lambda n=name: docker("inspect", "-f", "{{.State.Health.Status}}", n) == "healthy")
    assert states() == dict.fromkeys(range(1, 7), "running")


def test_a_container_that_was_killed_is_named() -> None:
    docker("kill", "kafka-3")
    done = docker("exec", "kafka-1", "sh", "-c", "kraftlite restart 6 2>&1 || true", timeout=240)
    assert "node 6 has no container now: docker compose start kafka-3" in done
    compose("start", "kafka-3")
    eventually("it is back", lambda: states()[6] == "running")
