"""Records that an unclean election loses: the story tells which, and what was acknowledged, less what is left, agrees."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

pytest.importorskip("starlette")

from kraftlite.obs.recording_reader import read_bytes
from kraftlite.testing import SOMEBODY, SyncCluster
from kraftlite.ui.replay import tape_of


def acknowledged(cluster: SyncCluster, values: range) -> dict[int, int]:
    """The value at each offset that a client was told of."""
    told: dict[int, int] = {}

    def note(error: Any, message: Any) -> None:
        assert error is None, error
        told[message.offset()] = int(message.value())

    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "linger.ms": 0})
    for value in values:
        producer.produce("orders", str(value).encode(), partition=0, on_delivery=note)
    assert producer.flush(60) == 0
    return told


def left(cluster: SyncCluster) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "reader"})
    at = TopicPartition("orders", 0, 0)
    end = consumer.get_watermark_offsets(at, timeout=30)[1]
    consumer.assign([at])
    found = consumer.consume(end, timeout=60)
    consumer.close()
    messages: list[Any] = [it for it in found if it.error() is None]
    return {it.offset(): int(it.value()) for it in messages}


@pytest.mark.parametrize("others_too", [0, 150])
def test_the_story_names_the_records_that_an_unclean_election_has_lost(others_too: int) -> None:
    """Also where other partitions change in the same operations, which do not trace each of so many records."""
    with SyncCluster(controllers=1, brokers=3) as cluster:
        cluster.record()
        if others_too:
            cluster.create_topic("others", partitions=others_too, replication_factor=3)
        config = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
        cluster.create_topic("orders", partitions=1, replication_factor=3, config=config)
        told = acknowledged(cluster, range(10))
        cluster.wait_for(topic="orders", isr=cluster.brokers, hw=10)
        alone = cluster.wait_for(topic="orders", leader=SOMEBODY).leader
        assert alone is not None
        others = [it for it in cluster.brokers if it != alone]
        cluster.kill(*others)
        cluster.wait_for(topic="orders", isr=[alone])
        told |= acknowledged(cluster, range(10, 17))
        cluster.kill(alone)
        cluster.restart(others[0])
        cluster.wait_for(topic="orders", leader=others[0])
        told_later = acknowledged(cluster, range(100, 102))
        cluster.restart(alone, others[1])
        cluster.wait_for(topic="orders", isr=cluster.brokers, hw=12)
        kept = left(cluster)
        data = cluster.recording()
    lost = sorted(offset for offset, value in told.items() if kept.get(offset) != value)
    assert kept.items() >= told_later.items() and lost == list(range(10, 17))
    stories = tape_of(lambda: read_bytes(data))["stories"]["orders-0"]
    (story,) = [it for it in stories if it["kind"] == "truncated"]
    assert story["title"] == (
        f"orders-0: broker {alone} truncated its log from 17 to 10, and offsets {lost[0]} to {lost[-1]} were committed: "
        f"{len(lost)} records are lost"
    )
