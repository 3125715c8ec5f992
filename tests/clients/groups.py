"""What tests of consumer groups have in common."""

from __future__ import annotations

from typing import Any

from tests.harness.local import Cluster

RECORDS = 120
PARTITIONS = 4
SESSION_MS = 30_000
"""Nobody dies here: members leave, and a static one is back before its session ends, however busy the machine is."""


def filled(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic, partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        values = [f"{partition}:{n}" for n in range(RECORDS // PARTITIONS)]
        assert cluster.produce(topic, values, partition=partition) == []


def split(*assignments: Any) -> bool:
    """Everybody owns something, and every partition is owned once."""
    return all(assignments) and sorted(tp.partition for one in assignments for tp in one) == list(range(PARTITIONS))
