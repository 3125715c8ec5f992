"""Consumer groups with confluent-kafka: rebalances, commits, and static members."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.clients.groups import PARTITIONS, RECORDS, SESSION_MS, filled, split
from tests.harness.local import PATIENCE_S, Cluster, wait_for

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("clients")]


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


def shared(*consumers: Any) -> bool:
    return split(*(consumer.assignment() for consumer in consumers))


@pytest.mark.capability("group: rebalance")
@pytest.mark.capability("group: consume, commit, resume")
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


@pytest.mark.capability("group: static members")
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
