"""Real clients talk to the embedded cluster from threads and loops of their own while its nodes die."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from kraftlite.testing import SOMEBODY, Cluster, SyncCluster, other_than
from tests.harness.embedded import consume, producer


class Writer:
    """Writes numbered records from its own thread until it is left; knows what was acknowledged at which offset."""

    def __init__(self, cluster: Cluster | SyncCluster, topic: str) -> None:
        self._producer = producer(cluster, **{"enable.idempotence": True, "message.timeout.ms": 30_000, "linger.ms": 1})
        self._topic = topic
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.acked: dict[int, int] = {}
        self.failed: list[str] = []

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            self._producer.produce(self._topic, str(number).encode(), partition=0, on_delivery=self._report)
            number += 1
            self._producer.poll(0.001)
        self._producer.flush(30)

    def _report(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failed.append(error.name())
        else:
            self.acked[message.offset()] = int(message.value())

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def verify(self, cluster: Cluster | SyncCluster) -> None:
        """All that was acknowledged is there, at its offset, in order, once."""
        values = [int(value) for value in consume(cluster, self._topic, len(self.acked))]
        assert self.failed == []
        assert {offset: values[offset] for offset in self.acked} == self.acked
        assert values == sorted(set(values))


def test_confluent_loses_nothing_while_leaders_are_killed_paused_and_stopped() -> None:
    with SyncCluster() as c:
        c.create_topic("orders", config={"min.insync.replicas": 2})
        hw = 0
        with Writer(c, "orders") as writer:
            for fault in (c.kill, c.pause, c.stop, c.kill):
                view = c.wait_for(topic="orders", leader=SOMEBODY, isr=c.brokers, hw=hw + 50)
                assert view is not None and view.leader is not None and view.hw is not None
                victim, hw = view.leader, view.hw
                fault(victim)
                c.wait_for(topic="orders", leader=other_than(victim), hw=hw + 50)
                if c.nodes[victim].state == "paused":
                    c.resume(victim)
                else:
                    c.restart(victim)
        writer.verify(c)


def test_confluent_loses_nothing_when_everything_is_killed_at_once() -> None:
    with SyncCluster() as c:
        c.create_topic("orders", config={"min.insync.replicas": 2})
        with Writer(c, "orders") as writer:
            c.wait_for(topic="orders", hw=50)
            c.kill(*c.nodes)
            c.restart(*c.nodes)
            view = c.wait_for(topic="orders", leader=SOMEBODY, isr=c.brokers)
            assert view is not None
            c.wait_for(topic="orders", hw=len(writer.acked) + 50)
        writer.verify(c)


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
