"""The metadata quorum as processes: leaders die and stop, and others take over. More of it is in tests/embedded."""

from __future__ import annotations

import pytest

from tests.harness.local import Cluster, running

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("shared-cluster")]


def test_rf_11_ce_09_killed_active_controller(cluster: Cluster, topic: str) -> None:
    before = cluster.quorum_status()
    old = int(before["LeaderId"])
    cluster.kill(old)
    cluster.create_topic(topic)
    after = cluster.quorum_status()
    assert int(after["LeaderId"]) != old
    assert int(after["LeaderEpoch"]) > int(before["LeaderEpoch"])
    cluster.restart(old)
    cluster.wait_quorum(caught_up=True)
    assert cluster.leader(topic) >= 0


def test_rf_19_graceful_leader_stop_hands_over_quickly(cluster: Cluster, topic: str) -> None:
    old = cluster.active_controller()
    cluster.terminate(old)
    cluster.wait_stopped(old)
    cluster.create_topic(topic)
    assert cluster.active_controller() != old


def test_bl_24_combined_cluster_survives_one_kill() -> None:
    with running(controllers=3, brokers=3, combined=True) as cluster:
        cluster.create_topic("orders", config={"min.insync.replicas": "2"})
        victim = cluster.leader("orders")
        assert cluster.produce("orders", ["a"]) == []
        cluster.kill(victim)
        cluster.wait_leader("orders", not_in=(victim,))
        assert cluster.produce("orders", ["b"]) == []
        cluster.restart(victim)
        cluster.wait_whole("orders")
        assert cluster.consume("orders", at_least=2) == ["a", "b"]
