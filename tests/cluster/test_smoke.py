"""Real processes, real gRPC, real signals, a real client."""

from __future__ import annotations

import json
import signal
import socket
from pathlib import Path

import pytest

from tests.harness.cluster import Client, Cluster, ended, running, wait_for

pytestmark = pytest.mark.cluster


def records(prefix: str, count: int) -> list[str]:
    return [f"{prefix}-{number:05d}" for number in range(count)]


def test_bl_10_bl_24_one_combined_node_serves_stops_and_serves_again(tmp_path: Path) -> None:
    cluster = Cluster.create(tmp_path, combined=1)
    (node,) = cluster.nodes.values()
    with running(cluster):
        client = Client(cluster.bootstrap)
        client.create_topic("orders", partitions=2)
        client.produce("orders", records("a", 200))
        assert client.consume("orders", 200, partitions=2) == records("a", 200)
        assert "[KafkaServer id=1] started" in node.output()
        assert node.stop() == 0
        marker = json.loads((node.data / ".kafka_cleanshutdown").read_text())
        assert marker["version"] == 0 and marker["brokerEpoch"] > 0
        node.start()
        assert not (node.data / ".kafka_cleanshutdown").exists()
        client.produce("orders", records("b", 10))
        assert client.consume("orders", 210, partitions=2) == records("a", 200) + records("b", 10)
        assert node.stop() == 0
    (loaded,) = [json.loads(line) for line in node.this_run().splitlines() if '"broker.logs_loaded"' in line]
    assert loaded["logs"] == 2 and loaded["clean"]


def test_bl_27_bl_28_three_controllers_and_three_brokers(tmp_path: Path) -> None:
    cluster = Cluster.create(tmp_path, controllers=3, brokers=3, config={"min.insync.replicas": "2"})
    with running(cluster):
        client = Client(cluster.bootstrap)
        client.create_topic("orders", partitions=3, replicas=3)
        client.produce("orders", records("a", 300))
        assert client.consume("orders", 300, partitions=3) == records("a", 300)

        leader = wait_for(lambda: max(0, client.leader("orders")), "a leader of orders-0")
        cluster.nodes[leader].kill()
        survivors = Client(",".join(f"127.0.0.1:{node.kafka_port}" for node in cluster.brokers if node.node_id != leader))
        wait_for(lambda: survivors.leader("orders") not in (-1, leader), "another leader of orders-0")
        survivors.produce("orders", records("b", 100))
        cluster.nodes[leader].start()
        wait_for(lambda: client.isr("orders") == [4, 5, 6], "a full ISR after the restart")
        assert client.consume("orders", 400, partitions=3) == records("a", 300) + records("b", 100)

        cluster.kill()
        cluster.start()
        assert client.consume("orders", 400, partitions=3) == records("a", 300) + records("b", 100)
        client.produce("orders", records("c", 10))
        assert set(cluster.stop().values()) == {0}


def test_bl_04_the_cluster_outlives_its_active_controller(tmp_path: Path) -> None:
    cluster = Cluster.create(tmp_path, controllers=3, brokers=1)
    with running(cluster):
        client = Client(cluster.bootstrap)
        client.create_topic("before")

        def active() -> int | None:
            found = [
                (json.loads(line)["raft_epoch"], node.node_id)
                for node in cluster.controllers
                for line in node.this_run().splitlines()
                if '"raft.leader_elected"' in line
            ]
            return max(found)[1] if found else None

        first = wait_for(active, "an active controller")
        cluster.nodes[first].kill()
        client.create_topic("after")
        client.produce("after", records("a", 10))
        assert client.consume("after", 10) == records("a", 10)


def test_bl_08_a_paused_broker_comes_back_with_the_same_epoch(tmp_path: Path) -> None:
    cluster = Cluster.create(tmp_path, controllers=1, brokers=2)
    with running(cluster):
        client = Client(f"127.0.0.1:{cluster.nodes[2].kafka_port}")
        client.create_topic("orders", replicas=2)
        paused = cluster.nodes[3]
        wait_for(lambda: client.isr("orders") == [2, 3], "a full ISR")
        paused.signal(signal.SIGSTOP)
        wait_for(lambda: client.isr("orders") == [2], "the paused broker to leave the ISR")
        paused.signal(signal.SIGCONT)
        wait_for(lambda: client.isr("orders") == [2, 3], "the broker to be back in the ISR")
        registered = [line for line in paused.output().splitlines() if '"broker.registered"' in line]
        assert len(registered) == 1


def test_bl_11_a_broker_stops_although_the_controllers_are_gone(tmp_path: Path) -> None:
    cluster = Cluster.create(tmp_path, controllers=1, brokers=1)
    with running(cluster):
        Client(cluster.bootstrap).create_topic("orders")
        cluster.nodes[1].kill()
        assert cluster.nodes[2].stop() == 0
        assert (cluster.nodes[2].data / ".kafka_cleanshutdown").exists()


def test_bl_03_a_broker_without_controllers_gives_up_non_zero(tmp_path: Path) -> None:
    cluster = Cluster.create(tmp_path, controllers=1, brokers=1, config={"initial.broker.registration.timeout.ms": "2000"})
    broker = cluster.nodes[2]
    with ended(cluster):
        broker.start(wait=False)
        assert broker.wait_exit() == 1
        assert "initial.broker.registration.timeout.ms" in broker.output()
        assert "Traceback" not in broker.output()


def test_bl_14_bl_15_to_08_user_errors_are_one_line_and_a_status(tmp_path: Path) -> None:
    cluster = Cluster.create(tmp_path, combined=1, format=False)
    (node,) = cluster.nodes.values()
    with ended(cluster):
        node.start(wait=False)
        assert node.wait_exit() == 1
        lines = [line for line in node.output().splitlines() if line and not line.startswith("---")]
        assert len(lines) == 1 and "is not formatted" in lines[0] and str(node.data) in lines[0]

        cluster.format()
        node.start()
        first = node.process
        node.process = None
        node.start(wait=False)
        assert node.wait_exit() == 1
        assert ".lock is locked" in node.this_run() and "Traceback" not in node.this_run()
        node.process = first
        assert node.stop() == 0


def test_to_08_an_address_in_use_is_told_without_a_stack(tmp_path: Path) -> None:
    cluster = Cluster.create(tmp_path, controllers=1)
    (node,) = cluster.nodes.values()
    with socket.socket() as taken, ended(cluster):
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", node.controller_port))
        taken.listen()
        node.start(wait=False)
        assert node.wait_exit() == 1
    assert str(node.controller_port) in node.output() and "Traceback" not in node.output()


@pytest.mark.usefixtures("signals_of_a_terminal")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_bl_01_a_broker_that_is_told_to_stop_while_it_starts_stops(number: signal.Signals, tmp_path: Path) -> None:
    cluster = Cluster.create(tmp_path, controllers=1, brokers=1)
    broker = cluster.nodes[2]
    with ended(cluster):
        broker.start(wait=False)
        wait_for(lambda: '"state":"STARTING"' in broker.output(), "the broker to be starting")
        broker.signal(number)
        assert broker.wait_exit() == 0
        assert not (broker.data / ".kafka_cleanshutdown").exists()
