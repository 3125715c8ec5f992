"""The memory of replicas that nobody uses: most partitions of a broker that has many."""

from __future__ import annotations

import tracemalloc
from uuid import UUID

from kraftlite.model.topic_partition import TopicPartition
from tests.harness.broker_logs import Logs
from tests.harness.replication_cluster import StepCluster

COUNT = 300
OURS = [tracemalloc.Filter(True, f"*/kraftlite/{package}/*") for package in ("broker", "log", "metadata", "model", "replication")]


async def test_an_idle_replica_takes_less_than_6_kib() -> None:
    """Its log, its role, its place in a fetcher, and what metadata says of it."""
    logs = Logs()
    await logs.load()
    c = StepCluster(3)
    c[1].manager._logs = logs.dirs
    c.controller.create((1, 2, 3), name="warm", topic_id=UUID(int=1))
    c[1].catch_up()
    for index in range(COUNT):
        c.controller.create(((1, 2, 3), (2, 3, 1), (3, 1, 2))[index % 3], index=index)
    tracemalloc.start()
    try:
        c[1].catch_up()
        assert c[1].manager.partition(TopicPartition("orders", COUNT - 1)) is not None
        taken = sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces(OURS).traces)
    finally:
        tracemalloc.stop()
    assert taken / COUNT < 6 * 1024
