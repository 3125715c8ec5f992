"""aiokafka: produce and read by assignment."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.harness.local import PATIENCE_S, Cluster

aiokafka: Any = pytest.importorskip("aiokafka")
pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("clients")]


@pytest.mark.capability("produce, acks=all")
@pytest.mark.parametrize("idempotent", [False, True])
async def test_round_trip(cluster: Cluster, topic: str, idempotent: bool) -> None:
    cluster.create_topic(topic)
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=cluster.bootstrap, acks="all", enable_idempotence=idempotent)
    await producer.start()
    try:
        for n in range(100):
            metadata = await producer.send_and_wait(topic, f"{n}".encode(), partition=0)
            assert metadata.offset == n
    finally:
        await producer.stop()
    consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap, enable_auto_commit=False)
    await consumer.start()
    try:
        tp = aiokafka.TopicPartition(topic, 0)
        consumer.assign([tp])
        consumer.seek(tp, 0)
        async with asyncio.timeout(PATIENCE_S):
            got = [(await consumer.getone()).value for _ in range(100)]
        assert got == [f"{n}".encode() for n in range(100)]
        assert await consumer.end_offsets([tp]) == {tp: 100}
    finally:
        await consumer.stop()


async def test_round_trip_through_processes(processes: Cluster, topic: str) -> None:
    await test_round_trip(processes, topic, idempotent=True)
