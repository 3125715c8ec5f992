"""Following who leads `__consumer_offsets`: loading, serving, handing over. Source: ML-22, CP-31, CP-37."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kraftlite.coordinator.api import CommitRequest, HeartbeatRequest, LeaveRequest, LeavingMember, OffsetToCommit, SyncRequest
from kraftlite.coordinator.core.placement import OFFSETS_TOPIC, partition_for
from kraftlite.coordinator.records import CommittedOffset, CoordinatorRecord, offset_record, offset_tombstone
from kraftlite.log.batch import Record, build_batch
from kraftlite.log.control import EndTxnMarker, encode_control
from kraftlite.log.validation import AppendOrigin
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.replication.api import MarkerEntry
from tests.harness.offsets_log import GroupHarness
from tests.harness.wire_fakes import partition

T0 = TopicPartition("t", 0)
OFFSETS_0 = TopicPartition(OFFSETS_TOPIC, 0)


def end_of(producer_id: int, *, epoch: int = 0, commit: bool = True) -> MarkerEntry:
    return MarkerEntry(producer_id=producer_id, producer_epoch=epoch, coordinator_epoch=0, commit=commit, version=0, tp=OFFSETS_0)


def commit(offset: int, group_id: str = "g") -> CommitRequest:
    return CommitRequest(
        group_id=group_id,
        generation=-1,
        member_id="",
        instance_id=None,
        offsets=(OffsetToCommit(T0, offset, None, ""),),
    )


def committed(h: GroupHarness, group_id: str = "g") -> int:
    (found,) = h.groups.fetch_offsets(group_id, [T0], require_stable=False)
    return found.offset


def stored(*offsets: int, group_id: str = "g", **batch: Any) -> bytes:
    return packed([offset_record(group_id, T0, CommittedOffset(offset, None, "", 1)) for offset in offsets], **batch)


def packed(records: list[CoordinatorRecord], **batch: Any) -> bytes:
    return build_batch([Record(record.key, record.value) for record in records], timestamp_ms=1, **batch)


def refusal(h: GroupHarness, group_id: str = "g") -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        h.groups.fetch_offsets(group_id, [T0], require_stable=False)
    return caught.value.code


async def test_ml_22_becoming_leader_loads_the_partition() -> None:
    h = GroupHarness({})
    async with h:
        assert refusal(h) is ErrorCode.COORDINATOR_NOT_AVAILABLE, "there is no such topic yet"
        h.log.write(0, stored(1, 2))
        h.log.write(0, packed([offset_tombstone("gone", T0)]))
        h.log.write(0, stored(7))
        h.log.advance(0)
        await h.apply({OFFSETS_TOPIC: [partition([1, 2])]})
        assert committed(h) == 7
        assert "group.loaded" in [event.event for event in h.tracer.events]


async def test_ml_22_while_loading_and_when_not_owner() -> None:
    h = GroupHarness(automatic=False)
    h.log.write(0, stored(1))
    async with h:
        assert refusal(h) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "what was there is not below the high watermark yet"
        with pytest.raises(ApiError, match="COORDINATOR_LOAD_IN_PROGRESS"):
            await h.groups.commit(commit(1))
        with pytest.raises(ApiError, match="COORDINATOR_LOAD_IN_PROGRESS"):
            h.groups.list_groups()
        beat = HeartbeatRequest(group_id="g", generation=1, member_id="m", instance_id=None)
        assert await h.groups.heartbeat(beat) is ErrorCode.NONE
        sync = SyncRequest(
            group_id="g", generation=1, member_id="m", instance_id=None, protocol_type=None, protocol_name=None, assignments=()
        )
        with pytest.raises(ApiError, match="REBALANCE_IN_PROGRESS"):
            await h.groups.sync(sync)
        h.log.advance(0)
        await h.clock.run_for(1)
        assert committed(h) == 1
        await h.apply({**h.topics, OFFSETS_TOPIC: [partition([2, 1], leader_epoch=1)]})
        assert refusal(h) is ErrorCode.NOT_COORDINATOR
        with pytest.raises(ApiError, match="NOT_COORDINATOR"):
            await h.groups.heartbeat(beat)


async def test_ml_22_losing_the_partition_answers_who_waits() -> None:
    h = GroupHarness(automatic=False)
    async with h:
        waiting = asyncio.ensure_future(h.groups.commit(commit(1)))
        await h.clock.settle()
        await h.apply({**h.topics, OFFSETS_TOPIC: [partition([2, 1], leader_epoch=1)]})
        with pytest.raises(ApiError, match="NOT_COORDINATOR"):
            await waiting
        h.log.advance(0)  # the append may still be committed: nobody is there to hear of it


async def test_ml_22_deletion_unloads() -> None:
    async with GroupHarness() as h:
        await h.groups.commit(commit(1))
        await h.apply({})
        assert refusal(h) is ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_ml_22_a_new_leader_epoch_reads_the_partition_anew() -> None:
    async with GroupHarness() as h:
        await h.groups.commit(commit(1))
        h.log.write(0, stored(50))  # by the leader in between
        h.log.advance(0)
        await h.apply({**h.topics, OFFSETS_TOPIC: [partition([1], leader_epoch=2)]})
        assert committed(h) == 50


async def test_ml_22_a_change_of_the_isr_loads_nothing() -> None:
    async with GroupHarness({OFFSETS_TOPIC: [partition([1, 2], isr=[1])], "t": [partition([1])]}) as h:
        await h.groups.commit(commit(1))
        await h.apply({**h.topics, OFFSETS_TOPIC: [partition([1, 2], isr=[1, 2])]})
        assert committed(h) == 1
        assert [event.event for event in h.tracer.events].count("group.loading") == 1


async def test_cp_37_an_answer_waits_for_the_high_watermark() -> None:
    h = GroupHarness(automatic=False)
    async with h:
        waiting = asyncio.ensure_future(h.groups.commit(commit(9)))
        await h.clock.settle()
        assert not waiting.done() and committed(h) == -1
        h.log.advance(0)
        assert await waiting == (ErrorCode.NONE,)
        assert committed(h) == 9
        assert h.log.origins == [AppendOrigin.COORDINATOR]
        late = asyncio.ensure_future(h.groups.commit(commit(10)))
        await h.clock.settle()
        h.log.be_late(0)
        assert await late == (ErrorCode.COORDINATOR_NOT_AVAILABLE,)
        assert committed(h) == 9
        h.log.advance(0)
        assert committed(h) == 10, "the log has it"


async def test_cp_37_a_shard_takes_no_more_than_it_can_remember() -> None:
    async with GroupHarness(automatic=False) as h:
        h.groups.led.of("g").most_undecided = 2
        waiting = [asyncio.ensure_future(h.groups.commit(commit(9))) for _ in range(2)]
        await h.clock.settle()
        h.log.be_late(0)
        await asyncio.gather(*waiting)
        assert await h.groups.commit(commit(10)) == (ErrorCode.COORDINATOR_NOT_AVAILABLE,)
        h.log.advance(0)
        waiting = [asyncio.ensure_future(h.groups.commit(commit(11)))]
        await h.clock.settle()
        h.log.advance(0)
        assert await waiting[0] == (ErrorCode.NONE,) and committed(h) == 11


async def test_nothing_is_written_in_another_leader_epoch() -> None:
    """Metadata may have moved the replica on before the coordinator hears of it."""
    async with GroupHarness() as h:
        h.log.at(0).leader_epoch = 5
        assert await h.groups.commit(commit(1)) == (ErrorCode.NOT_COORDINATOR,)
        assert h.log.at(0).batches == []


async def test_transactions_are_replayed() -> None:
    h = GroupHarness()
    producer = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0, "transactional": True}

    def marker(*, commit: bool, producer_id: int) -> bytes:
        control = encode_control(EndTxnMarker(commit=commit, coordinator_epoch=0))
        return build_batch([control], timestamp_ms=1, control=True, transactional=True, producer_id=producer_id, producer_epoch=0)

    h.log.write(0, stored(1, group_id="a", **producer))
    h.log.write(0, stored(2, group_id="b", **{**producer, "producer_id": 6}))
    h.log.write(0, stored(3, group_id="c", **{**producer, "producer_id": 7}))
    h.log.write(0, marker(commit=True, producer_id=5))
    h.log.write(0, marker(commit=False, producer_id=6))
    h.log.advance(0)
    async with h:
        assert [committed(h, group_id) for group_id in "abc"] == [1, -1, -1]
        (open_still,) = h.groups.fetch_offsets("c", [T0], require_stable=True)
        assert open_still.error is ErrorCode.UNSTABLE_OFFSET_COMMIT
        assert await h.groups.complete_transaction(OFFSETS_0, end_of(7)) is ErrorCode.NONE
        assert committed(h, "c") == 3


async def test_a_log_whose_tail_is_compacted_away() -> None:
    h = GroupHarness()
    h.log.write(0, stored(1))
    h.log.write(0, stored(2))
    h.log.advance(0)
    del h.log.at(0).batches[0]
    h.log.at(0).batches.clear()
    h.log.at(0).start = 0
    async with h:
        assert committed(h) == -1


async def test_records_before_the_logs_start_do_not_count() -> None:
    h = GroupHarness()
    h.log.write(0, packed([offset_record(g, T0, CommittedOffset(1, None, "", 1)) for g in ("a", "b", "c")]))
    h.log.at(0).start = 2
    h.log.advance(0)
    async with h:
        assert [committed(h, group_id) for group_id in "abc"] == [-1, -1, 1]


async def test_an_unreadable_partition_has_no_coordinator() -> None:
    h = GroupHarness()
    h.log.write(0, build_batch([Record(b"\x00\x01\x00\x10short", b"")], timestamp_ms=1))
    h.log.advance(0)
    async with h:
        assert refusal(h) is ErrorCode.NOT_COORDINATOR
        assert h.groups.list_groups() == ()
        (failed,) = [event for event in h.tracer.events if event.event == "group.load_failed"]
        assert "CORRUPT_MESSAGE" in failed.facts()["reason"]


async def test_cp_39_a_topic_deleted_while_loading() -> None:
    h = GroupHarness(automatic=False)
    h.log.write(0, stored(1))
    async with h:
        await h.apply({OFFSETS_TOPIC: h.topics[OFFSETS_TOPIC]})
        h.log.advance(0)
        await h.clock.run_for(1)
        h.log.advance(0)
        assert committed(h) == -1


async def test_cp_25_groups_are_where_their_hash_says() -> None:
    topics = {OFFSETS_TOPIC: [partition([1]), partition([2]), partition([1])], "t": [partition([1])]}
    async with GroupHarness(topics) as h:
        for n in range(12):
            group_id = f"group-{n}"
            if partition_for(group_id, 3) == 1:
                assert refusal(h, group_id) is ErrorCode.NOT_COORDINATOR
            else:
                assert await h.groups.commit(commit(n, group_id)) == (ErrorCode.NONE,)
                assert h.log.at(partition_for(group_id, 3)).batches
        assert len(h.groups.list_groups()) == sum(partition_for(f"group-{n}", 3) != 1 for n in range(12))


async def test_a_client_that_goes_away_while_it_waits() -> None:
    h = GroupHarness(automatic=False)
    async with h:
        waiting = asyncio.ensure_future(h.groups.commit(commit(1)))
        await h.clock.settle()
        waiting.cancel()
        await h.clock.settle()
        h.log.advance(0)
        assert committed(h) == 1, "it counts all the same"


async def test_close_answers_everybody() -> None:
    h = GroupHarness(automatic=False)
    async with h:
        waiting = asyncio.ensure_future(h.groups.commit(commit(1)))
        await h.clock.settle()
        h.groups.close()
        with pytest.raises(ApiError, match="NOT_COORDINATOR"):
            await waiting
        with pytest.raises(ApiError, match="COORDINATOR_NOT_AVAILABLE"):
            await h.groups.leave(LeaveRequest(group_id="g", members=(LeavingMember("m", None),)))
