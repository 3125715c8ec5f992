"""Consumer groups with kafka-python: a rebalance, and a restart from the commit."""

from __future__ import annotations

from typing import Any

import pytest

from tests.clients.groups import PARTITIONS, RECORDS, SESSION_MS, filled, split
from tests.harness.local import Cluster, wait_for

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("clients")]

POLL_MS = 400
"""Not less: a poll whose time is up while it joins forgets the assignment that it is then given (see README.md)."""


@pytest.mark.capability("group: rebalance")
@pytest.mark.capability("group: consume, commit, resume")
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
        return [
            record.value.decode() for one in consumers for records in one.poll(timeout_ms=POLL_MS).values() for record in records
        ]

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
