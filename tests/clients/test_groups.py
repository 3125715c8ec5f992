"""Consumer groups with real clients: rebalances, commits, static members, and a coordinator that dies."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.harness.local import PATIENCE_S, Cluster, wait_for

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("clients")]

RECORDS = 120
PARTITIONS = 4
SESSION_MS = 30_000
"""Nobody dies here: members leave, and a static one is back before its session ends, however busy the machine is."""


def filled(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic, partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        values = [f"{partition}:{n}" for n in range(RECORDS // PARTITIONS)]
        assert cluster.produce(topic, values, partition=partition) == []


# --- confluent-kafka -----------------------------------------------------------------------------------------------------


def confluent(cluster: Cluster, topic: str, **config: Any) -> Any:
    from confluent_kafka import Consumer

    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": f"group-of-{topic}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": 500,
            **config,
        }
    )
    consumer.subscribe([topic])
    return consumer


def polled(*consumers: Any) -> list[str]:
    """One poll of each, so that all take part in rebalances; what they got."""
    values = []
    for consumer in consumers:
        message = consumer.poll(0.02)
        if message is not None and message.error() is None:
            values.append(message.value().decode())
    return values


def until(what: str, consumers: list[Any], condition: Callable[[], bool], timeout_s: float = PATIENCE_S) -> list[str]:
    """Poll until the condition holds; all that was read meanwhile."""
    found: list[str] = []

    def step() -> bool:
        found.extend(polled(*consumers))
        return condition()

    wait_for(what, step, timeout_s=timeout_s, every_s=0)
    return found


def owned(consumer: Any) -> list[int]:
    return sorted(tp.partition for tp in consumer.assignment())


def split(*assignments: Any) -> bool:
    """Everybody owns something, and every partition is owned once."""
    return all(assignments) and sorted(tp.partition for one in assignments for tp in one) == list(range(PARTITIONS))


def shared(*consumers: Any) -> bool:
    return split(*(consumer.assignment() for consumer in consumers))


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_confluent_rebalances_and_restarts_from_the_commit(cluster: Cluster, topic: str, strategy: str) -> None:
    filled(cluster, topic)
    config = {"partition.assignment.strategy": strategy}
    first = confluent(cluster, topic, **config)
    second = None
    try:
        until("the first owns all", [first], lambda: owned(first) == list(range(PARTITIONS)))
        second = confluent(cluster, topic, **config)
        until("both share", [first, second], lambda: shared(first, second))
        second.close()
        second = None
        read: list[str] = []
        first.close()
        first = confluent(cluster, topic, **config)
        wait_for("half is read", lambda: read.extend(polled(first)) or len(read) >= RECORDS // 2, every_s=0)
        positions = {tp.partition: tp.offset for tp in first.position(first.assignment())}
        first.commit(asynchronous=False)
        first.close()
        first = confluent(cluster, topic, **config)
        rest: list[str] = []
        wait_for("the rest is read", lambda: rest.extend(polled(first)) or len(rest) + len(read) >= RECORDS, every_s=0)
        assert sorted(read + rest) == sorted(f"{p}:{n}" for p in range(PARTITIONS) for n in range(RECORDS // PARTITIONS))
        assert sum(max(offset, 0) for offset in positions.values()) == len(read)
    finally:
        for consumer in (first, second):
            if consumer is not None:
                consumer.close()


def test_cp_34_confluent_static_member_restarts_without_a_rebalance(cluster: Cluster, topic: str) -> None:
    filled(cluster, topic)
    revoked: list[Any] = []
    first = confluent(cluster, topic, **{"group.instance.id": "one"})
    first.subscribe([topic], on_revoke=lambda _consumer, partitions: revoked.append(partitions))
    second = confluent(cluster, topic, **{"group.instance.id": "two"})
    try:
        until("both share", [first, second], lambda: shared(first, second))
        mine = owned(second)
        revoked.clear()
        second.close()
        second = confluent(cluster, topic, **{"group.instance.id": "two"})
        until("it has its partitions back", [first, second], lambda: owned(second) == mine)
        assert revoked == []
    finally:
        first.close()
        second.close()


# --- kafka-python --------------------------------------------------------------------------------------------------------


def test_kafka_python_rebalances_and_restarts_from_the_commit(cluster: Cluster, topic: str) -> None:
    kafka: Any = pytest.importorskip("kafka")
    filled(cluster, topic)

    def consumer() -> Any:
        return kafka.KafkaConsumer(
            topic,
            bootstrap_servers=cluster.bootstrap.split(","),
            group_id=f"group-of-{topic}",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=500,
            max_poll_records=20,
        )

    def poll(*consumers: Any) -> list[str]:
        return [record.value.decode() for one in consumers for records in one.poll(timeout_ms=50).values() for record in records]

    first, second = consumer(), consumer()
    try:

        def balanced() -> bool:
            poll(first, second)
            return split(first.assignment(), second.assignment())

        wait_for("both share", balanced)
        second.close()

        def alone() -> bool:
            poll(first)
            return len(first.assignment()) == PARTITIONS

        wait_for("the first owns all", alone)
        first.commit({tp: kafka.OffsetAndMetadata(10, "ten", -1) for tp in first.assignment()})
        first.close()
        first = consumer()
        found: list[str] = []
        wait_for("the rest", lambda: found.extend(poll(first)) or len(found) >= RECORDS - 10 * PARTITIONS)
        assert sorted(found) == sorted(f"{p}:{n}" for p in range(PARTITIONS) for n in range(10, RECORDS // PARTITIONS))
    finally:
        first.close()


# --- aiokafka ------------------------------------------------------------------------------------------------------------


async def test_aiokafka_rebalances_and_restarts_from_the_commit(cluster: Cluster, topic: str) -> None:
    aiokafka: Any = pytest.importorskip("aiokafka")
    filled(cluster, topic)

    def consumer() -> Any:
        return aiokafka.AIOKafkaConsumer(
            topic,
            bootstrap_servers=cluster.bootstrap,
            group_id=f"group-of-{topic}",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=500,
            max_poll_records=20,
        )

    async def poll(one: Any) -> list[str]:
        return [r.value.decode() for records in (await one.getmany(timeout_ms=50)).values() for r in records]

    async def eventually(what: str, condition: Any) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not await condition():
            assert time.monotonic() < deadline, what

    first, second = consumer(), consumer()
    await first.start()
    await second.start()
    try:

        async def balanced() -> bool:
            await asyncio.gather(poll(first), poll(second))
            return split(first.assignment(), second.assignment())

        await eventually("both share", balanced)
        await second.stop()

        async def alone() -> bool:
            await poll(first)
            return len(first.assignment()) == PARTITIONS

        await eventually("the first owns all", alone)
        await first.commit(dict.fromkeys(first.assignment(), 10))
        await first.stop()
        first = consumer()
        await first.start()
        found: list[str] = []

        async def read() -> bool:
            found.extend(await poll(first))
            return len(found) >= RECORDS - 10 * PARTITIONS

        await eventually("the rest", read)
        assert sorted(found) == sorted(f"{p}:{n}" for p in range(PARTITIONS) for n in range(10, RECORDS // PARTITIONS))
    finally:
        await first.stop()
