"""Brokers die and return while records flow: nothing acknowledged is lost, nothing is invented."""

from __future__ import annotations

import pytest

from tests.harness.local import Cluster
from tests.harness.writer import Writer

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("embedded")]

REPLICATED = {"min.insync.replicas": "2"}


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
