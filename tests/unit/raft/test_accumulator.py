from __future__ import annotations

import pytest

from kraftlite.log.batch import build_batch, iter_records
from kraftlite.log.control import KRaftVersion
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.limits import RAFT_MAX_WAITING_BATCHES
from kraftlite.raft.accumulator import BatchAccumulator
from tests.harness.raft_cluster import TextSerde


def accumulator(max_batch_bytes: int = 8 << 20) -> BatchAccumulator:
    return BatchAccumulator(epoch=3, next_offset=10, serde=TextSerde(), linger_ms=25, max_batch_bytes=max_batch_bytes)


def test_appends_share_a_batch_and_offsets_continue() -> None:
    acc = accumulator()
    assert acc.prepare(["a", "b"], 1) == 11
    assert acc.prepare(["c"], 2) == 12
    acc.schedule(100)
    assert not acc.is_due(124) and acc.is_due(125)
    (batch,) = acc.drain()
    assert (batch.base_offset, batch.decoded, batch.timestamp_ms) == (10, ["a", "b", "c"], 1)
    raw = build_batch(batch.encoded, base_offset=10, timestamp_ms=1)
    assert [record.offset_delta for record in iter_records(raw)] == [0, 1, 2]
    assert len(raw) <= batch.size_bytes
    assert acc.drain() == [] and acc.drain_deadline_ms is None


def test_what_was_prepared_but_not_scheduled_stays() -> None:
    acc = accumulator()
    acc.prepare(["a"], 1)
    acc.schedule(0)
    acc.prepare(["b"], 1)
    (first,) = acc.drain()
    assert first.decoded == ["a"]
    assert acc.drain() == []
    acc.schedule(50)
    (second,) = acc.drain()
    assert (second.base_offset, second.decoded) == (11, ["b"])


def test_a_full_batch_does_not_linger() -> None:
    acc = accumulator(max_batch_bytes=200)
    acc.prepare(["x" * 100], 1)
    acc.schedule(0)
    assert not acc.is_due(0)
    acc.prepare(["y" * 100], 1)
    acc.schedule(0)
    assert acc.is_due(0)
    assert [batch.decoded for batch in acc.drain()] == [["x" * 100], ["y" * 100]]


def test_oversize_leaves_nothing_behind() -> None:
    acc = accumulator(max_batch_bytes=200)
    with pytest.raises(ApiError) as refused:
        acc.prepare(["x" * 60, "y" * 100], 1)
    assert refused.value.code is ErrorCode.RECORD_LIST_TOO_LARGE
    assert acc.next_offset == 10 and acc.waiting_records == 0


def test_at_most_ten_full_batches_wait() -> None:
    acc = accumulator(max_batch_bytes=200)
    for _ in range(RAFT_MAX_WAITING_BATCHES + 1):
        acc.prepare(["x" * 100], 1)
    before = acc.next_offset
    with pytest.raises(ApiError) as refused:
        acc.prepare(["x" * 100], 1)
    assert refused.value.code is ErrorCode.REQUEST_TIMED_OUT
    assert acc.next_offset == before
    acc.schedule(0)
    assert len(acc.drain()) == RAFT_MAX_WAITING_BATCHES + 1
    assert acc.prepare(["x" * 100], 1) == before


def test_the_serde_failing_leaves_nothing_behind() -> None:
    class Picky(TextSerde):
        def encode(self, record: object) -> bytes:
            if record == "bad":
                raise ValueError("bad")
            return super().encode(record)

    acc = BatchAccumulator(epoch=1, next_offset=0, serde=Picky(), linger_ms=0)
    with pytest.raises(ValueError, match="bad"):
        acc.prepare(["good", "bad"], 1)
    assert acc.next_offset == 0 and acc.waiting_records == 0


def test_control_records_are_a_batch_of_their_own_and_wait_for_what_was_prepared_before_them() -> None:
    acc = accumulator()
    assert acc.prepare(["a"], 0) == 10
    assert acc.prepare_control([KRaftVersion(kraft_version=1), KRaftVersion(kraft_version=1)], 0, now_ms=5) == 12
    assert acc.prepare(["b"], 0) == 13
    assert acc.is_due(5) and acc.drain() == [], "the record before them may not leave yet"
    acc.schedule(6)
    first, controls, last = acc.drain()
    assert [(it.base_offset, it.is_control, len(it.encoded)) for it in (first, controls, last)] == [
        (10, False, 1),
        (11, True, 2),
        (13, False, 1),
    ]
    assert controls.decoded == []


def test_control_records_do_not_linger() -> None:
    acc = accumulator()
    acc.prepare_control([KRaftVersion(kraft_version=1)], 0, now_ms=5)
    assert acc.is_due(5) and [it.is_control for it in acc.drain()] == [True]
