from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlite.log.batch import Record, build_batch, iter_batches, iter_records
from kraftlite.log.control import KRaftVersion, encode_control
from kraftlite.model.errors import ApiError
from kraftlite.raft.decoding import check_readable, decode_in_steps, record_values
from tests.harness.raft_cluster import TextSerde


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=30), st.sampled_from([0, 1, 4]))
def test_the_fast_path_reads_what_the_general_one_reads(values: list[bytes], codec: int) -> None:
    raw = build_batch([Record(None, value) for value in values], timestamp_ms=5, codec=codec)
    ((header, view),) = iter_batches(raw)
    assert record_values(header, view) == values == [record.value for record in iter_records(raw)]


@given(st.lists(st.tuples(st.none() | st.binary(max_size=5), st.binary(max_size=200)), min_size=1, max_size=5))
def test_records_with_keys_headers_and_time_deltas_are_read_too(pairs: list[tuple[bytes | None, bytes]]) -> None:
    records = [Record(key, value, (("h", b"1"),) if key else (), 70 * i) for i, (key, value) in enumerate(pairs)]
    ((header, view),) = iter_batches(build_batch(records, timestamp_ms=5))
    assert record_values(header, view) == [value for _, value in pairs]


def test_a_control_batch_keeps_its_place_but_has_no_records() -> None:
    data = build_batch([Record(b"\0\0\0\2", b"x")], base_offset=4, leader_epoch=2, timestamp_ms=9, control=True)
    data += build_batch([Record(None, b"a"), Record(None, b"b")], base_offset=5, leader_epoch=2, timestamp_ms=9)
    control, plain = decode_in_steps(data, TextSerde())
    assert control is not None and plain is not None
    assert (control.base_offset, control.last_offset, control.records) == (4, 4, ())
    assert (plain.base_offset, plain.last_offset, plain.epoch, plain.append_timestamp_ms, plain.records) == (
        5,
        6,
        2,
        9,
        ("a", "b"),
    )


def test_a_large_batch_is_decoded_in_steps() -> None:
    small, large = ([Record(None, b"%d" % number) for number in range(count)] for count in (3, 10))
    data = build_batch(small, timestamp_ms=1) + build_batch(large, base_offset=3, timestamp_ms=1)
    steps = list(decode_in_steps(data, TextSerde(), 4))
    assert [None if batch is None else len(batch.records) for batch in steps] == [3, None, None, 10]
    assert steps[-1] == list(decode_in_steps(data, TextSerde()))[-1]


def test_control_records_that_share_an_offset_cannot_be_read() -> None:
    """Of two sets of voters at one offset neither is the earlier one."""
    twice = [encode_control(KRaftVersion(kraft_version=1)) for _ in range(2)]
    check_readable(build_batch(twice, timestamp_ms=1, control=True))
    with pytest.raises(ApiError, match="control record 1 has offset delta 0"):
        check_readable(build_batch(twice, timestamp_ms=1, control=True, keep_offset_deltas=True, last_offset_delta=1))
