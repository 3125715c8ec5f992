"""The metadata quorum: leaders die, hang and return; what was acknowledged stays, what was not never shows."""

from __future__ import annotations

import pytest

from tests.harness.embedded import embedded
from tests.harness.local import PATIENCE_S, Cluster, wait_for

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("embedded")]


def others(cluster: Cluster, node_id: int) -> list[int]:
    return [n for n in cluster.controllers if n != node_id]


def test_ce_06_no_success_without_a_majority(cluster: Cluster, topic: str) -> None:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import NewTopic

    leader = cluster.active_controller()
    followers = others(cluster, leader)
    cluster.pause(*followers)
    future = cluster.admin().create_topics([NewTopic(topic, 1, 1)], operation_timeout=2, request_timeout=3)[topic]
    with pytest.raises(KafkaException):
        future.result(PATIENCE_S)
    cluster.resume(*followers)
    cluster.wait_quorum()
    # A name that timed out may have been created in the end; asking again must give one clear verdict either way.
    wait_for("writes again", lambda: _creates(cluster, topic + "-after"))


def _creates(cluster: Cluster, name: str) -> bool:
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import NewTopic

    try:
        cluster.admin().create_topics([NewTopic(name, 1, 1)], operation_timeout=5, request_timeout=5)[name].result(PATIENCE_S)
    except KafkaException as error:
        return bool(error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS)
    return True


def test_rf_59_rf_60_data_flows_without_a_quorum(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic, config={"min.insync.replicas": "2"})
    cluster.kill(*cluster.controllers)
    assert cluster.produce(topic, [str(n) for n in range(200)]) == []
    assert len(cluster.consume(topic, at_least=200)) == 200
    cluster.restart(*cluster.controllers[:2])
    wait_for("metadata writes with two of three", lambda: _creates(cluster, topic + "-two"))
    cluster.restart(cluster.controllers[2])


def test_rf_17_rf_18_paused_leader_is_replaced_and_steps_down(cluster: Cluster, topic: str) -> None:
    old = cluster.active_controller()
    epoch = int(cluster.quorum_status()["LeaderEpoch"])
    cluster.pause(old)
    cluster.wait_quorum(not_led_by=old)
    cluster.create_topic(topic)
    cluster.resume(old)
    cluster.wait_quorum(caught_up=True)
    assert int(cluster.quorum_status()["LeaderEpoch"]) > epoch
    assert cluster.leader(topic) >= 0


def test_rf_10_bl_24_one_combined_node() -> None:
    with embedded(controllers=1, brokers=1, combined=True) as cluster:
        cluster.create_topic("solo", replication=1)
        assert cluster.produce("solo", ["a", "b"]) == []
        cluster.kill(1)
        cluster.restart(1)
        cluster.wait_leader("solo")
        assert cluster.consume("solo", at_least=2) == ["a", "b"]
