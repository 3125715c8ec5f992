"""Offsets that count when their transaction does: who may commit them, when they show, what outlives whom."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from kraftlite.coordinator.api import CommitRequest, OffsetToCommit
from kraftlite.coordinator.core.placement import OFFSETS_TOPIC
from kraftlite.coordinator.records import CommittedOffset, OffsetKey, decode_key, decode_offset, offset_record
from kraftlite.log.batch import Record, build_batch, parse_header
from kraftlite.log.guards import TransactionTerms
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.producer import Producer
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.replication.api import MarkerEntry
from tests.harness.consumer_world import ConsumerWorld
from tests.harness.group_world import MARKER, GroupWorld
from tests.harness.offsets_log import GroupHarness
from tests.harness.wire_fakes import partition

E = ErrorCode
NONE = ErrorCode.NONE
HOUR_MS = 3_600_000
P7, P8 = Producer(7, 0), Producer(8, 0)
UNSTABLE = (-1, E.UNSTABLE_OFFSET_COMMIT)


# --- who may commit ------------------------------------------------------------------------------------------------------


def test_tg_02_classic_members_and_others() -> None:
    w = GroupWorld()
    at = {("t", 0): 1}
    assert w.error(w.commit(at, generation=1, member_id="m", producer=P7)) is E.ILLEGAL_GENERATION, "there is no group"
    assert w.answers[w.commit(at, producer=P7)] == (NONE,), "a simple group"
    assert w.answers[w.commit(at, member_id="m", producer=P7)] == (NONE,), "an empty group asks nobody who has no generation"
    assert w.error(w.commit(at, member_id="m", generation=0, producer=P7)) is E.UNKNOWN_MEMBER_ID
    leader, follower = w.stable(2)
    assert w.answers[w.commit(at, producer=P7)] == (NONE,), "a producer need not say who it is"
    assert w.answers[w.commit(at, member_id=follower, generation=1, producer=P7)] == (NONE,)
    assert w.error(w.commit(at, member_id=follower, generation=0, producer=P7)) is E.ILLEGAL_GENERATION
    assert w.error(w.commit(at, member_id=follower, producer=P7)) is E.ILLEGAL_GENERATION, "-1 is none of the group's"
    assert w.error(w.commit(at, member_id="somebody", generation=1, producer=P7)) is E.UNKNOWN_MEMBER_ID
    w.join(leader)
    w.join(follower)
    assert w.state() == "CompletingRebalance"
    assert w.answers[w.commit(at, member_id=follower, generation=2, producer=P7)] == (NONE,), "no REBALANCE_IN_PROGRESS"


def test_tg_02_static_members_that_were_replaced() -> None:
    w = GroupWorld()
    (old,) = w.stable(1, instance_id="i")
    w.join(instance_id="i")
    (new,) = w.group().members
    assert new != old
    at = {("t", 0): 1}
    fenced = w.commit(at, member_id=old, generation=1, instance_id="i", producer=P7)
    assert w.error(fenced) is E.FENCED_INSTANCE_ID
    assert w.answers[w.commit(at, member_id=new, generation=1, instance_id="i", producer=P7)] == (NONE,)


def test_tg_02_members_of_the_consumer_protocol() -> None:
    w = ConsumerWorld()
    w.enter("a")
    epoch = w.member("a").epoch
    at = {("t", 0): 7}
    assert w.error(w.commit(at, member_id="b", generation=epoch, producer=P7)) is E.UNKNOWN_MEMBER_ID
    for stale in (epoch - 1, epoch + 1):
        assert w.error(w.commit(at, member_id="a", generation=stale, producer=P7)) is E.ILLEGAL_GENERATION
    assert w.answers[w.commit(at, member_id="a", generation=epoch, producer=P7)] == (NONE,)
    assert w.answers[w.commit(at, producer=P7)] == (NONE,)


def test_tg_02_a_group_that_is_being_deleted() -> None:
    w = GroupWorld()
    w.commit({("t", 0): 1})
    w.hold = True
    w.delete_group()
    assert w.error(w.commit({("t", 0): 2}, producer=P7)) is E.COORDINATOR_NOT_AVAILABLE


def test_tg_02_a_commit_in_a_transaction_does_not_keep_the_session() -> None:
    w = GroupWorld()
    (member,) = w.stable(1, session_ms=10_000)
    w.advance(9_000)
    w.commit({("t", 0): 1}, member_id=member, generation=1, producer=P7)
    w.advance(2_000)
    assert w.state() == "Empty"


# --- pending -------------------------------------------------------------------------------------------------------------


def test_tg_04_pending_from_the_append_on() -> None:
    """And for exactly the partitions of the transaction."""
    w = GroupWorld()
    w.commit({("t", 0): 1, ("t", 1): 1})
    w.hold = True
    asked = w.commit({("t", 0): 5}, producer=P7)
    assert asked not in w.answers
    assert w.offset("t", 0) == (1, NONE)
    assert w.offset("t", 0, stable=True) == UNSTABLE
    assert w.offset("t", 1, stable=True) == (1, NONE)
    assert w.offset("t", 0, "other", stable=True) == (-1, NONE)
    w.commit_held()
    assert w.answers[asked] == (NONE,)
    assert w.offset("t", 0, stable=True) == UNSTABLE
    ended = w.end_transaction(7, committed=True)
    assert ended not in w.answers and w.offset("t", 0, stable=True) == UNSTABLE, "the marker is not committed yet"
    w.commit_held()
    assert w.answers[ended] is NONE
    assert w.offset("t", 0, stable=True) == (5, NONE)


def test_tg_04_several_producers_at_one_partition() -> None:
    w = GroupWorld()
    w.commit({("t", 0): 5}, producer=P7)
    w.commit({("t", 0): 6}, producer=P8)
    w.end_transaction(7, committed=True)
    assert w.offset("t", 0) == (5, NONE) and w.offset("t", 0, stable=True) == UNSTABLE
    w.end_transaction(8, committed=False)
    assert w.offset("t", 0, stable=True) == (5, NONE)


def test_tg_05_a_plain_commit_written_later_counts() -> None:
    w = GroupWorld()
    w.commit({("t", 0): 5, ("t", 1): 5}, producer=P7)
    w.commit({("t", 0): 6})
    assert w.offset("t", 0, stable=True) == UNSTABLE
    w.end_transaction(7, committed=True)
    for _ in range(2):
        assert (w.offset("t", 0), w.offset("t", 1)) == ((6, NONE), (5, NONE))
        w.fail_over()


def test_tg_05_the_same_after_compaction() -> None:
    """What compaction takes away is what a later record of the same key has made void."""
    w = GroupWorld()
    w.commit({("t", 0): 5}, producer=P7)
    w.commit({("t", 0): 6})
    w.end_transaction(7, committed=True)
    w.commit({("t", 1): 5})
    w.commit({("t", 1): 6}, producer=P7)
    w.end_transaction(7, committed=True)
    keys = [key for key, _, _ in w.log]
    w.log = [entry for at, entry in enumerate(w.log) if entry[0] == MARKER or entry[0] not in keys[at + 1 :]]
    assert len(w.log) == 4
    w.fail_over()
    assert (w.offset("t", 0), w.offset("t", 1)) == ((6, NONE), (6, NONE))


@pytest.mark.parametrize("committed", [True, False])
def test_tg_06_a_deleted_offset_does_not_come_back(committed: bool) -> None:
    """Neither by the marker nor by a reload; also where nothing but the transaction ever wrote it."""
    w = GroupWorld()
    w.commit({("t", 0): 5, ("t", 1): 5}, producer=P7)
    assert w.answers[w.delete_offsets(("t", 0))] == (NONE,)
    assert w.offset("t", 0, stable=True) == (-1, NONE)
    w.fail_over()
    assert w.offset("t", 0, stable=True) == (-1, NONE)
    assert w.offset("t", 1, stable=True) == UNSTABLE
    w.end_transaction(7, committed=committed)
    for _ in range(2):
        assert w.offset("t", 0) == (-1, NONE)
        assert w.offset("t", 1) == (5 if committed else -1, NONE)
        w.fail_over()


def test_tg_06_a_deleted_group_does_not_come_back() -> None:
    w = GroupWorld()
    w.commit({("t", 0): 5}, producer=P7)
    assert w.answers[w.delete_group()] is NONE
    w.end_transaction(7, committed=True)
    for _ in range(2):
        assert w.shard.group_count == 0 and w.offset("t", 0) == (-1, NONE)
        w.fail_over()


def test_tg_06_a_deleted_group_takes_the_commits_under_way_with_it() -> None:
    w = GroupWorld()
    w.commit({("t", 0): 5})
    w.hold = True
    w.commit({("t", 1): 5}, producer=P7)
    w.commit({("t", 2): 5})
    w.delete_group()
    w.commit_held()
    w.hold = False
    w.end_transaction(7, committed=True)
    for _ in range(2):
        assert w.shard.group_count == 0 and w.shard.fetch_offsets("g", None, require_stable=False) == ()
        w.fail_over()


def test_tg_06_a_deleted_topic_does_not_come_back() -> None:
    w = GroupWorld()
    w.commit({("t", 0): 5, ("u", 0): 5}, producer=P7)
    w.delete_topics("t")
    w.fail_over()
    w.end_transaction(7, committed=True)
    for _ in range(2):
        assert (w.offset("t", 0), w.offset("u", 0)) == ((-1, NONE), (5, NONE))
        w.fail_over()


def test_tg_07_pending_offsets_do_not_expire_and_keep_their_group() -> None:
    w = GroupWorld(offsets_retention_ms=HOUR_MS, retention_check_interval_ms=60_000)
    w.commit({("t", 0): 1, ("t", 1): 1})
    w.commit({("t", 0): 2}, producer=P7)
    w.commit({("u", 0): 2}, producer=P7, group_id="another")
    w.advance(3 * HOUR_MS)
    assert w.offset("t", 0) == (1, NONE) and w.offset("t", 1) == (-1, NONE)
    assert w.state() == w.state("another") == "Empty"
    w.end_transaction(7, committed=True)
    assert w.offset("t", 0) == (2, NONE) and w.offset("u", 0, "another") == (2, NONE)
    w.advance(2 * HOUR_MS)
    assert w.shard.group_count == 0


def test_tg_07_groups_of_the_consumer_protocol_too() -> None:
    w = ConsumerWorld(offsets_retention_ms=HOUR_MS, retention_check_interval_ms=60_000)
    client = w.enter("a")
    w.commit({("t", 0): 2}, producer=P7)
    w.quit(client)
    w.advance(3 * HOUR_MS)
    assert w.consumers() is not None and w.offset("t", 0, stable=True) == UNSTABLE
    w.end_transaction(7, committed=False)
    w.advance(2 * HOUR_MS)
    assert w.shard.group_count == 0


def test_tg_09_what_is_loaded_waits_for_its_marker() -> None:
    w = GroupWorld()
    w.commit({("t", 0): 4})
    w.commit({("t", 0): 5}, producer=P7)
    w.commit({("t", 0): 6}, producer=P8, group_id="h")
    w.end_transaction(9, committed=True)  # of a producer that nobody knows
    w.end_transaction(8, committed=True)
    w.fail_over()
    assert w.offset("t", 0) == (4, NONE) and w.offset("t", 0, stable=True) == UNSTABLE
    assert w.offset("t", 0, "h", stable=True) == (6, NONE)
    w.end_transaction(7, committed=True)
    assert w.offset("t", 0, stable=True) == (5, NONE)


@pytest.mark.parametrize("error", [E.NOT_ENOUGH_REPLICAS, E.TRANSACTION_COORDINATOR_FENCED])
def test_tg_11_a_marker_that_is_not_written_changes_nothing(error: ErrorCode) -> None:
    w = GroupWorld()
    w.commit({("t", 0): 4})
    w.commit({("t", 0): 5}, producer=P7)
    w.hold = True
    ended = w.end_transaction(7, committed=True)
    w.fail_held(error)
    assert w.answers[ended] is error, "the sender of the marker is told what it is"
    assert w.offset("t", 0) == (4, NONE) and w.offset("t", 0, stable=True) == UNSTABLE
    w.hold = False
    assert w.answers[w.end_transaction(7, committed=True)] is NONE
    assert w.offset("t", 0, stable=True) == (5, NONE)


def test_tg_11_a_marker_that_is_late_ends_the_transaction_when_it_is_replicated() -> None:
    w = GroupWorld()
    w.commit({("t", 0): 5}, producer=P7)
    w.hold = True
    ended = w.end_transaction(7, committed=True)
    w.be_late()
    assert w.answers[ended] is E.REQUEST_TIMED_OUT, "its sender sends it again"
    assert w.offset("t", 0, stable=True) == UNSTABLE
    again = w.end_transaction(7, committed=True)
    w.commit_held()
    assert w.answers[again] is NONE
    for _ in range(2):
        assert w.offset("t", 0, stable=True) == (5, NONE)
        w.fail_over()


def test_tg_04_an_offset_that_was_late_is_pending_and_counts_with_its_transaction() -> None:
    w = GroupWorld()
    w.commit({("t", 0): 4})
    w.hold = True
    asked = w.commit({("t", 0): 5}, producer=P7)
    w.be_late()
    assert w.answers[asked] == (E.COORDINATOR_NOT_AVAILABLE,)
    w.commit_held()
    assert w.offset("t", 0, stable=True) == UNSTABLE
    w.end_transaction(7, committed=True)
    w.commit_held()
    for _ in range(2):
        assert w.offset("t", 0, stable=True) == (5, NONE)
        w.fail_over()


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (E.INVALID_PRODUCER_EPOCH, E.INVALID_PRODUCER_EPOCH),
        (E.INVALID_TXN_STATE, E.INVALID_TXN_STATE),
        (E.NOT_ENOUGH_REPLICAS, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_LEADER_OR_FOLLOWER, E.NOT_COORDINATOR),
    ],
)
def test_tg_11_an_offset_that_is_not_written_is_not_pending(error: ErrorCode, told: ErrorCode) -> None:
    w = GroupWorld()
    w.commit({("t", 0): 4})
    w.hold = True
    asked = w.commit({("t", 0): 5}, producer=P7)
    w.fail_held(error)
    assert w.answers[asked] == (told,)
    assert w.offset("t", 0, stable=True) == (4, NONE)
    w.hold = False
    w.end_transaction(7, committed=True)
    assert w.offset("t", 0) == (4, NONE)


# --- any order -----------------------------------------------------------------------------------------------------------


def expected(w: GroupWorld) -> tuple[dict[Any, int], set[Any]]:
    """What the log says: of each partition behind its last tombstone the latest record that is plain or whose transaction was
    committed; and what is in a transaction without a marker."""
    ends = [(at, producer_id, value is not None) for at, (key, value, producer_id) in enumerate(w.log) if key == MARKER]
    dropped: dict[Any, int] = {}
    written: list[tuple[int, Any, int, int | None]] = []
    for at, (key, value, producer_id) in enumerate(w.log):
        found = None if key == MARKER else decode_key(key)
        if isinstance(found, OffsetKey):
            if value is None:
                dropped[found] = at
            else:
                written.append((at, found, decode_offset(value).offset, producer_id))
    committed: dict[Any, int] = {}
    pending = set()
    for at, key, offset, producer_id in written:
        if at < dropped.get(key, -1):
            continue
        outcome = next((commit for end, who, commit in ends if who == producer_id and end > at), None)
        if producer_id is None or outcome:
            committed[key] = offset
        elif outcome is None:
            pending.add(key)
    return committed, pending


@pytest.mark.parametrize("seed", range(60))
def test_tg_09_memory_is_what_the_log_says(seed: int) -> None:
    """TG-04, TG-05, TG-06, TG-09, TG-11: whatever comes in whatever order, fails, is deleted, and is loaded anew."""
    rng = random.Random(seed)
    w = GroupWorld(seed)
    groups, partitions = ("g", "h"), [("t", 0), ("t", 1), ("u", 0)]
    for step in range(120):
        w.hold = rng.random() < 0.4
        group = rng.choice(groups)
        match rng.randrange(9):
            case 0 | 1:
                w.commit({rng.choice(partitions): step}, group_id=group)
            case 2 | 3 | 4:
                producer = Producer(rng.randrange(3), 0)
                w.commit(dict.fromkeys(rng.sample(partitions, 2), step), group_id=group, producer=producer)
            case 5 | 6:
                w.end_transaction(rng.randrange(3), committed=rng.random() < 0.6)
            case 7:
                w.delete_offsets(rng.choice(partitions), group_id=group)
            case 8:
                rng.choice([lambda: w.delete_topics("u"), w.delete_group, w.fail_over])()
        if rng.random() < 0.2:
            w.fail_held(E.NOT_ENOUGH_REPLICAS)
        if rng.random() < 0.5:
            w.commit_held()
        if not w.held:
            committed, pending = expected(w)
            for key in (OffsetKey(name, TopicPartition(*at)) for name in groups for at in partitions):
                assert w.offset(*key.tp, key.group_id) == (committed.get(key, -1), NONE), (seed, step, key)
                stable = w.offset(*key.tp, key.group_id, stable=True)
                assert (stable == UNSTABLE) == (key in pending), (seed, step, key)


# --- the coordinator -----------------------------------------------------------------------------------------------------


OFFSETS_0 = TopicPartition(OFFSETS_TOPIC, 0)


def end_of(producer: Producer, *, commit: bool = True) -> MarkerEntry:
    return MarkerEntry(*producer, coordinator_epoch=3, commit=commit, version=0, tp=OFFSETS_0)


def offsets_of(producer: Producer, offset: int) -> CommitRequest:
    offsets = (OffsetToCommit(TopicPartition("t", 0), offset, None, ""),)
    return CommitRequest(group_id="g", generation=-1, member_id="", instance_id=None, offsets=offsets, producer=producer)


async def enrol(tp: TopicPartition) -> TransactionTerms | None:
    assert tp == OFFSETS_0
    return TransactionTerms()


def seen(h: GroupHarness) -> tuple[int, ErrorCode]:
    (found,) = h.groups.fetch_offsets("g", [TopicPartition("t", 0)], require_stable=True)
    return found.offset, found.error


async def test_tg_10_the_marker_lies_behind_what_is_queued_and_its_answer_waits() -> None:
    async with GroupHarness(automatic=False) as h:
        committing = asyncio.ensure_future(h.groups.commit_in_transaction(offsets_of(P7, 5), enrol))
        await h.clock.settle()
        ending = asyncio.ensure_future(h.groups.complete_transaction(OFFSETS_0, end_of(P7)))
        await h.clock.settle()
        headers = [parse_header(batch) for batch in h.log.at(0).batches]
        assert [(it.is_control, it.is_transactional, it.producer_id) for it in headers] == [(False, True, 7), (True, True, 7)]
        h.log.advance(0, 1)
        assert await committing == (NONE,)
        assert not ending.done() and seen(h) == UNSTABLE
        h.log.advance(0)
        assert await ending is NONE
        assert seen(h) == (5, NONE)


async def test_tg_10_elsewhere_and_while_loading() -> None:
    async with GroupHarness(automatic=False) as h:
        for other in (TopicPartition(OFFSETS_TOPIC, 9), TopicPartition("t", 0)):
            assert await h.groups.complete_transaction(other, end_of(P7)) is E.NOT_LEADER_OR_FOLLOWER
        h.log.write(0, plain_batch())
        await h.apply({**h.topics, OFFSETS_TOPIC: [partition([1], leader_epoch=1)]})
        assert await h.groups.complete_transaction(OFFSETS_0, end_of(P7)) is E.NOT_LEADER_OR_FOLLOWER, "it is being loaded"
        with pytest.raises(ApiError, match="COORDINATOR_LOAD_IN_PROGRESS"):
            await h.groups.commit_in_transaction(offsets_of(P7, 5), enrol)
        h.log.advance(0)
        await h.clock.run_for(1)
        ending = asyncio.ensure_future(h.groups.complete_transaction(OFFSETS_0, end_of(P7)))
        await h.clock.settle()
        await h.apply({**h.topics, OFFSETS_TOPIC: [partition([2, 1], leader_epoch=2)]})
        assert await ending is E.NOT_LEADER_OR_FOLLOWER, "it has moved meanwhile"


async def test_tg_01_a_coordinator_that_moves_while_the_transaction_is_asked() -> None:
    async with GroupHarness() as h:
        asked: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def slow(tp: TopicPartition) -> TransactionTerms | None:
            await asked
            return TransactionTerms()

        committing = asyncio.ensure_future(h.groups.commit_in_transaction(offsets_of(P7, 5), slow))
        await h.clock.settle()
        await h.apply({**h.topics, OFFSETS_TOPIC: [partition([1], leader_epoch=1)]})
        asked.set_result(None)
        with pytest.raises(ApiError, match="NOT_COORDINATOR"):
            await committing
        assert h.log.at(0).batches == [], "the terms were of another leader epoch"


def plain_batch() -> bytes:
    record = offset_record("g", TopicPartition("t", 0), CommittedOffset(1, None, "", 1))
    return build_batch([Record(record.key, record.value)], timestamp_ms=1)
