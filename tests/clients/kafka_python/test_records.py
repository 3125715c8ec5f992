"""kafka-python: produce, read by assignment, seek by time, administer."""

from __future__ import annotations

from typing import Any

import pytest

from tests.harness.local import PATIENCE_S, Cluster, wait_for

kafka: Any = pytest.importorskip("kafka")
pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("clients")]


def servers(cluster: Cluster) -> list[str]:
    return cluster.bootstrap.split(",")


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_round_trip(cluster: Cluster, topic: str, codec: str | None) -> None:
    if codec == "snappy":
        pytest.importorskip("snappy", reason="kafka-python needs python-snappy for this codec")
    cluster.create_topic(topic, config={"retention.ms": "-1"})
    producer = kafka.KafkaProducer(bootstrap_servers=servers(cluster), acks="all", compression_type=codec)
    sent = [producer.send(topic, f"{n}".encode(), key=b"k", headers=[("h", b"v")], timestamp_ms=5000 + n) for n in range(100)]
    assert [future.get(PATIENCE_S).offset for future in sent] == list(range(100))
    producer.close()
    tp = kafka.TopicPartition(topic, 0)
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=servers(cluster), consumer_timeout_ms=int(PATIENCE_S * 1000), enable_auto_commit=False
    )
    consumer.assign([tp])
    consumer.seek_to_beginning(tp)
    got = [next(consumer) for _ in range(100)]
    assert [record.value for record in got] == [f"{n}".encode() for n in range(100)]
    assert list(got[0].headers) == [("h", b"v")]
    assert consumer.end_offsets([tp]) == {tp: 100}
    assert consumer.beginning_offsets([tp]) == {tp: 0}
    assert consumer.offsets_for_times({tp: 5050})[tp].offset == 50
    consumer.close()


def test_round_trip_through_processes(processes: Cluster, topic: str) -> None:
    test_round_trip(processes, topic, "gzip")


@pytest.mark.capability("admin: topics")
def test_admin(cluster: Cluster, topic: str) -> None:
    from kafka.admin import KafkaAdminClient, NewTopic

    admin = KafkaAdminClient(bootstrap_servers=servers(cluster))
    admin.create_topics([NewTopic(topic, num_partitions=2, replication_factor=3)])
    cluster.wait_topic(topic)
    assert topic in admin.list_topics()
    described = admin.describe_topics([topic])
    assert topic in str(described)
    admin.delete_topics([topic])
    wait_for("gone", lambda: topic not in admin.list_topics())
    admin.close()
