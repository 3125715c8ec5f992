"""Compaction, retention, log starts, offsets and indexes are what they must be, or the checker of each says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kraftlite.log.batch import Record, build_batch, iter_batches
from kraftlite.log.control import EndTxnMarker, control_batch
from kraftlite.log.log import Log
from kraftlite.model.errors import ErrorCode
from kraftlite.model.method import AnyMethod
from kraftlite.replication.api import DeleteRecordsResult, OffsetResult
from kraftlite.runtime.trace.broker import ReplicaMoved
from kraftlite.runtime.trace.log import (
    LogCleaned,
    LogStartAdvanced,
    LogTruncated,
    LogUncleanable,
    RetentionFailed,
    SegmentDeleted,
)
from kraftlite.sim.checkers.base import CheckerFactory
from kraftlite.sim.checkers.catalog_replication import REPLICATION_AND_HISTORY
from kraftlite.sim.checkers.cut_logs import CutsSupersedeNothing
from kraftlite.sim.checkers.deletions_end import DeletionsEnd
from kraftlite.sim.checkers.h_compacted import CompactedReadings
from kraftlite.sim.checkers.i45_compaction import CompactionSound
from kraftlite.sim.checkers.i46_retention import RetentionAllowed
from kraftlite.sim.checkers.i47_log_starts import LogStartsFollow
from kraftlite.sim.checkers.i48_offsets import OffsetsTold
from kraftlite.sim.checkers.i49_log_upkeep import LogsKeptUp
from kraftlite.sim.services.logs import DELETE_RECORDS, EPOCH_END, LIST, DeleteAsk, EpochEnd, EpochEndAsk, ListAsk
from kraftlite.sim.workloads.logs_history import Reading
from tests.harness.orders_cluster import TP, Orders
from tests.harness.violations import Cases, assert_found


class Keyed(Orders):
    """Three records of one key, in a topic of the workload."""

    def start(self) -> Keyed:
        self.world.history.logs.topics.append("orders")
        super().start()
        return self

    def batch(self, value: str = "v", sequence: int | None = None) -> bytes:
        number = self.sequence if sequence is None else sequence
        return bytes(
            build_batch(
                [Record(key=b"k", value=f"{value}{number}".encode())],
                timestamp_ms=1_700_000_000_000 + number,
                producer_id=7,
                producer_epoch=0,
                base_sequence=number,
            )
        )

    @property
    def rolled(self) -> Log:
        """The log of the leader, whose three records are in a closed segment."""
        log = self.log(self.leader)
        if log.active_base_offset == 0:
            log.on_roll = None  # nothing runs beside the test
            log.roll()
            log.flush_sync()
        return log

    def rewrite(self, change: Callable[[list[bytes]], list[bytes]]) -> None:
        """Change the batches of the closed segment behind everybody's back, and say that it was compacted."""
        path = self.rolled.segments[0].path
        data = self.leader.disk.read_file(path)
        size = len(data) // 3
        self.leader.disk.write_file_atomically(path, b"".join(change([data[at : at + size] for at in range(0, len(data), size)])))
        self.cleaned()

    def cleaned(self) -> None:
        log = self.rolled
        log._ctx.tracer.emit(
            LogCleaned(tp=TP, first_dirty=0, up_to=3, keys=1, bytes_before=1, bytes_after=1, segments_before=1, segments_after=1)
        )
        self.go(1)

    def answer(self, method: AnyMethod, ask: object, answer: object) -> None:
        exchange = SimpleNamespace(method=method, request=ask, target=self.leader.node_id, source=1)
        self._tell(lambda it: it.on_served(cast(Any, exchange), answer))
        self.go(1)

    def settle(self) -> None:
        for it in self.checkers:
            left = it.unsettled()
            if left is not None:
                it.fail(left)


CASES: Cases[Keyed] = Cases()


@pytest.fixture
def make() -> Iterator[Callable[..., Keyed]]:
    made: list[Keyed] = []

    def start(*factories: CheckerFactory) -> Keyed:
        made.append(Keyed(*factories))
        return made[-1].start()

    yield start
    for cluster in made:
        cluster.close()


@CASES.breaks(CompactionSound, "2@0 b'k': 2 bytes, time 1700000000002 is gone, the next of its key is at None")
def the_last_value_of_a_key_is_gone(cluster: Keyed) -> None:
    cluster.rewrite(lambda batches: batches[:2])


@CASES.breaks(CompactionSound, "was cleaned up to 3, and has both 0@0")
def a_key_is_there_more_than_once(cluster: Keyed) -> None:
    cluster.cleaned()


@CASES.breaks(CompactionSound, "written was 2@0")
def a_record_has_another_value(cluster: Keyed) -> None:
    def change(batches: list[bytes]) -> list[bytes]:
        made = build_batch(
            [Record(key=b"k", value=b"w2")], base_offset=2, leader_epoch=0, timestamp_ms=1_700_000_000_002, producer_id=7,
            producer_epoch=0, base_sequence=2,
        )  # fmt: skip
        return [bytes(made)]

    cluster.rewrite(change)


@CASES.breaks(CompactionSound, "has a batch at 0 behind offset 3")
def offsets_go_back(cluster: Keyed) -> None:
    cluster.rewrite(lambda batches: [batches[2], batches[0]])


@CASES.breaks(CompactionSound, "a power cut would not leave segment 0 as it is")
def a_compacted_segment_is_not_durable(cluster: Keyed) -> None:
    path = cluster.rolled.segments[0].path
    data = cluster.leader.disk.read_file(path)
    file = cluster.leader.disk.open(path)
    file.truncate(0)
    file.pwritev([data[len(data) // 3 * 2 :]], 0)
    cluster.cleaned()


@CASES.breaks(CompactionSound, "cannot be cleaned: no batch at byte 7")
def a_log_cannot_be_cleaned(cluster: Keyed) -> None:
    cluster.rolled._ctx.tracer.emit(LogUncleanable(tp=TP, reason="no batch at byte 7"))
    cluster.go(1)


@CASES.breaks(CompactionSound, "the last of producer 7, is gone")
def the_last_batch_of_a_producer_is_gone(cluster: Keyed) -> None:
    other = build_batch(
        [Record(key=b"k", value=b"v3")], timestamp_ms=1_700_000_000_003, producer_id=8, producer_epoch=0, base_sequence=0
    )
    cluster.produce(batch=bytes(other))
    cluster.until(lambda: cluster.log(cluster.leader).hw == 4)
    log = cluster.rolled
    path = log.segments[0].path
    *_, (_, last) = iter_batches(cluster.leader.disk.read_file(path))
    cluster.leader.disk.write_file_atomically(path, bytes(last))
    log._ctx.tracer.emit(
        LogCleaned(tp=TP, first_dirty=0, up_to=4, keys=1, bytes_before=1, bytes_after=1, segments_before=1, segments_after=1)
    )
    cluster.go(1)


@CASES.breaks(CompactionSound, r"has both 0@0 .* and 1@0 .*; now is \d+, max.compaction.lag.ms is 5")
def a_compaction_that_is_due_is_not_done(cluster: Keyed) -> None:
    log = cluster.rolled
    log.update_config(replace(log.config, cleanup_policy=("compact",), max_compaction_lag_ms=5))
    cluster.settle()


def cut_off(cluster: Keyed) -> None:
    """The log is compacted, ends with one record more of the key, and is cut off there."""
    log = cluster.rolled
    log.update_config(replace(log.config, cleanup_policy=("compact",)))
    cluster.only_leader_writes()
    log.truncate_to(3)
    cluster.go(1)


@CASES.breaks(CutsSupersedeNothing, "2@0 b'k': 2 bytes, time 1700000000002 is gone, the newest of its key when .* is at 1")
def a_record_goes_for_one_that_was_cut_off(cluster: Keyed) -> None:
    cut_off(cluster)
    cluster.rewrite(lambda batches: batches[:2])


@CASES.breaks(RetentionAllowed, "still has segment 0; its newest record is older than retention.ms=0")
def the_active_segment_stays_though_all_of_it_is_too_old(cluster: Keyed) -> None:
    log = cluster.log(cluster.leader)
    log.update_config(replace(log.config, retention_ms=0))
    cluster.settle()


@CASES.breaks(RetentionAllowed, "retention.bytes is -1")
def a_segment_goes_that_is_not_too_much(cluster: Keyed) -> None:
    cluster.rolled.delete_segments_before(3, reason="retention.bytes")
    cluster.go(1)


@CASES.breaks(RetentionAllowed, "retention.ms is 604800000")
def a_segment_goes_that_is_not_too_old(cluster: Keyed) -> None:
    cluster.rolled.delete_segments_before(3, reason="retention.ms")
    cluster.go(1)


@CASES.breaks(RetentionAllowed, "reaches up to 3; the log starts at 0")
def a_segment_goes_that_is_not_below_the_log_start(cluster: Keyed) -> None:
    cluster.rolled.delete_segments_before(3, reason="below the log start")
    cluster.go(1)


@CASES.breaks(RetentionAllowed, "cleanup.policy is compact")
def a_segment_of_a_compacted_topic_goes(cluster: Keyed) -> None:
    log = cluster.rolled
    log.update_config(replace(log.config, cleanup_policy=("compact",)))
    log.delete_segments_before(3, reason="retention.ms")
    cluster.go(1)


@CASES.breaks(RetentionAllowed, "which is the last one")
def the_active_segment_goes(cluster: Keyed) -> None:
    log = cluster.log(cluster.leader)
    log._ctx.tracer.emit(SegmentDeleted(tp=TP, base_offset=0, size_bytes=1, reason="retention.ms"))
    cluster.go(1)


@CASES.breaks(RetentionAllowed, "retention failed")
def a_log_is_not_looked_at(cluster: Keyed) -> None:
    cluster.log(cluster.leader)._ctx.tracer.emit(RetentionFailed(tp=TP, reason="no batch"))
    cluster.go(1)


@CASES.breaks(RetentionAllowed, "still has segment 0; without it there would be at least retention.bytes=0")
def a_segment_stays_that_is_too_much(cluster: Keyed) -> None:
    log = cluster.rolled
    log.update_config(replace(log.config, retention_bytes=0))
    cluster.settle()


@CASES.breaks(LogStartsFollow, r"goes from 0 to 2 \(DeleteRecords\), the highest offset that a client asked for is -1")
def a_log_start_moves_that_nobody_asked_for(cluster: Keyed) -> None:
    cluster.log(cluster.leader).increment_log_start(2, "DeleteRecords")
    cluster.go(1)


@CASES.breaks(LogStartsFollow, "no other replica ever began behind 0")
def a_follower_begins_behind_its_leader(cluster: Keyed) -> None:
    cluster.log(cluster.follower).increment_log_start(2, "leader's log start")
    cluster.go(1)


@CASES.breaks(LogStartsFollow, r"the first segment begins at 0")
def a_log_begins_where_no_segment_does(cluster: Keyed) -> None:
    cluster.log(cluster.leader).increment_log_start(2, "retention.ms")
    cluster.go(1)


@CASES.breaks(LogStartsFollow, "begins at 0 in /d2; in /d1 it began at 2")
def a_log_moves_without_its_start(cluster: Keyed) -> None:
    node = cluster.follower.node
    assert node is not None and node.broker is not None
    checker = next(it for it in cluster.checkers if isinstance(it, LogStartsFollow))
    checker._starts[(cluster.follower.node_id, TP)] = 2
    node.broker._ports.tracer.emit(ReplicaMoved(tp=TP, source="/d1", target="/d2", leo=3))
    cluster.go(1)


@CASES.breaks(LogStartsFollow, "low watermark 2; node [234] never began behind 0")
def an_answer_comes_before_the_followers(cluster: Keyed) -> None:
    done = DeleteRecordsResult(tp=TP, error=ErrorCode.NONE, low_watermark=2)
    cluster.answer(DELETE_RECORDS, DeleteAsk(TP, 2, 1_000), done)


@CASES.breaks(LogStartsFollow, "with the low watermark 1")
def an_answer_says_less_than_was_asked_for(cluster: Keyed) -> None:
    done = DeleteRecordsResult(tp=TP, error=ErrorCode.NONE, low_watermark=1)
    cluster.answer(DELETE_RECORDS, DeleteAsk(TP, 2, 1_000), done)


@CASES.breaks(LogStartsFollow, "begins at 0 after its start; promised was 2")
def a_log_start_is_forgotten(cluster: Keyed) -> None:
    node = cluster.follower
    checker = next(it for it in cluster.checkers if isinstance(it, LogStartsFollow))
    checker._promised[(node.node_id, TP)] = 2
    cluster.kill(node.node_id)
    cluster.boot(node.node_id)
    cluster.go(100)


@CASES.breaks(DeletionsEnd, "has no answer, and for .* every replica that lives has begun at 2")
def a_deletion_waits_for_who_is_dead(cluster: Keyed) -> None:
    broker = cluster.leader.now.node.broker  # type: ignore[union-attr]
    assert broker is not None
    broker.replicas._delete_records._low_watermark = lambda leader, log: -1  # type: ignore[method-assign]
    cluster.kill(cluster.follower.node_id)
    ask = cluster.client.call(cluster.leader.client_endpoint, DELETE_RECORDS, DeleteAsk(TP, 2, 60_000), 61_000)
    cluster.do(ask)


@CASES.breaks(DeletionsEnd, "answers that it has timed out, and for .* every replica that lives has begun at 2")
def a_deletion_times_out_when_all_have_followed(cluster: Keyed) -> None:
    broker = cluster.leader.now.node.broker  # type: ignore[union-attr]
    assert broker is not None
    broker.replicas._delete_records._verdict = lambda tp, required, *, expired: (  # type: ignore[method-assign]
        DeleteRecordsResult(tp=tp, error=ErrorCode.REQUEST_TIMED_OUT) if expired else None
    )
    cluster.do(cluster.client.call(cluster.leader.client_endpoint, DELETE_RECORDS, DeleteAsk(TP, 2, 600), 1_600))


@CASES.breaks(OffsetsTold, "asked for the offset at 1700000000001")
def a_later_record_is_told(cluster: Keyed) -> None:
    answer = OffsetResult(error=ErrorCode.NONE, timestamp=1_700_000_000_002, offset=2, leader_epoch=0)
    cluster.answer(LIST, ListAsk(TP, 1_700_000_000_001, None), answer)


@CASES.breaks(OffsetsTold, "asked for the offset at -3")
def an_earlier_time_is_told_as_the_largest(cluster: Keyed) -> None:
    cluster.answer(
        LIST, ListAsk(TP, -3, None), OffsetResult(error=ErrorCode.NONE, timestamp=1_700_000_000_001, offset=1, leader_epoch=0)
    )


@CASES.breaks(OffsetsTold, r"asked for the offset at -3.*the files have \(-1, -1\) in \[0,3\)")
def the_largest_time_that_is_committed_is_told_for_one_that_is_not(cluster: Keyed) -> None:
    cluster.only_leader_writes()
    cluster.answer(
        LIST, ListAsk(TP, -3, None), OffsetResult(error=ErrorCode.NONE, timestamp=1_700_000_000_002, offset=2, leader_epoch=0)
    )


@CASES.breaks(OffsetsTold, "a batch of epoch 0 ends at 3")
def an_epoch_ends_too_early(cluster: Keyed) -> None:
    cluster.answer(EPOCH_END, EpochEndAsk(TP, 0, None), EpochEnd(ErrorCode.NONE, 0, 2))


@CASES.breaks(LogsKeptUp, "the time index ends with")
def a_time_index_points_behind_the_record(cluster: Keyed) -> None:
    log = cluster.rolled
    entry = (1_700_000_000_001).to_bytes(8, "big") + b"\0\0\0\1"
    cluster.leader.disk.write_file_atomically(f"{log.directory}/{0:020d}.timeindex", entry)
    cluster.cleaned()


@CASES.breaks(LogsKeptUp, "the index has offset 2 at byte 5")
def an_index_points_into_a_batch(cluster: Keyed) -> None:
    log = cluster.rolled
    cluster.leader.disk.write_file_atomically(f"{log.directory}/{0:020d}.index", b"\0\0\0\2\0\0\0\5")
    cluster.cleaned()


@CASES.breaks(LogsKeptUp, r"closes .*/00000000000000000000.log with \d+ bytes; segment.bytes was 100 at most")
def a_segment_closes_too_late(cluster: Keyed) -> None:
    next(it for it in cluster.checkers if isinstance(it, LogsKeptUp))._most_bytes["orders"] = 100
    assert cluster.rolled
    cluster.go(1)


@CASES.breaks(LogsKeptUp, "goes by retention.bytes=5; the metadata log says -1")
def a_log_goes_by_another_configuration(cluster: Keyed) -> None:
    log = cluster.log(cluster.leader)
    log.update_config(replace(log.config, retention_bytes=5))
    cluster.settle()


@CASES.breaks(CompactedReadings, r"read \[0,3\) within 0 ms from .* and found 1 the last of its key, it is 2@0")
def a_reader_misses_the_last_value(cluster: Keyed) -> None:
    reading = Reading(client="r", tp=TP, topic_id=None, began_us=0, start=0, end=3, last={b"k": (1, True)})
    cluster.world.history.logs.readings.append(reading)
    checkers, cluster.checkers = cluster.checkers, []
    for it in checkers:
        it.at_end()


@pytest.mark.parametrize(("checker", "violate", "words"), CASES, ids=CASES.ids)
def test_a_violation_is_found(
    make: Callable[..., Keyed], checker: CheckerFactory, violate: Callable[[Keyed], Any], words: str
) -> None:
    watching = (CompactionSound, checker) if checker is CompactedReadings else (checker,)
    assert_found(make(*watching), checker, violate, words)


@pytest.mark.parametrize("epoch", [0, 1])
def test_a_marker_of_a_replaced_leader_stands_where_its_log_diverges(make: Callable[..., Keyed], epoch: int) -> None:
    """In the epoch of the record that was committed there, it hides a loss."""
    cluster = make(CompactionSound)
    end = EndTxnMarker(commit=False, coordinator_epoch=0)
    marker = control_batch([end], base_offset=2, leader_epoch=epoch, timestamp_ms=1, producer_id=7, producer_epoch=0)

    def violate(cluster: Keyed) -> None:
        cluster.rewrite(lambda batches: [batches[0], marker])

    if epoch == 0:
        assert_found(cluster, CompactionSound, violate, "2@0 b'k': 2 bytes, time 1700000000002 is gone")
    else:
        violate(cluster)


def test_what_really_happens_is_no_violation(make: Callable[..., Keyed]) -> None:
    cluster = make(*REPLICATION_AND_HISTORY)
    log = cluster.rolled
    cluster.do(cluster.client.call(cluster.leader.client_endpoint, DELETE_RECORDS, DeleteAsk(TP, 2, 2_000), 3_000))
    assert log.log_start_offset == 2
    found = cluster.do(cluster.client.call(cluster.leader.client_endpoint, LIST, ListAsk(TP, -3, None), 3_000))
    assert (found.offset, found.timestamp) == (2, 1_700_000_000_002)
    end = cluster.do(cluster.client.call(cluster.leader.client_endpoint, EPOCH_END, EpochEndAsk(TP, 0, None), 3_000))
    assert end.end_offset == 3


def test_what_is_older_than_the_newest_record_goes_behind_a_cut(make: Callable[..., Keyed]) -> None:
    cluster = make(CutsSupersedeNothing)
    cut_off(cluster)
    cluster.rewrite(lambda batches: batches[2:])
    assert [it.judged for it in cluster.checkers if isinstance(it, CutsSupersedeNothing)] == [1]


def test_the_largest_time_is_not_told_before_it_is_committed(make: Callable[..., Keyed]) -> None:
    """Neither is the largest below the HW (LG-51)."""
    cluster = make(OffsetsTold)
    cluster.only_leader_writes()
    log = cluster.log(cluster.leader)
    assert (log.hw, log.leo) == (3, 4)
    found = cluster.do(cluster.client.call(cluster.leader.client_endpoint, LIST, ListAsk(TP, -3, None), 3_000))
    assert (found.error, found.offset) == (ErrorCode.NONE, -1)


def test_a_log_that_is_cut_before_its_start_begins_at_its_end(make: Callable[..., Keyed]) -> None:
    """Its leader was elected uncleanly and has less than this replica had lost on request."""
    cluster = make(LogStartsFollow)
    checker = next(it for it in cluster.checkers if isinstance(it, LogStartsFollow))
    node, follower = cluster.leader.node_id, cluster.follower
    checker._starts[(follower.node_id, TP)] = checker._highest[(node, TP)] = 2
    tracer = cluster.log(follower)._ctx.tracer
    tracer.emit(LogTruncated(tp=TP, offset=1, old_leo=3, leo=1, hw=1))
    tracer.emit(LogStartAdvanced(tp=TP, old=1, new=2, reason="leader's log start"))
    cluster.go(1)
    assert checker._starts[(follower.node_id, TP)] == 2
