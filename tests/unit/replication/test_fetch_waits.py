"""When a fetch has enough (CP-18, RP-39). Kafka's DelayedFetch counts what is readable up to a partition's maximum."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kraftlite.log.config import LogConfig
from kraftlite.log.stored import StoredRecords
from kraftlite.replication.api import FetchEntry, FetchParams, FetchResult
from kraftlite.replication.consume import may_wait
from tests.harness.replication_cluster import TP
from tests.harness.replication_loop import LoopCluster, consume


def entry(most: int, offset: int = 0) -> FetchEntry:
    return FetchEntry(
        tp=TP, topic_id=None, fetch_offset=offset, current_leader_epoch=None, last_fetched_epoch=None, max_bytes=most
    )


def params(least: int, most: int = 50_000_000) -> FetchParams:
    return FetchParams(max_wait_ms=60_000, min_bytes=least, max_bytes=most)


async def fetched(c: LoopCluster, wanted: FetchParams, asked: FetchEntry) -> FetchResult:
    (result,) = await asyncio.wait_for(consume(c[1].manager, wanted, [asked]), 5)
    return result


async def written(c: LoopCluster, count: int) -> None:
    for _ in range(count):
        done = c[1].produce(["v" * 1_000], acks=-1)
        await c.until(lambda done=done: bool(done), within_ms=10)


async def test_an_answer_that_the_partitions_maximum_has_cut_is_enough() -> None:
    """As it was, this waited for `fetch.max.wait.ms`: whole batches are a little less than the maximum, and no more can come."""
    async with LoopCluster() as c:
        c.create()
        await c.settle()
        await written(c, 20)
        result = await fetched(c, params(10_000), entry(10_000))
        assert 0 < len(result.records) < 10_000


async def test_an_answer_that_the_maximum_of_all_has_cut_is_enough() -> None:
    async with LoopCluster() as c:
        c.create()
        await c.settle()
        await written(c, 20)
        result = await fetched(c, params(10_000, 10_000), entry(1_000_000))
        assert 0 < len(result.records) < 10_000


async def test_less_than_the_minimum_waits_though_the_maximum_is_greater() -> None:
    async with LoopCluster() as c:
        c.create()
        await c.settle()
        await written(c, 5)
        waiting = asyncio.get_running_loop().create_task(consume(c[1].manager, params(10_000), [entry(1_000_000)]))
        await c.settle()
        assert not waiting.done()
        await written(c, 6)
        await c.until(waiting.done, within_ms=10)
        assert len(waiting.result()[0].records) > 10_000


async def test_a_maximum_below_the_minimum_waits_as_in_kafka() -> None:
    async with LoopCluster() as c:
        c.create()
        await c.settle()
        await written(c, 5)
        assert may_wait(params(10_000), c[1].manager.fetch_now(params(10_000), [entry(2_000)]))


async def test_the_end_of_a_segment_is_enough() -> None:
    async with LoopCluster(log_config=LogConfig(segment_bytes=4_000)) as c:
        c.create()
        await c.settle()
        await written(c, 10)
        result = await fetched(c, params(9_000), entry(1_000_000))
        assert 0 < len(result.records) < 4_000


@pytest.mark.parametrize(
    "options",
    [{"log_config": LogConfig(segment_bytes=4_000)}, {"fetch_max_bytes": 4_000}, {"fetch_response_max_bytes": 4_000}],
    ids=["segment", "maximum of a partition", "maximum of all"],
)
async def test_rp_39_a_follower_does_not_wait_while_there_is_more(options: dict[str, Any]) -> None:
    """It waits for records that are not there yet, not for those that did not fit. One that lagged would otherwise get one
    segment in each wait of 500 ms, and perhaps never join the ISR again."""
    async with LoopCluster(2, fetch_min_bytes=9_000, **options) as c:
        c.create((1, 2))
        await c.settle()
        for _ in range(40):
            c[1].produce(["v" * 1_000], acks=1)
        await c.until(lambda: c[2].log().leo >= 35, within_ms=400)


async def test_records_beyond_64_kib_stay_in_their_file_until_they_are_wanted() -> None:
    async with LoopCluster() as c:
        c.create()
        await c.settle()
        await written(c, 100)
        (small,) = c[1].manager.fetch_now(params(1, 50_000), [entry(1 << 20)])
        (large,) = c[1].manager.fetch_now(params(1), [entry(1 << 20)])
        assert isinstance(small.records, bytes) and isinstance(large.records, StoredRecords)
        assert bytes(large.records).startswith(small.records)


async def test_a_fetch_whose_time_is_over_while_it_is_repeated_does_not_wait_again() -> None:
    async with LoopCluster() as c:
        c.create()
        await c.settle()
        ready: list[None] = []
        waits = c[1].manager.fetch_wait(params(10_000), lambda: ready.append(None))
        waits.watch([entry(1_000)])
        waits.wake()  # there is something new, and it is looked for
        waits.expire()
        assert len(ready) == 1
        waits.watch([entry(1_000)])
        assert len(ready) == 2
        waits.cancel()
