"""confluent-kafka (librdkafka): produce, read by assignment, seek by time, administer."""

from __future__ import annotations

import pytest

from tests.harness.local import PATIENCE_S, Cluster, wait_for

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("clients")]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_round_trip_with_every_codec(cluster: Cluster, topic: str, codec: str) -> None:
    cluster.create_topic(topic, config={"min.insync.replicas": "2"})
    values = [f"{codec}-{n}-" + "y" * 100 for n in range(500)]
    assert cluster.produce(topic, values, **{"compression.type": codec, "enable.idempotence": True}) == []
    assert cluster.consume(topic, at_least=500) == values


def test_round_trip_through_processes(processes: Cluster, topic: str) -> None:
    test_round_trip_with_every_codec(processes, topic, "lz4")


@pytest.mark.capability("headers, nulls, timestamps")
def test_headers_nulls_and_timestamps(cluster: Cluster, topic: str) -> None:
    from confluent_kafka import Consumer, Producer, TopicPartition

    cluster.create_topic(topic, config={"retention.ms": "-1"})
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    producer.produce(topic, value=None, key=b"k", headers=[("a", b"1"), ("b", None)], timestamp=1_000_000)
    producer.produce(topic, value=b"", key=None, timestamp=2_000_000)
    assert producer.flush(PATIENCE_S) == 0
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    first, second = consumer.poll(PATIENCE_S), consumer.poll(PATIENCE_S)
    consumer.close()
    assert (first.key(), first.value(), first.timestamp()[1]) == (b"k", None, 1_000_000)
    assert first.headers() == [("a", b"1"), ("b", None)]
    assert (second.key(), second.value()) == (None, b"")


@pytest.mark.capability("seek by time")
def test_lg_51_offsets_by_time_and_watermarks(cluster: Cluster, topic: str) -> None:
    from confluent_kafka import Consumer, Producer, TopicPartition

    cluster.create_topic(topic, config={"retention.ms": "-1"})
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for n in range(10):
        producer.produce(topic, value=str(n).encode(), timestamp=1_000_000 + n * 1000)
        assert producer.flush(PATIENCE_S) == 0
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g"})
    # Every record is acknowledged by all replicas: the leader, who is asked, has them all below its high watermark.
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=PATIENCE_S) == (0, 10)
    found = consumer.offsets_for_times([TopicPartition(topic, 0, 1_004_500)], timeout=PATIENCE_S)
    none = consumer.offsets_for_times([TopicPartition(topic, 0, 9_000_000)], timeout=PATIENCE_S)
    consumer.close()
    assert found[0].offset == 5
    assert none[0].offset == -1


@pytest.mark.capability("admin: topics")
@pytest.mark.capability("admin: configs")
@pytest.mark.capability("admin: partitions")
@pytest.mark.capability("admin: list offsets")
@pytest.mark.capability("admin: describe cluster")
def test_admin(cluster: Cluster, topic: str) -> None:
    from confluent_kafka.admin import (
        AlterConfigOpType,
        ConfigEntry,
        ConfigResource,
        NewPartitions,
        NewTopic,
        OffsetSpec,
        ResourceType,
    )

    admin = cluster.admin()
    created = admin.create_topics([NewTopic(topic, 2, 3, config={"retention.ms": "1000000"})], request_timeout=PATIENCE_S)
    created[topic].result(PATIENCE_S + 5)
    cluster.wait_topic(topic)
    with pytest.raises(Exception, match="TOPIC_ALREADY_EXISTS"):
        admin.create_topics([NewTopic(topic, 2, 3)], request_timeout=PATIENCE_S)[topic].result(PATIENCE_S + 5)
    admin.create_partitions([NewPartitions(topic, 4)], request_timeout=PATIENCE_S)[topic].result(PATIENCE_S + 5)
    wait_for(
        "every broker knows four partitions",
        lambda: all(view is not None and len(view.topics[topic]) == 4 for view in cluster.views(topic).values()),
    )

    resource = ConfigResource(ResourceType.TOPIC, topic)
    configs = admin.describe_configs([resource], request_timeout=PATIENCE_S)[resource].result(PATIENCE_S + 5)
    assert configs["retention.ms"].value == "1000000"
    assert not configs["retention.ms"].is_default
    assert configs["cleanup.policy"].is_default
    change = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[ConfigEntry("max.message.bytes", "2000", incremental_operation=AlterConfigOpType.SET)],
    )
    admin.incremental_alter_configs([change], request_timeout=PATIENCE_S)[resource].result(PATIENCE_S + 5)
    wait_for(
        "the new value everywhere",
        lambda: (
            admin.describe_configs([resource], request_timeout=PATIENCE_S)[resource]
            .result(PATIENCE_S + 5)["max.message.bytes"]
            .value
            == "2000"
        ),
    )
    taken = 0
    while (refused := cluster.produce(topic, ["z" * 5000], partition=0, **{"enable.idempotence": False})) == []:
        taken += 1  # the leader is not the broker that was asked for the value, and learns it a moment later
        assert taken < 100
    assert refused == ["MSG_SIZE_TOO_LARGE"]

    described = admin.describe_cluster(request_timeout=PATIENCE_S).result(PATIENCE_S + 5)
    assert {node.id for node in described.nodes} == set(cluster.brokers)
    assert described.cluster_id == cluster.state.cluster_id
    from confluent_kafka import TopicPartition

    latest = admin.list_offsets({TopicPartition(topic, 0): OffsetSpec.latest()}, request_timeout=PATIENCE_S)
    assert [future.result(PATIENCE_S + 5).offset for future in latest.values()] == [taken]
    admin.delete_topics([topic], request_timeout=PATIENCE_S)[topic].result(PATIENCE_S + 5)
    cluster.wait_gone(topic)


def test_cp_09_unknown_topic_and_auto_creation(cluster: Cluster, topic: str) -> None:
    assert cluster.produce(topic, ["made by use"]) == []
    assert cluster.consume(topic, at_least=1) == ["made by use"]


def test_cm_55_producer_ids_are_unique(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic)
    for n in range(12):
        assert cluster.produce(topic, [f"p{n}-{i}" for i in range(3)], **{"enable.idempotence": True}) == []
    assert len(cluster.consume(topic, at_least=36)) == 36
