from __future__ import annotations

import pytest

from kraftlite.log.batch import Record, build_batch
from kraftlite.log.control import EndTxnMarker, LeaderChange, control_batch, plain_marker
from kraftlite.log.validation import marker_of
from kraftlite.model.ids import NodeId


@pytest.mark.parametrize("commit", [False, True])
@pytest.mark.parametrize("epoch", [0, 7, 2**31 - 1])
def test_a_marker_is_read_in_one_go(commit: bool, epoch: int) -> None:
    marker = EndTxnMarker(commit=commit, coordinator_epoch=epoch)
    batch = control_batch([marker], timestamp_ms=5, producer_id=7, producer_epoch=1)
    assert plain_marker(batch) == plain_marker(memoryview(bytearray(batch))) == marker_of(batch) == marker


@pytest.mark.parametrize(
    "record",
    [
        Record(b"\0\0\0\1", b"\0\0\0\0\0\7", timestamp_delta=3),
        Record(b"\0\0\0\1", b"\0\0\0\0\0\7", headers=(("a", None),)),
        Record(b"\0\0\0\1", b"\0\0\0\0\0\7\0"),
        Record(b"\0\0\0\1\0", b"\0\0\0\0\0\7"),
    ],
    ids=["later", "header", "longer value", "longer key"],
)
def test_what_is_written_otherwise_is_read_as_any_record(record: Record) -> None:
    batch = build_batch([record], timestamp_ms=5, control=True, transactional=True, producer_id=7, producer_epoch=1)
    if record.timestamp_delta:
        assert plain_marker(batch) is None
    assert marker_of(batch) == EndTxnMarker(commit=True, coordinator_epoch=7)


def test_other_control_records_are_no_markers() -> None:
    batch = control_batch([LeaderChange(leader_id=NodeId(1), voters=(NodeId(1),), granting_voters=())], timestamp_ms=5)
    assert plain_marker(batch) is None and marker_of(batch) is None
    abort_of_another_kind = build_batch([Record(b"\0\0\0\2", b"\0\0\0\0\0\7")], timestamp_ms=5, control=True)
    assert len(abort_of_another_kind) == len(control_batch([EndTxnMarker(commit=True, coordinator_epoch=1)], timestamp_ms=5))
    assert plain_marker(abort_of_another_kind) is None
