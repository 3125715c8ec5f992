"""The connection on uvloop, whose transports gather and pause in their own way: the same contract (CP-01, CP-02, CP-18)."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.harness.wire_fakes import Harness, batch, partition, until

uvloop = pytest.importorskip("uvloop")


def on_uvloop(scenario: Callable[[], Awaitable[None]]) -> None:
    loop = uvloop.new_event_loop()
    try:
        loop.run_until_complete(scenario())
    finally:
        loop.close()


def produce(value: bytes, acks: int = 1) -> dict[str, Any]:
    return {
        "transactional_id": None,
        "acks": acks,
        "timeout": 1000,
        "topic_data": [{"name": "big", "partition_data": [{"index": 0, "records": bytes(batch(value))}]}],
    }


FETCH = {
    "replica_id": -1,
    "max_wait": 0,
    "min_bytes": 1,
    "max_bytes": 50_000_000,
    "isolation_level": 0,
    "session_id": 0,
    "session_epoch": -1,
    "topics": [{"topic": "big", "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 50_000_000}]}],
    "forgotten_topics_data": [],
    "rack_id": "",
}


def test_cp_01_pipelining_large_frames_and_back_pressure_on_uvloop() -> None:
    async def scenario() -> None:
        rng = random.Random(5)
        async with Harness({"big": [partition([1])]}, listener={"max_in_flight": 10}) as h:
            client = await h.client()
            sizes = [rng.choice([10, 5_000, 70_000, 1_500_000]) for _ in range(60)]
            sent = [client.send(0, 9, produce(bytes([at]) * size)) for at, size in enumerate(sizes)]
            for at, correlation_id in enumerate(sent):
                answer = await client.receive(0, 9, correlation_id)
                assert answer.responses[0].partition_responses[0].base_offset == at
            expected = [bytes([at]) * size for at, size in enumerate(sizes)]
            log = h.replicas.logs[next(iter(h.replicas.logs))]
            assert all(value in data for value, data in zip(expected, log, strict=True))
            waiting = [client.send(0, 9, produce(b"x", acks=-1)) for _ in range(25)]
            await until(lambda: len(h.replicas.parked) == 10)
            while len(h.replicas.appended) < 85:
                h.replicas.release()
                await until(lambda: bool(h.replicas.parked))
            h.replicas.release()
            for correlation_id in waiting:
                await client.receive(0, 9, correlation_id)

    on_uvloop(scenario)


def test_cp_18_a_slow_reader_gets_all_of_a_large_fetch_on_uvloop() -> None:
    async def scenario() -> None:
        async with Harness({"big": [partition([1])]}) as h:
            client = await h.client()
            for at in range(5):
                await client.call(0, 9, produce(bytes([at]) * 1_000_000))
            sent = [client.send(1, 11, FETCH) for _ in range(10)]
            await until(lambda: len(h.replicas.fetches) > 0)
            for correlation_id in sent:
                answer = await client.receive(1, 11, correlation_id)
                records = answer.responses[0].partitions[0].records
                assert all(bytes([at]) * 1_000_000 in records for at in range(5))
            assert len(h.replicas.fetches) == 10

    on_uvloop(scenario)


def test_cp_02_a_bad_frame_closes_its_connection_on_uvloop() -> None:
    async def scenario() -> None:
        async with Harness({"big": [partition([1])]}) as h:
            client, other = await h.client(), await h.client()
            client.send_bytes(b"\xff\xff\xff\xff")
            assert await client.closed()
            await other.call(0, 9, produce(b"x"))

    on_uvloop(scenario)
