"""The drivers, on a loop: long polls, sessions, retries, and what ends a wait."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest

from kraftlite.log.config import LogConfig
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.messages.methods import REPLICA_FETCH
from kraftlite.model.messages.replica import ReplicaFetchRequest
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.model.tuning import Tuning
from kraftlite.replication.api import FetchEntry, FetchParams
from kraftlite.replication.sessions import AHEAD_PATIENCE_MS
from kraftlite.runtime.trace.partition import FetchPaused
from tests.harness.replication_cluster import TOPIC, TP, log_values
from tests.harness.replication_loop import LoopCluster, consume


def fetches(c: LoopCluster, source: str) -> int:
    return sum(1 for call in c.network.calls if call[0] == source and call[2] == "Fetch")


async def test_acks_all_completes_without_time_passing() -> None:
    async with LoopCluster() as c:
        c.create()
        await c.settle()
        done = c[1].produce(["a", "b"], acks=-1)
        assert not done
        await c.until(lambda: done, within_ms=1)
        assert done[0].error is ErrorCode.NONE
        assert log_values(c[2].log()) == log_values(c[3].log()) == [(0, "a"), (1, "b")]


async def test_an_idle_follower_asks_once_per_fetch_wait_and_names_nothing() -> None:
    async with LoopCluster() as c:
        c.create()
        seen: list[ReplicaFetchRequest] = []
        c.network.on_call = lambda source, target, method, request: seen.append(request) if source == "b2" else None
        await c.clock.run_for(5_000)
        assert 9 <= len(seen) <= 12
        assert [len(request.partitions) for request in seen[:3]] == [1, 0, 0]
        assert [request.session_epoch for request in seen[:3]] == [0, 1, 2]


async def test_rp_15_the_hw_reaches_an_idle_follower_within_one_fetch_wait() -> None:
    async with LoopCluster() as c:
        c.create()
        await c.settle()
        done = c[1].produce(["a"], acks=-1)
        await c.until(lambda: done, within_ms=1)
        assert await c.until(lambda: c[2].log().hw == 1 and c[3].log().hw == 1) <= 520


async def test_rp_18_a_hw_that_moves_does_not_end_the_wait_of_a_fetch() -> None:
    """The followers' next fetches wait when the HW moves. They learn of it when that wait is over, or with the next record."""
    async with LoopCluster() as c:
        c.create()
        await c.settle()
        done = c[1].produce(["a"], acks=-1)
        await c.until(lambda: done, within_ms=1)
        assert c[1].log().hw == 1 and c[2].log().hw == c[3].log().hw == 0
        assert 400 <= await c.until(lambda: c[2].log().hw == 1 and c[3].log().hw == 1) <= 520
        await c.settle()
        for value in ("b", "c"):
            done = c[1].produce([value], acks=-1)
            await c.until(lambda: done, within_ms=1)  # noqa: B023
        assert c[2].log().hw == c[3].log().hw == 2, "the HW of b came with c"


async def test_a_new_partition_does_not_wait_for_a_long_poll() -> None:
    async with LoopCluster() as c:
        c.create()
        await c.settle()
        c.controller.create((1, 2, 3), name="later", topic_id=UUID(int=77))
        c.publish()
        done = c[1].produce(["x"], acks=-1, tp=TopicPartition("later", 0))
        await c.until(lambda: done, within_ms=1)
        assert done[0].error is ErrorCode.NONE


async def test_a_follower_that_is_ahead_of_its_leaders_metadata_waits_at_the_leader() -> None:
    async with LoopCluster() as c:
        c.controller.create((1, 2, 3))
        c[2].catch_up()
        c[3].catch_up()
        await c.settle()
        c[1].catch_up()
        done = c[1].produce(["x"], acks=-1)
        await c.until(lambda: done, within_ms=1)


async def test_failover_to_a_follower_with_producers_waiting() -> None:
    async with LoopCluster() as c:
        c.create()
        await c.settle()
        await c.until(lambda: c[1].produce(["a"], acks=1) is not None and c[2].log().leo == 1)
        await c.kill(1)
        c.controller.set_fenced(c[1].id, True)
        c.publish()
        done = c[2].produce(["b"], acks=-1)
        await c.until(lambda: done, within_ms=2_000)
        assert done[0].error is ErrorCode.NONE
        assert log_values(c[3].log()) == [(0, "a"), (1, "b")]
        # The old leader comes back as a follower and joins again.
        c.restart(1)
        await c.serve(1)
        await c.until(lambda: 1 in c.controller.registration().isr)
        c.publish()
        assert log_values(c[1].log()) == [(0, "a"), (1, "b")]


async def test_rp_19_a_silent_follower_leaves_within_one_and_a_half_times_the_lag() -> None:
    async with LoopCluster(lag_time_max_ms=10_000) as c:
        c.create()
        await c.settle()
        c.network.isolate("b3", ["b1", "b2", "b3"])
        done = c[1].produce(["a"], acks=-1)
        took = await c.until(lambda: c.controller.registration().isr == (1, 2), step_ms=100)
        assert 10_000 <= took <= 15_600 and not done
        c.publish()
        await c.until(lambda: done, step_ms=100)
        assert done[0].error is ErrorCode.NONE
        c.network.heal()
        await c.until(lambda: c.controller.registration().isr == (1, 2, 3), step_ms=100)


@pytest.mark.parametrize("forgets", [True, False], ids=["forgets it", "asks in the newer epoch"])
async def test_rp_20_who_goes_over_to_a_newer_epoch_was_caught_up_at_its_last_fetch_of_the_older(forgets: bool) -> None:
    """A fetch that names nothing says that everything stands where it was. The leader, which has not heard of the newer epoch,
    had forgotten that, and counted from the last fetch that named the partition."""
    async with LoopCluster() as c:
        c.create()
        c.controller.create((1, 2, 3), name="other", topic_id=UUID(int=77))
        c.publish()
        await c.settle()
        await c.clock.run_for(20_000)
        c.controller.elect(c[2].id if forgets else c[1].id)
        c[2].catch_up()
        c[3].catch_up()
        await c.clock.run_for(1_000)
        leader = c[1].partition().leader
        ago_ms = [c.clock.now_ms() - it.last_caught_up_ms for it in leader.followers.values()]
        assert len(ago_ms) == 2
        assert max(ago_ms) < 2_000


async def test_a_fetch_that_opened_a_session_and_comes_late_does_not_hold_the_high_watermark_up() -> None:
    """The session that the follower has fetched on in names only what changes. The fetch that waits is no proof: it was sent
    before the late one was taken."""
    async with LoopCluster() as c:
        seen: list[ReplicaFetchRequest] = []
        c.network.on_call = lambda source, target, method, request: seen.append(request) if source == "b2" else None
        c.create()
        await c.settle()
        done = c[1].produce(["a"], acks=-1)
        await c.until(lambda: done)
        await c.clock.run_for(1_000)
        late = next(it for it in seen if it.partitions)
        assert late.session_epoch == 0
        assert late.partitions[0].fetch_offset == 0
        await c[1].manager.handlers()[REPLICA_FETCH](late)
        follower = c[1].partition().leader.followers[c[2].id]
        assert follower.leo == 0
        c[1].partition().log_start_changed(urgent=True)  # anything that has the fetch that waits looked at again
        await c.until(lambda: follower.leo == 1, within_ms=1_500)


async def test_rp_22_one_alter_partition_at_a_time_and_retry_after_50_ms() -> None:
    async with LoopCluster(lag_time_max_ms=10_000) as c:
        c.create(isr=(1,))
        c.controller.create((1, 2), name="t2", topic_id=UUID(int=5), isr=(1,))
        channel = c.channels[c[1].id]
        channel.down = True
        c.publish()
        await c.until(lambda: channel.calls, within_ms=1_000)
        before = len(channel.calls)
        await c.clock.run_for(500)
        assert 8 <= len(channel.calls) - before <= 11
        channel.down = False
        await c.until(lambda: c.controller.registration().isr == (1, 2, 3), within_ms=2_000)
        assert c.controller.registration(UUID(int=5)).isr == (1, 2)
        assert any(len(call.partitions) == 2 for call in channel.calls)
        # While a request is with the controller, others wait.
        channel.held = asyncio.Event()
        c.network.isolate("b3", ["b1", "b2", "b3"])
        c.network.isolate("b2", ["b1", "b2", "b3"])
        c[1].produce(["a"], acks=1)
        c[1].produce(["a"], acks=1, tp=TopicPartition("t2", 0))
        before = len(channel.calls)
        await c.clock.run_for(40_000)
        assert len(channel.calls) == before + 1
        channel.held.set()


async def test_a_lost_session_is_opened_again() -> None:
    async with LoopCluster() as c:
        c.create()
        await c.settle()
        c[1].manager._service.sessions.close()
        await c.clock.run_for(1_000)
        done = c[1].produce(["a"], acks=-1)
        await c.until(lambda: done, within_ms=1)


async def test_an_unreachable_leader_is_tried_again_after_the_backoff() -> None:
    async with LoopCluster() as c:
        c.create()
        await c.settle()
        c.network.cut("b2", "b1")
        await c.clock.run_for(600)
        before = fetches(c, "b2")
        await c.clock.run_for(5_000)
        assert 4 <= fetches(c, "b2") - before <= 6
        c.network.heal()
        c[1].produce(["a"], acks=1)
        assert await c.until(lambda: c[2].log().leo == 1) <= 1_020


def entry(offset: int) -> FetchEntry:
    return FetchEntry(
        tp=TP, topic_id=None, fetch_offset=offset, current_leader_epoch=None, last_fetched_epoch=None, max_bytes=1 << 20
    )


async def test_cp_18_a_consumer_waits_for_committed_data() -> None:
    async with LoopCluster() as c:
        c.create()
        await c.settle()
        params = FetchParams(max_wait_ms=10_000, min_bytes=1, max_bytes=1 << 20)
        fetch = asyncio.ensure_future(consume(c[1].manager, params, [entry(0)]))
        await c.clock.run_for(1_000)
        assert not fetch.done()
        c[1].produce(["a"], acks=1)
        await c.settle()
        assert fetch.done() and fetch.result()[0].hw == 1 and fetch.result()[0].records
        empty = asyncio.ensure_future(consume(c[1].manager, params, [entry(1)]))
        assert 10_000 <= await c.until(empty.done, step_ms=50) <= 10_100
        assert not empty.result()[0].records and not c[1].partition().waiters


async def test_a_consumer_waits_for_min_bytes() -> None:
    async with LoopCluster() as c:
        c.create()
        await c.settle()
        params = FetchParams(max_wait_ms=10_000, min_bytes=200, max_bytes=1 << 20)
        fetch = asyncio.ensure_future(consume(c[1].manager, params, [entry(0)]))
        c[1].produce(["a" * 20], acks=1)
        await c.until(lambda: c[1].log().hw == 1, within_ms=1_000)
        assert not fetch.done()
        c[1].produce(["a" * 200], acks=1)
        await c.until(fetch.done, within_ms=1_000)
        assert len(fetch.result()[0].records) >= 200


async def test_rp_09_losing_leadership_ends_waits_at_once() -> None:
    async with LoopCluster() as c:
        c.create()
        await c.settle()
        c.network.isolate("b2", ["b1", "b2", "b3"])
        params = FetchParams(max_wait_ms=10_000, min_bytes=1, max_bytes=1 << 20, leader_only=True)
        fetch = asyncio.ensure_future(consume(c[1].manager, params, [entry(0)]))
        done = c[1].produce(["a"], acks=-1)
        await c.settle()
        assert not done and not fetch.done()
        c.controller.elect(c[3].id)
        c.publish()
        await c.settle()
        assert done[0].error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert done[0].leader is not None and done[0].leader.leader_id == 3
        assert fetch.result()[0].error is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_replica_fetch_waits_for_min_bytes_and_keeps_what_it_learned() -> None:
    async with LoopCluster(fetch_min_bytes=300) as c:
        c.create()
        await c.settle()
        c[1].produce(["a" * 10], acks=1)
        await c.settle()
        assert c[2].log().leo == 0
        c[1].produce(["a" * 200], acks=1)
        await c.settle()
        assert c[2].log().leo == 2
        assert await c.until(lambda: c[2].log().hw == 2) <= 1_020


async def test_rp_37_a_bad_disk_stops_one_broker_only() -> None:
    async with LoopCluster(log_config=LogConfig(min_insync_replicas=1), lag_time_max_ms=10_000) as c:
        c.create()
        await c.settle()
        c[2].disk.inject("pwritev", path="orders-0")
        c[1].produce(["a"], acks=1)
        await c.until(lambda: c[3].log().leo == 1)
        assert c[2].manager.counts.offline() == 1
        assert c[2].manager.fetched_from(TP) is None
        done = c[2].produce(["a"], acks=1)
        assert done[0].error is ErrorCode.KAFKA_STORAGE_ERROR


async def test_an_answer_of_another_cluster_is_refused() -> None:
    async with LoopCluster() as c:
        c.create()
        await c.settle()
        request = ReplicaFetchRequest(
            replica_id=c[2].id, replica_epoch=1, cluster_id="other", session_id=0, session_epoch=0, max_wait_ms=0, min_bytes=1,
            max_bytes=1, partition_max_bytes=1, partitions=(), forgotten=(),
        )  # fmt: skip
        with pytest.raises(ApiError, match="INCONSISTENT_CLUSTER_ID"):
            await c[1].manager.handlers()[REPLICA_FETCH](request)


async def test_rp_16_hws_are_checkpointed_every_interval_and_at_stop() -> None:
    async with LoopCluster() as c:
        c.create()
        c[1].manager.start_hw_checkpoints()
        await c.settle()
        done = c[1].produce(["a"], acks=-1)
        await c.until(lambda: done)
        assert c[1].logs.hws.get(TP, 0) == 0
        await c.clock.run_for(5_100)
        assert c[1].logs.hws[TP] == 1
        done = c[1].produce(["b"], acks=-1)
        await c.until(lambda: done)
        await c[1].manager.stop()
        assert c[1].logs.hws[TP] == 2


class CountedLooks(dict[Any, Any]):
    """The partitions of a leader, which counts how often one is looked up."""

    looks = 0

    def get(self, key: Any, default: Any = None, /) -> Any:
        self.looks += 1
        return super().get(key, default)


@pytest.mark.parametrize("known", [False, True], ids=["created", "failed over"])
async def test_followers_that_are_ahead_with_many_partitions_cost_each_of_them_a_few_looks(known: bool) -> None:
    """While the leader applies a change of many partitions in steps, neither a step nor a request looks at all that are left."""
    count = 640
    async with LoopCluster(fetch_wait_max_ms=600_000) as c:
        for index in range(count):
            c.controller.create((2, 1, 3) if known else (1, 2, 3), index=index)
        if known:
            c.publish()
            await c.settle()
            for index in range(count):
                c.controller.elect(c[1].id, index=index)
        c[2].catch_up()
        c[3].catch_up()
        await c.settle()
        table = c[1].manager._table
        counted = table.by_id = CountedLooks(table.by_id)
        delta = c[1].load()
        assert delta is not None and delta.topics is not None
        for _ in c[1].manager.apply_delta_steps(delta.topics, c[1].image):
            await asyncio.sleep(0)
        c[1].manager.handle_image(c[1].image)
        done = c[1].produce(["x"], acks=-1, tp=TopicPartition(TOPIC, count - 1))
        await c.until(lambda: done, within_ms=1)
        followers = [c[1].partition(TopicPartition(TOPIC, index)).leader.followers.values() for index in range(count)]
        assert all(follower.leo is not None for each in followers for follower in each)
        assert counted.looks <= 2 * 4 * count


def told_off(c: LoopCluster) -> list[str]:
    return [event.error for event in c[2].tracer.events if isinstance(event, FetchPaused)]


@pytest.mark.parametrize("known", [False, True], ids=["created", "failed over"])
async def test_rp_34_a_follower_that_is_ahead_is_not_sent_away_while_its_leader_is_slow(known: bool) -> None:
    async with LoopCluster() as c:
        c.controller.create((2, 1, 3) if known else (1, 2, 3))
        if known:
            c.publish()
            await c.settle()
            c.controller.elect(c[1].id)
        c[2].catch_up()
        await c.clock.run_for(AHEAD_PATIENCE_MS - 1_000)
        c[1].catch_up()
        done = c[1].produce(["x"], acks=1)
        await c.until(lambda: c[2].log().leo == 1, within_ms=1)
        assert done and not told_off(c)


async def test_rp_34_a_follower_waits_for_replicas_that_its_leader_is_making() -> None:
    """The leader has the metadata, and applies it in steps."""
    count = 2 * Tuning().partitions_per_step
    async with LoopCluster() as c:
        for index in range(count):
            c.controller.create((1, 2, 3), index=index)
        c[2].catch_up()
        delta = c[1].load()
        assert delta is not None and delta.topics is not None
        for _ in c[1].manager.apply_delta_steps(delta.topics, c[1].image):
            await c.clock.run_for(2_000)
        c[1].manager.handle_image(c[1].image)
        c[1].produce(["x"], acks=1, tp=TopicPartition(TOPIC, count - 1))
        await c.until(lambda: c[2].log(TopicPartition(TOPIC, count - 1)).leo == 1, within_ms=1)
        assert not told_off(c)


async def test_rp_34_a_follower_is_told_in_the_end_that_its_leader_knows_nothing_of_it() -> None:
    async with LoopCluster() as c:
        c.controller.create((1, 2, 3))
        c[2].catch_up()
        told_ms = await c.until(lambda: told_off(c))
        assert told_off(c) == ["UNKNOWN_TOPIC_ID"] and AHEAD_PATIENCE_MS <= told_ms <= AHEAD_PATIENCE_MS + 1_000
        c[1].catch_up()
        c[1].produce(["x"], acks=1)
        await c.until(lambda: c[2].log().leo == 1, within_ms=1_500)
        assert len(told_off(c)) == 1


async def test_the_partitions_of_a_big_change_are_named_to_their_leader_many_at_a_time() -> None:
    count = 1_600
    async with LoopCluster(fetch_wait_max_ms=600_000) as c:
        for index in range(count):
            c.controller.create((1, 2, 3), index=index)
        c[1].catch_up()
        named: list[int] = []

        def on_call(source: str, target: str, method: Any, request: Any) -> None:
            if source == "b2" and isinstance(request, ReplicaFetchRequest):
                named.append(len(request.partitions))

        c.network.on_call = on_call
        delta = c[2].load()
        assert delta is not None and delta.topics is not None
        for _ in c[2].manager.apply_delta_steps(delta.topics, c[2].image):
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        c[2].manager.handle_image(c[2].image)
        await c.settle()
        assert sum(named) == count and len(named) <= 8
