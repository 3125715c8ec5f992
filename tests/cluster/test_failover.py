"""Brokers die, hang and return while records flow: nothing acknowledged is lost, nothing is invented."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.harness.local import PATIENCE_S, Cluster, running, wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("shared-cluster")]

REPLICATED = {"min.insync.replicas": "2"}


class Writer:
    """Writes numbered records, idempotent and acks=all, until told to stop; knows what was acknowledged at which offset."""

    def __init__(self, cluster: Cluster, topic: str, partition: int = 0) -> None:
        config = {"message.timeout.ms": 120000, "socket.timeout.ms": 3000, "retry.backoff.ms": 20, "retry.backoff.max.ms": 200}
        self._producer = cluster.producer(**{"enable.idempotence": True, **config})
        self._topic, self._partition = topic, partition
        self.acked: dict[int, str] = {}
        self.failed: list[str] = []
        self.sent = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _report(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failed.append(str(error))
        else:
            self.acked[message.offset()] = message.value().decode()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._producer.produce(self._topic, str(self.sent).encode(), partition=self._partition, on_delivery=self._report)
            self.sent += 1
            self._producer.poll(0.002)
        self._producer.flush(120)

    def __enter__(self) -> Writer:
        self._thread.start()
        self.wait_more(50)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(130)

    def wait_more(self, n: int, timeout_s: float = PATIENCE_S) -> None:
        target = len(self.acked) + n
        wait_for(f"{n} more acknowledged records", lambda: len(self.acked) >= target, timeout_s=timeout_s)

    def verify(self, cluster: Cluster) -> None:
        """Every acknowledged record once, at its offset, in order, and nothing that was not sent."""
        assert not self.failed
        values = cluster.consume(self._topic, partition=self._partition, at_least=len(self.acked))
        for offset, value in self.acked.items():
            assert values[offset] == value
        numbers = [int(value) for value in values]
        assert numbers == sorted(set(numbers)), "order or uniqueness broken"
        assert numbers[-1] < self.sent


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


def test_cp_63_five_leader_bounces(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic, config=REPLICATED)
    with Writer(cluster, topic) as writer:
        for bounce in range(5):
            leader = cluster.wait_leader(topic)
            if bounce % 2:
                cluster.terminate(leader)
                cluster.wait_stopped(leader)
            else:
                cluster.kill(leader)
            cluster.wait_leader(topic, not_in=(leader,))
            writer.wait_more(30)
            cluster.restart(leader)
            cluster.wait_whole(topic)
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


def test_rp_02_too_few_replicas(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic, config={"min.insync.replicas": "2"})
    assert cluster.produce(topic, ["a"]) == []
    leader = cluster.leader(topic)
    followers = [broker for broker in cluster.brokers if broker != leader]
    cluster.kill(*followers)
    cluster.wait_isr(topic, {leader})
    refused = cluster.produce(topic, ["refused"], **{"retries": 0, "enable.idempotence": False})
    assert refused == ["NOT_ENOUGH_REPLICAS"]
    # RP-06: acks=1 is taken, but stays invisible until the ISR is large enough again
    assert cluster.produce(topic, ["hidden"], acks="1") == []
    assert cluster.consume(topic, at_least=1) == ["a"]
    cluster.restart(*followers)
    cluster.wait_whole(topic)
    assert cluster.consume(topic, at_least=2) == ["a", "hidden"]


def test_cm_28_only_the_last_in_sync_replica_may_lead(cluster: Cluster, topic: str) -> None:
    first, second = cluster.brokers[:2]
    cluster.create_topic(topic, assignment=[[first, second]])
    assert cluster.produce(topic, ["a"]) == []
    cluster.kill(second)
    cluster.wait_isr(topic, {first})
    assert cluster.produce(topic, ["b"]) == []
    cluster.kill(first)
    cluster.wait_leaderless(topic)
    cluster.restart(second)
    assert cluster.leader(topic) == -1
    cluster.restart(first)
    assert cluster.wait_leader(topic) == first
    assert cluster.consume(topic, at_least=2) == ["a", "b"]


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

    unclean = cluster.admin().elect_leaders(ElectionType.UNCLEAN, [TopicPartition(topic, 0)], request_timeout=PATIENCE_S)
    assert not any(error for error in unclean.result(PATIENCE_S + 5).values())
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
