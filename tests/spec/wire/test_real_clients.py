"""Unmodified clients against the listener with fakes behind it: they negotiate, produce, fetch and administer (CP-03, CP-62)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kraftlite.model.errors import ErrorCode
from kraftlite.model.messages import controller as c
from kraftlite.model.messages import methods as m
from tests.harness.wire_fakes import LISTENER, Harness, broker, partition, topic_uuid


@asynccontextmanager
async def cluster() -> Any:
    """One broker, topic `events` with two partitions, time that passes."""
    async with Harness({"events": [partition([1]), partition([1])]}) as h:
        endpoint = h.listener.endpoint
        assert endpoint is not None
        h.set_image([broker(1, listeners={LISTENER: endpoint.port})])

        async def tick() -> None:
            while True:
                await asyncio.sleep(0.002)
                h.clock.advance(2)

        ticking = asyncio.get_running_loop().create_task(tick())
        try:
            yield h, f"127.0.0.1:{endpoint.port}"
        finally:
            ticking.cancel()


def create(h: Harness) -> Callable[[Any], Any]:
    def answer(request: Any) -> Any:
        h.set_image(topics=h.topics | {topic.name: [partition([1])] for topic in request.topics})
        return c.CreateTopicsResponse(
            topics=tuple(
                c.CreatableTopicResult(
                    name=topic.name, error=ErrorCode.NONE, topic_id=topic_uuid(50), num_partitions=1, replication_factor=1
                )
                for topic in request.topics
            )
        )

    return answer


@pytest.mark.parametrize("acks", [0, 1])
async def test_cp_62_confluent_kafka(acks: int) -> None:
    import confluent_kafka
    from confluent_kafka.admin import AdminClient, NewTopic

    async with cluster() as (h, bootstrap):
        h.controller.answers[m.CREATE_TOPICS] = create(h)

        def work() -> list[bytes]:
            producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "acks": acks, "linger.ms": 1})
            for number in range(200):
                producer.produce("events", f"v{number}".encode(), partition=number % 2)
            assert producer.flush(10) == 0
            consumer = confluent_kafka.Consumer(
                {"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False, "check.crcs": True}
            )
            consumer.assign(
                [confluent_kafka.TopicPartition("events", index, confluent_kafka.OFFSET_BEGINNING) for index in (0, 1)]
            )
            found: list[bytes] = []
            while len(found) < 200:
                for message in consumer.consume(200, timeout=5):
                    assert message.error() is None, message.error()
                    found.append(message.value())
            assert consumer.get_watermark_offsets(confluent_kafka.TopicPartition("events", 0), timeout=5)[1] == 100
            consumer.close()
            admin = AdminClient({"bootstrap.servers": bootstrap})
            admin.create_topics([NewTopic("made", 1, 1)])["made"].result(5)
            assert "made" in admin.list_topics(timeout=5).topics
            assert len(admin.describe_cluster().result(5).nodes) == 1
            return found

        found = await asyncio.to_thread(work)
        assert sorted(found) == sorted(f"v{number}".encode() for number in range(200))


async def test_cp_62_confluent_kafka_idempotent_acks_all() -> None:
    import confluent_kafka

    async with cluster() as (h, bootstrap):

        async def replicate() -> None:
            while True:
                await asyncio.sleep(0.001)
                h.replicas.release()

        replicating = asyncio.get_running_loop().create_task(replicate())

        def work() -> None:
            producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
            for number in range(100):
                producer.produce("events", f"v{number}".encode(), partition=0)
            assert producer.flush(10) == 0

        await asyncio.to_thread(work)
        replicating.cancel()
        assert sum(h.replicas.leo.values()) == 100


async def test_cp_62_kafka_python() -> None:
    import kafka
    import kafka.structs

    async with cluster() as (h, bootstrap):
        h.controller.answers[m.CREATE_TOPICS] = create(h)

        def work() -> list[bytes]:
            producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, acks=1, enable_idempotence=False)
            for number in range(100):
                producer.send("events", f"v{number}".encode(), partition=number % 2).get(timeout=10)
            producer.close()
            consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False, group_id=None)
            parts = [kafka.structs.TopicPartition("events", index) for index in (0, 1)]
            consumer.assign(parts)
            consumer.seek_to_beginning()
            found: list[bytes] = []
            while len(found) < 100:
                for records in consumer.poll(timeout_ms=1000).values():
                    found += [record.value for record in records]
            assert consumer.end_offsets(parts) == dict.fromkeys(parts, 50)
            consumer.close()
            return found

        found = await asyncio.to_thread(work)
        assert sorted(found) == sorted(f"v{number}".encode() for number in range(100))
