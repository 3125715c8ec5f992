"""Real clients talk to the embedded cluster from threads and loops of their own while its nodes die."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlite.testing import SOMEBODY, Cluster, SyncCluster, other_than
from tests.harness.embedded import Embedded
from tests.harness.writer import Writer

IMPATIENT = {"socket.timeout.ms": 1000}
"""A client gives up a broker that hangs after its request timeout; librdkafka's is a minute."""


def test_confluent_loses_nothing_while_leaders_are_killed_paused_and_stopped() -> None:
    with SyncCluster() as c:
        c.create_topic("orders", config={"min.insync.replicas": 2})
        hw = 0
        with Writer(Embedded(c), "orders", **IMPATIENT) as writer:
            for fault in (c.kill, c.pause, c.stop):
                view = c.wait_for(topic="orders", leader=SOMEBODY, isr=c.brokers, hw=hw + 50)
                assert view is not None and view.leader is not None and view.hw is not None
                victim, hw = view.leader, view.hw
                fault(victim)
                c.wait_for(topic="orders", leader=other_than(victim), hw=hw + 50)
                if c.nodes[victim].state == "paused":
                    c.resume(victim)
                else:
                    c.restart(victim)
        writer.verify(Embedded(c))


def test_confluent_loses_nothing_when_everything_is_killed_at_once() -> None:
    with SyncCluster() as c:
        c.create_topic("orders", config={"min.insync.replicas": 2})
        with Writer(Embedded(c), "orders", **IMPATIENT) as writer:
            c.wait_for(topic="orders", hw=50)
            c.kill(*c.nodes)
            c.restart(*c.nodes)
            view = c.wait_for(topic="orders", leader=SOMEBODY, isr=c.brokers)
            assert view is not None
            c.wait_for(topic="orders", hw=len(writer.acked) + 50)
        writer.verify(Embedded(c))


async def test_aiokafka_lives_on_the_loop_that_made_the_cluster() -> None:
    aiokafka: Any = pytest.importorskip("aiokafka")
    async with Cluster() as c:
        await c.create_topic("orders", config={"min.insync.replicas": 2})
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=c.bootstrap_servers, acks="all", retry_backoff_ms=20)
        await producer.start()
        for number in range(60):
            if number == 20:
                leader = c.leader("orders")
                assert leader is not None
                c.kill(leader)
            sent = await producer.send_and_wait("orders", str(number).encode(), partition=0)
            assert sent.offset == number
        await producer.stop()
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=c.bootstrap_servers, enable_auto_commit=False)
        await consumer.start()
        tp = aiokafka.TopicPartition("orders", 0)
        consumer.assign([tp])
        consumer.seek(tp, 0)
        assert [int((await consumer.getone()).value) for _ in range(60)] == list(range(60))
        await consumer.stop()


def test_kafka_python_finds_the_new_leader() -> None:
    kafka: Any = pytest.importorskip("kafka")
    with SyncCluster() as c:
        c.create_topic("orders", config={"min.insync.replicas": 2})
        servers = c.bootstrap_servers.split(",")
        producer = kafka.KafkaProducer(bootstrap_servers=servers, acks="all", retries=100, retry_backoff_ms=20)
        assert producer.send("orders", b"before", partition=0).get(20).offset == 0
        leader = c.leader("orders")
        assert leader is not None
        c.kill(leader)
        assert producer.send("orders", b"after", partition=0).get(20).offset == 1
        producer.close()
        consumer = kafka.KafkaConsumer(bootstrap_servers=servers, consumer_timeout_ms=10_000, enable_auto_commit=False)
        tp = kafka.TopicPartition("orders", 0)
        consumer.assign([tp])
        consumer.seek_to_beginning(tp)
        assert [next(consumer).value for _ in range(2)] == [b"before", b"after"]
        consumer.close()
