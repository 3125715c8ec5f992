"""Consumer groups with kafka-python: a rebalance, and a restart from the commit."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.clients.groups import PARTITIONS, RECORDS, SESSION_MS, filled, split
from tests.harness.local import Cluster, wait_for

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("clients")]

POLL_MS = 2_000
"""Longer than a group takes to form: a poll whose time is up while it joins may forget the assignment that it is then given, and
a member that is not polled while the others join forgets it for certain (see README.md). So each is polled by its own thread."""


class Member:
    """A consumer that a thread of its own polls without a pause, until `rest`: `assignment` and `records` are what it has."""

    def __init__(self, consumer: Any) -> None:
        self.consumer = consumer
        self.assignment: frozenset[Any] = frozenset()
        self.records: list[str] = []
        self._over = threading.Event()
        self._pool = ThreadPoolExecutor(1)
        self._ended = self._pool.submit(self._run)

    def rest(self) -> None:
        """Poll no more; the consumer is the caller's now. Raises what a poll raised."""
        self._over.set()
        self._pool.shutdown()
        self._ended.result()

    def close(self) -> None:
        """Leave the group. Raises what a poll raised."""
        try:
            self.rest()
        finally:
            self.consumer.close()

    def _run(self) -> None:
        while not self._over.is_set():
            polled = self.consumer.poll(timeout_ms=POLL_MS)
            self.records += [record.value.decode() for records in polled.values() for record in records]
            self.assignment = frozenset(self.consumer.assignment())


@pytest.mark.capability("group: rebalance")
@pytest.mark.capability("group: consume, commit, resume")
def test_kafka_python_rebalances_and_restarts_from_the_commit(cluster: Cluster, topic: str) -> None:
    kafka: Any = pytest.importorskip("kafka")
    filled(cluster, topic)

    def member() -> Member:
        consumer = kafka.KafkaConsumer(
            topic,
            bootstrap_servers=cluster.bootstrap.split(","),
            group_id=f"group-of-{topic}",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=500,
            max_poll_records=20,
        )
        return Member(consumer)

    first, second = member(), member()
    try:
        wait_for("both share", lambda: split(first.assignment, second.assignment))
    finally:
        second.close()
    try:
        wait_for("the first owns all", lambda: len(first.assignment) == PARTITIONS)
        first.rest()
        first.consumer.commit({tp: kafka.OffsetAndMetadata(10, "ten", -1) for tp in first.assignment})
    finally:
        first.close()
    third = member()
    try:
        wait_for("the rest", lambda: len(third.records) >= RECORDS - 10 * PARTITIONS)
    finally:
        third.close()
    assert sorted(third.records) == sorted(f"{p}:{n}" for p in range(PARTITIONS) for n in range(10, RECORDS // PARTITIONS))
