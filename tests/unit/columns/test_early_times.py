"""Records from before 1970, which Kafka's brokers take from clients that send them.

Source: Kafka's DefaultRecord.readFrom.
"""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow")

from kraftlite.log.batch import Record, build_batch, iter_records, parse_header, record_timestamp, retained_batch
from tests.unit.columns.test_records import expected, parse, rows


@pytest.mark.parametrize("base", [-86_400_000, -1_000, -1])
def test_times_before_1970_are_the_records_own(base: int) -> None:
    """Kafka adds what a record says to what its batch says, whatever their signs: only a sum of -1 is no time."""
    records_ = [Record(b"k", b"v"), Record(b"k", b"v", timestamp_delta=3_000, offset_delta=1)]
    data = build_batch(records_, timestamp_ms=base)
    assert [it["timestamp"] for it in rows(parse(data))] == [base * 1000, (base + 3_000) * 1000]
    assert rows(parse(data)) == expected(data)


@pytest.mark.parametrize("horizon", [None, 1_700_000_000_000])
def test_compaction_keeps_times_before_1970(horizon: int | None) -> None:
    """The highest timestamp of a batch is at least -1, as Kafka's builder of batches has it."""
    whole = [Record(b"k", b"v"), Record(b"l", b"v", timestamp_delta=3_000, offset_delta=1)]
    data = build_batch(whole, timestamp_ms=-86_400_000)
    rest = retained_batch(parse_header(data), list(iter_records(data)), delete_horizon_ms=horizon)
    header = parse_header(rest)
    assert [record_timestamp(header, it) for it in iter_records(rest)] == [-86_400_000, -86_397_000]
    assert header.max_timestamp == -1


@pytest.mark.parametrize("sent_ms", [1_700_000_000_000, 0, -86_400_000, -(2**53)])
def test_a_delete_horizon_in_a_far_future_hides_no_time(sent_ms: int) -> None:
    """The difference may be beyond 64 bits: it wraps around, as with Kafka's clients."""
    data = build_batch([Record(b"k", None)], timestamp_ms=sent_ms)
    rest = retained_batch(parse_header(data), list(iter_records(data)), delete_horizon_ms=2**63 - 1)
    assert [it["timestamp"] for it in rows(parse(rest))] == [sent_ms * 1000]
    assert rows(parse(rest)) == expected(rest)
