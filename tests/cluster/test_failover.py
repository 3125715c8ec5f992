"""Brokers die, hang and return while records flow: nothing acknowledged is lost, nothing is invented."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.harness.local import PATIENCE_S, Cluster, running, wait_for
from tests.harness.writer import Writer

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("shared-cluster")]

REPLICATED = {"min.insync.replicas": "2"}


def test_rp_42_leader_killed_under_load(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic, config=REPLICATED)
    with Writer(cluster, topic) as writer:
        first = cluster.leader(topic)
        cluster.kill(first)
        second = cluster.wait_leader(topic, not_in=(first,))
        writer.wait_more(100)
        assert second != first
        cluster.restart(first)
        cluster.wait_whole(topic)
        writer.wait_more(100)
    writer.verify(cluster)


def test_bl_08_bl_09_paused_leader_resumes_with_its_epoch(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic, config=REPLICATED)
    with Writer(cluster, topic) as writer:
        leader = cluster.leader(topic)
        pid = cluster.node(leader).pid
        cluster.pause(leader)
        cluster.wait_leader(topic, not_in=(leader,))
        writer.wait_more(50)
        cluster.resume(leader)
        cluster.wait_whole(topic)
        writer.wait_more(50)
        assert cluster.node(leader).pid == pid
    writer.verify(cluster)


def test_cm_39_controlled_shutdown_is_invisible(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic, partitions=3, config=REPLICATED)
    leader = cluster.leader(topic)
    with Writer(cluster, topic) as writer:
        cluster.terminate(leader)
        cluster.wait_stopped(leader)
        assert cluster.wait_leader(topic, not_in=(leader,)) != leader
        writer.wait_more(50)
    assert not writer.failed
    marker = Path(cluster.node(leader).data_dir) / ".kafka_cleanshutdown"
    assert json.loads(marker.read_text())["version"] == 0
    cluster.restart(leader)
    cluster.wait_whole(topic)
    writer.verify(cluster)


def test_cm_29_unclean_election_and_truncation(cluster: Cluster, topic: str) -> None:
    first, second = cluster.brokers[:2]
    cluster.create_topic(topic, assignment=[[first, second]], config={"unclean.leader.election.enable": "false"})
    assert cluster.produce(topic, ["a"]) == []
    cluster.kill(second)
    cluster.wait_isr(topic, {first})
    assert cluster.produce(topic, ["lost"]) == []
    cluster.kill(first)
    cluster.wait_leaderless(topic)
    cluster.restart(second)
    from confluent_kafka import ElectionType, TopicPartition

    unclean = cluster.admin().elect_leaders(ElectionType.UNCLEAN, [TopicPartition(topic, 0)])
    assert not any(error for error in unclean.result(PATIENCE_S).values())
    assert cluster.wait_leader(topic) == second
    assert cluster.produce(topic, ["c"]) == []
    cluster.restart(first)
    cluster.wait_isr(topic, {first, second})
    assert cluster.consume(topic, at_least=2) == ["a", "c"]
    logs = [Path(cluster.node(n).data_dir, f"{topic}-0", "0" * 20 + ".log") for n in (first, second)]
    wait_for("the old leader gives up its diverged tail", lambda: logs[0].read_bytes() == logs[1].read_bytes())


def test_rp_27_replicas_are_byte_identical(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic, config=REPLICATED)
    assert cluster.produce(topic, [str(n) for n in range(2000)]) == []
    files = [Path(cluster.node(n).data_dir, f"{topic}-0", "0" * 20 + ".log") for n in cluster.brokers]
    wait_for("three equal logs", lambda: len({f.read_bytes() for f in files}) == 1 and files[0].stat().st_size > 0)


def test_bl_28_everything_killed_at_once() -> None:
    with running(controllers=3, brokers=3) as cluster:
        cluster.create_topic("orders", partitions=2, config={**REPLICATED, "segment.bytes": "1048576"})
        for partition in (0, 1):
            assert cluster.produce("orders", [f"{partition}-{n}" for n in range(500)], partition=partition) == []
        cluster.kill(*cluster.controllers, *cluster.brokers)
        cluster.restart(*cluster.controllers, *cluster.brokers)
        cluster.wait_whole("orders")
        for partition in (0, 1):
            assert cluster.consume("orders", partition=partition, at_least=500) == [f"{partition}-{n}" for n in range(500)]
        from confluent_kafka.admin import ConfigResource, ResourceType

        resource = ConfigResource(ResourceType.TOPIC, "orders")
        configs = cluster.admin().describe_configs([resource], request_timeout=PATIENCE_S)[resource].result(PATIENCE_S + 5)
        assert configs["segment.bytes"].value == "1048576"
        assert configs["min.insync.replicas"].value == "2"
