"""Consumer groups with aiokafka: a rebalance, and a restart from the commit."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from tests.clients.groups import PARTITIONS, RECORDS, SESSION_MS, filled, split
from tests.harness.local import PATIENCE_S, Cluster

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("clients")]


@pytest.mark.capability("group: rebalance")
@pytest.mark.capability("group: consume, commit, resume")
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
