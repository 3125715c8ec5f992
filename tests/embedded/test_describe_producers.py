"""DescribeProducers asks a replica, whichever it is: `kafka-transactions find-hanging` does so broker by broker (CP-15)."""

from __future__ import annotations

from kraftlite.local.client import cluster_at
from kraftlite.testing import SyncCluster
from tests.harness.embedded import produce


def test_cp_15_followers_know_the_producers_too() -> None:
    with SyncCluster(controllers=1, brokers=3) as cluster:
        cluster.create_topic("t", replication_factor=2)
        produce(cluster, "t", ["a", "b"], **{"enable.idempotence": True})
        asked = {"topics": [{"name": "t", "partition_indexes": [0]}]}
        found = {}
        for broker in cluster.brokers:
            address = cluster.nodes[broker].kafka
            assert address is not None
            (topic,) = cluster_at(address).call(61, 0, asked).topics
            (answer,) = topic.partitions
            found[broker] = (answer.error_code.name, [int(it.last_sequence) for it in answer.active_producers])
        replicas = cluster.partition("t").replicas
        assert {it: found[it] for it in replicas} == {it: ("none", [1]) for it in replicas}
        (other,) = set(cluster.brokers) - set(replicas)
        assert found[other] == ("not_leader_or_follower", [])
