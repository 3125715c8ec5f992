"""TP-20 to TP-41: markers in replicated partitions, and what consumers read of transactions."""

from __future__ import annotations

import asyncio

from kraftlite.log.batch import Record, build_batch
from kraftlite.log.config import LogConfig
from kraftlite.model.errors import ErrorCode as E
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.replication.api import FetchEntry, FetchParams
from tests.harness.replication_cluster import TOPIC_ID, TP, StepCluster, read_values
from tests.harness.replication_loop import consume
from tests.harness.transactions import OTHER, OTHER_ID, GatedCluster, mark, marker, txn_batch


def test_tp_20_a_marker_is_answered_when_it_is_below_the_hw() -> None:
    c = StepCluster(3, log_config=LogConfig(min_insync_replicas=2))
    c.create()
    c.replicate()
    done = mark(c[1], marker())
    assert not done and c[1].log().leo == 1
    c.replicate()
    assert done == [[E.NONE]] and c[1].log().hw == 1


def test_tp_20_markers_need_enough_replicas_and_time_out() -> None:
    c = StepCluster(3, log_config=LogConfig(min_insync_replicas=2))
    c.create(isr=(1,))
    assert mark(c[1], marker()) == [[E.NOT_ENOUGH_REPLICAS]] and c[1].log().leo == 0
    c = StepCluster(3)
    c.create()
    c.replicate()
    done = mark(c[1], marker(), timeout_ms=100)
    c.clock.advance(200)
    assert done == [[E.REQUEST_TIMED_OUT]]


def test_tp_21_tp_22_tp_26_each_marker_has_its_own_verdict_in_order() -> None:
    c = StepCluster(2)
    c.create((1, 2))
    c.create((2,), name=OTHER.topic, topic_id=OTHER_ID)
    c.replicate()
    mark(c[1], marker(epoch=5, coordinator=4))
    c.replicate()
    c[1].produce([], batch=txn_batch(epoch=5), acks=1)
    done = mark(
        c[1],
        marker(epoch=5, coordinator=3),
        marker(epoch=4, coordinator=4),
        marker(epoch=5, coordinator=4, version=2),
        marker(epoch=6, coordinator=4, version=2),
        marker(OTHER),
        marker(TopicPartition("nowhere", 0)),
        marker(topic_id=OTHER_ID),
        marker(epoch=6, coordinator=4, version=2, topic_id=TOPIC_ID),
    )
    assert not done, "answered once, when the last of them has its verdict"
    c.replicate()
    assert done == [
        [
            E.TRANSACTION_COORDINATOR_FENCED,
            E.INVALID_PRODUCER_EPOCH,
            E.INVALID_PRODUCER_EPOCH,
            E.NONE,
            E.NOT_LEADER_OR_FOLLOWER,
            E.UNKNOWN_TOPIC_OR_PARTITION,
            E.UNKNOWN_TOPIC_OR_PARTITION,
            E.NONE,
        ]
    ]
    assert c[1].log().leo == 4


def test_tp_26_no_markers_are_answered_at_once() -> None:
    c = StepCluster(1)
    assert mark(c[1]) == [[]]


# reading


def test_tp_31_tp_33_a_transaction_is_read_when_its_marker_is_below_the_hw() -> None:
    c = StepCluster(3)
    c.create()
    c[1].produce(["plain"])
    c[1].produce([], batch=txn_batch("a"))
    c.replicate()
    found = c[1].consume(0, read_committed=True)
    assert read_values(bytes(found.records)) == [(0, "plain")] and (found.hw, found.last_stable_offset) == (2, 1)
    assert found.aborted == ()
    done = mark(c[1], marker(commit=False))
    assert c[1].consume(0, read_committed=True).last_stable_offset == 1
    c.replicate()
    found = c[1].consume(0, read_committed=True)
    assert done == [[E.NONE]] and (found.last_stable_offset, found.aborted) == (3, ((7, 1),))
    assert read_values(bytes(found.records)) == [(0, "plain"), (1, "a")], "clients leave the aborted ones out"
    assert c[1].consume(0).aborted is None


def test_tp_36_a_follower_answers_from_its_own_state() -> None:
    """KIP-392: it must not return data of a transaction whose abort it does not have."""
    c = StepCluster(2)
    c.create((1, 2))
    c[1].produce([], batch=txn_batch("a"))
    c.replicate()
    mark(c[1], marker(commit=False))
    before = c[2].consume(0, read_committed=True)
    assert (before.last_stable_offset, bytes(before.records), c[2].log().hw) == (0, b"", 1)
    c.fetch(2)
    on_the_way = c[2].consume(0, read_committed=True)
    assert c[2].log().leo == 2 and c[2].log().hw == 1
    assert (on_the_way.last_stable_offset, bytes(on_the_way.records)) == (0, b"")
    c.replicate()
    after = c[2].consume(0, read_committed=True)
    assert (after.last_stable_offset, after.aborted) == (2, ((7, 0),)) and bytes(after.records)


async def test_tp_35_a_read_committed_fetch_waits_for_bytes_below_the_lso() -> None:
    async with GatedCluster() as c:
        node = c[1]
        node.produce([], batch=txn_batch("a" * 100))
        node.produce(["plain" * 100])
        assert node.log().hw == 2 and node.log().last_stable_offset == 0
        params = FetchParams(max_wait_ms=1_000, min_bytes=1, max_bytes=1 << 20, read_committed=True)
        entry = FetchEntry(
            tp=TP, topic_id=None, fetch_offset=0, current_leader_epoch=None, last_fetched_epoch=None, max_bytes=1 << 20
        )
        waiting = asyncio.ensure_future(consume(node.manager, params, [entry]))
        await c.settle()
        node.produce(["more" * 100])
        await c.settle()
        assert not waiting.done(), "bytes beyond the LSO do not count"
        mark(node, marker())
        await c.settle()
        assert waiting.done() and len((await waiting)[0].records) > 500


def test_tp_37_list_offsets_is_bounded_by_the_lso() -> None:
    c = StepCluster(1)
    c.create((1,))
    c[1].produce(["plain"])
    c[1].produce([], batch=txn_batch("a"))

    def offset(timestamp: int, read_committed: bool = True) -> int:
        return c[1].manager.list_offset(
            TP, None, timestamp, current_leader_epoch=None, read_committed=read_committed
        ).offset  # fmt: skip

    assert offset(-1) == 1 and offset(-1, read_committed=False) == 2
    assert offset(1_700_000_000_000) == 0
    c.replicate()
    c[1].log().increment_log_start(1, "request")
    assert offset(1_700_000_000_000) == -1 and offset(1_700_000_000_000, read_committed=False) == 1
    mark(c[1], marker())
    assert offset(-1) == 3 and offset(1_700_000_000_000) == 1


def test_tp_37_the_largest_timestamp_is_not_told_to_whoever_cannot_read_its_record() -> None:
    """Nor that of another record: there is no largest timestamp as long as the LSO is below it."""
    c = StepCluster(1)
    c.create((1,))
    c[1].produce([], batch=bytearray(build_batch([Record(None, b"earlier")], timestamp_ms=1_600_000_000_000)))

    def largest(read_committed: bool) -> int:
        found = c[1].manager.list_offset(TP, None, -3, current_leader_epoch=None, read_committed=read_committed)
        return found.offset

    assert largest(True) == 0
    c[1].produce([], batch=txn_batch("a"))
    assert (largest(False), largest(True)) == (1, -1)


def test_tp_38_a_demoted_leader_cuts_a_marker_that_was_not_replicated() -> None:
    """The transaction is open again, and the outcome that counts is the one the new leader gets."""
    c = StepCluster(3)
    c.create()
    c[1].produce([], batch=txn_batch("a"))
    c.replicate()
    mark(c[1], marker(commit=False))
    assert c[1].log().aborted_transactions(0, 2) == ((7, 0),)
    c.controller.elect(c[2].id)
    c.publish()
    mark(c[2], marker(commit=True))
    c.replicate(6)
    for node in (c[1], c[2], c[3]):
        assert node.log().leo == node.log().last_stable_offset == 2 and node.log().aborted_transactions(0, 2) == ()


def test_tp_41_partitions_with_late_transactions() -> None:
    c = StepCluster(2)
    c.create((1, 2))
    c[1].produce([], batch=txn_batch())
    c.replicate()
    c.clock.advance(900_000 + 300_000)
    assert c[1].manager.counts.late_transactions() == 0
    c.clock.advance(1)
    assert c[1].manager.counts.late_transactions() == 1 and c[2].manager.counts.late_transactions() == 0
    mark(c[1], marker())
    assert c[1].manager.counts.late_transactions() == 0
