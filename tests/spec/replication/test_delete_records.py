"""LG-40, RP-17: DeleteRecords at the leader of a partition, and its followers."""

from __future__ import annotations

import asyncio

from kraftlite.log.config import LogConfig
from kraftlite.model.errors import ErrorCode
from kraftlite.replication.api import DeleteRecordsResult
from tests.harness.replication_cluster import TP, log_values
from tests.harness.replication_loop import LoopCluster


async def started(c: LoopCluster, *, records: int = 5) -> None:
    c.create()
    await c.settle()
    for number in range(records):
        done = c[1].produce([f"v{number}"], acks=-1)
        await c.until(lambda done=done: done)
    await c.until(lambda: all(c[broker].log().hw == records for broker in (1, 2, 3)))


def delete(c: LoopCluster, offset: int, *, broker: int = 1, timeout_ms: int = 10_000) -> asyncio.Task[list[DeleteRecordsResult]]:
    return asyncio.get_running_loop().create_task(c[broker].manager.delete_records({TP: offset}, timeout_ms))


async def verdict(c: LoopCluster, task: asyncio.Task[list[DeleteRecordsResult]]) -> tuple[ErrorCode, int]:
    await c.until(task.done)
    (result,) = task.result()
    return result.error, result.low_watermark


async def test_lg_40_all_live_replicas_have_followed_when_the_answer_comes() -> None:
    async with LoopCluster() as c:
        await started(c)
        before = c.clock.now_ms()
        assert await verdict(c, delete(c, 3)) == (ErrorCode.NONE, 3)
        assert [c[broker].log().log_start_offset for broker in (1, 2, 3)] == [3, 3, 3]
        assert [offset for offset, _ in log_values(c[1].log())] == [3, 4]
        assert c.clock.now_ms() - before < 500, "the followers are told at once, not when their wait is over"
        assert c[1].consume(2).error is ErrorCode.OFFSET_OUT_OF_RANGE


async def test_lg_40_minus_one_is_the_high_watermark() -> None:
    async with LoopCluster() as c:
        await started(c)
        assert await verdict(c, delete(c, -1)) == (ErrorCode.NONE, 5)
        assert [c[broker].log().log_start_offset for broker in (1, 2, 3)] == [5, 5, 5]
        done = c[1].produce(["next"], acks=-1)
        await c.until(lambda: done)
        assert done[0].base_offset == 5


async def test_lg_40_an_offset_that_is_deleted_already_is_fine() -> None:
    async with LoopCluster() as c:
        await started(c)
        await verdict(c, delete(c, 4))
        assert await verdict(c, delete(c, 2)) == (ErrorCode.NONE, 4)
        assert c[1].log().log_start_offset == 4


async def test_lg_40_offsets_beyond_the_high_watermark_and_negative_ones_are_refused() -> None:
    async with LoopCluster() as c:
        await started(c)
        for offset in (6, -2, 1 << 60):
            assert await verdict(c, delete(c, offset)) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        assert c[1].log().log_start_offset == 0


async def test_lg_40_only_where_the_policy_deletes() -> None:
    async with LoopCluster() as c:
        await started(c)
        for policy, expected in ((("compact",), ErrorCode.POLICY_VIOLATION), (("compact", "delete"), ErrorCode.NONE)):
            list(c[1].manager.update_log_config_steps("orders", LogConfig(cleanup_policy=policy)))
            assert (await verdict(c, delete(c, 1)))[0] is expected


async def test_lg_40_only_the_leader_deletes() -> None:
    async with LoopCluster() as c:
        await started(c)
        assert await verdict(c, delete(c, 1, broker=2)) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


async def test_lg_40_a_follower_that_does_not_answer_is_waited_for_until_the_time_is_up() -> None:
    async with LoopCluster() as c:
        await started(c)
        c.network.kill("b3")
        await c[3].manager.stop()
        task = delete(c, 3, timeout_ms=5_000)
        await c.clock.run_for(4_900)
        assert not task.done()
        assert await verdict(c, task) == (ErrorCode.REQUEST_TIMED_OUT, 0)
        assert c[1].log().log_start_offset == 3, "the leader has deleted nevertheless"
        assert c[2].log().log_start_offset == 3


async def test_lg_40_a_fenced_follower_is_not_waited_for() -> None:
    async with LoopCluster() as c:
        await started(c)
        c.network.kill("b3")
        await c[3].manager.stop()
        task = delete(c, 3, timeout_ms=60_000)
        await c.clock.run_for(2_000)
        assert not task.done()
        c.controller.set_fenced(c[3].id, True)
        c[1].catch_up()
        await c.settle()
        assert task.done() and task.result()[0].low_watermark == 3


async def test_lg_40_a_leader_that_loses_its_role_says_so() -> None:
    async with LoopCluster() as c:
        await started(c)
        c.network.kill("b3")
        await c[3].manager.stop()
        task = delete(c, 3, timeout_ms=60_000)
        await c.clock.run_for(1_000)
        c.controller.elect(2)
        c[1].catch_up()
        await c.settle()
        assert task.done() and task.result()[0].error is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_lg_40_deleted_records_stay_deleted_after_a_crash() -> None:
    async with LoopCluster(1) as c:
        c.create((1,))
        for number in range(4):
            c[1].produce([f"v{number}"], acks=1)
        c[1].log().flush_sync()
        assert await verdict(c, delete(c, 3)) == (ErrorCode.NONE, 3)
        await c.kill(1)
        c[1].disk.crash()
        c.restart(1)
        await c.serve(1)
        assert c[1].log().log_start_offset == 3 and c[1].log().leo == 4


async def test_lg_40_several_partitions_each_have_their_own_verdict() -> None:
    async with LoopCluster() as c:
        await started(c)
        unknown = TP._replace(partition=7)
        task = asyncio.get_running_loop().create_task(c[1].manager.delete_records({unknown: 1, TP: 2}, 10_000))
        await c.until(task.done)
        found = [(result.tp, result.error, result.low_watermark) for result in task.result()]
        assert found == [(unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1), (TP, ErrorCode.NONE, 2)]


async def test_lg_40_a_failing_disk_is_a_storage_error() -> None:
    async with LoopCluster(1) as c:
        c.create((1,))
        c[1].produce(["a"], acks=1)
        c[1].disk.inject("pwritev", path="leader-epoch")
        assert await verdict(c, delete(c, 1)) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        assert c[1].logs.failed


async def test_rp_17_a_follower_that_was_away_follows_the_log_start_when_it_is_back() -> None:
    async with LoopCluster() as c:
        await started(c)
        await c.kill(3)
        c.controller.set_fenced(c[3].id, True)
        c.publish()
        await c.settle()
        assert await verdict(c, delete(c, 3)) == (ErrorCode.NONE, 3)
        c.restart(3)
        await c.serve(3)
        await c.until(lambda: c[3].log().log_start_offset == 3)


async def test_rp_17_a_log_start_that_retention_moved_is_told_with_the_next_answer() -> None:
    """Nobody waits for the followers, so they are not woken, and nothing has to be written first."""
    async with LoopCluster() as c:
        await started(c)
        await c.clock.run_for(5_000)
        before = c.clock.now_ms()
        assert c[1].log().increment_log_start(3, "retention.ms")
        c[1].partition().log_start_changed(urgent=False)
        await c.clock.run_for(1)
        assert [c[broker].log().log_start_offset for broker in (1, 2, 3)] == [3, 0, 0]
        await c.until(lambda: [c[broker].log().log_start_offset for broker in (2, 3)] == [3, 3])
        assert c.clock.now_ms() - before <= 600, "an answer is never later than the wait of its fetch"
