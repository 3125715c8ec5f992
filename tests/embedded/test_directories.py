"""An embedded cluster whose brokers have two log directories each, and one of them fails (BL-16, JB-06, JB-07)."""

from __future__ import annotations

import pytest

from kraftlite.testing import ClusterError, SyncCluster, other_than
from kraftlite.testing.chaos import Chaos, heal_all
from tests.harness.cluster import Client

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("embedded")]
PARTITIONS = 4


def test_bl_16_jb_06_jb_07_a_directory_fails_and_costs_what_was_in_it() -> None:
    with SyncCluster(controllers=1, brokers=3, directories=2, config={"min.insync.replicas": 2}) as cluster:
        assert cluster.log_dirs == ("/d1", "/d2")
        cluster.create_topic("orders", partitions=PARTITIONS)
        client = Client(cluster.bootstrap_servers)
        client.produce("orders", [f"a{number}" for number in range(100)])
        victim = cluster.leader("orders")
        assert victim is not None
        places = [cluster.directory(victim, "orders", index) for index in range(PARTITIONS)]
        assert set(places) == {"/d1", "/d2"}
        lost = places[0]
        assert lost is not None
        others = set(cluster.brokers) - {victim}
        cluster.fail_directory(victim, lost)
        assert f"{lost} of node {victim} fails" in cluster.troubles()
        client.produce("orders", [f"b{number}" for number in range(100)])
        for index, place in enumerate(places):
            if place == lost:
                cluster.wait_for(topic="orders", partition=index, leader=other_than(victim), isr=others)
                assert cluster.directory(victim, "orders", index) is None
            else:
                assert set(cluster.isr("orders", index)) == set(cluster.brokers), "it was not touched"
        with pytest.raises(ClusterError, match="fails already"):
            cluster.fail_directory(victim, lost)
        cluster.restart(victim)
        assert [cluster.directory(victim, "orders", index) for index in range(PARTITIONS)] == [
            None if place == lost else place for place in places
        ], "nothing was begun anew"
        cluster.mend_directory(victim, lost)
        assert cluster.troubles() == (f"{lost} of node {victim} failed, and it was not started again",)
        cluster.restart(victim)
        assert cluster.troubles() == ()
        for index in range(PARTITIONS):
            cluster.wait_for(topic="orders", partition=index, isr=cluster.brokers)
        assert [cluster.directory(victim, "orders", index) for index in range(PARTITIONS)] == places
        found = client.consume("orders", 200, partitions=PARTITIONS)
        assert set(found) == {f"{batch}{number}" for batch in "ab" for number in range(100)}


def test_a_directory_that_a_test_leaves_broken_is_healed() -> None:
    with SyncCluster(controllers=1, brokers=1, directories=2) as cluster:
        Chaos(cluster).fail_directory(*cluster.brokers, "/d2")
        assert heal_all(cluster) == (f"/d2 of node {cluster.brokers[0]} fails",)
        assert cluster.troubles() == ()


def test_directories_that_there_are_not_are_refused() -> None:
    for wrong in (0, 10, True):
        with pytest.raises(ValueError, match="directories="):
            SyncCluster(directories=wrong)
    with SyncCluster(controllers=1, brokers=1) as cluster:
        assert cluster.log_dirs == ("/data",)
        with pytest.raises(ValueError, match="/d1"):
            cluster.fail_directory(cluster.brokers[0], "/d1")
        with pytest.raises(ClusterError, match="does not fail"):
            cluster.mend_directory(cluster.brokers[0], "/data")
