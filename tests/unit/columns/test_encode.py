"""What Arrow columns are encoded to is what `kraftlite.log.batch` reads, and would have written."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlite.columns.decoding import ARROW_TYPES
from kraftlite.columns.encode import EncodedBatch, encode_records
from kraftlite.columns.records import parse_records
from kraftlite.log import codecs
from kraftlite.log.batch import HEADER_BYTES, Record, build_batch, check_crc, iter_records, parse_header, record_timestamp
from kraftlite.model.errors import ApiError, ErrorCode

NOW_MS = 1_700_000_000_000
HEADERS = ARROW_TYPES["headers"]
FAST = settings(max_examples=60)

contents = st.none() | st.binary(max_size=90) | st.integers(60, 9000).map(lambda size: bytes([size % 251]) * size)
lists = st.none() | st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3)
times = st.none() | st.integers(0, 2**45) | st.integers(NOW_MS, NOW_MS + 100)
rows = st.lists(st.tuples(contents, contents, lists, times), max_size=30)


def table(found: list[tuple[Any, Any, Any, Any]]) -> pa.Table:
    return pa.table(
        {
            "key": pa.array([row[0] for row in found], pa.binary()),
            "value": pa.array([row[1] for row in found], pa.binary()),
            "headers": pa.array([row[2] and [{"key": n, "value": v} for n, v in row[2]] for row in found], HEADERS),
            "timestamp": pa.array([row[3] for row in found], pa.int64()),
        }
    )


def decoded(batches: list[EncodedBatch]) -> list[tuple[Any, ...]]:
    found = []
    for batch in batches:
        header = parse_header(batch.data)
        assert header.size_bytes == len(batch.data)
        assert check_crc(batch.data)
        read = list(iter_records(batch.data))
        assert len(read) == header.count == batch.count == header.last_offset_delta + 1
        assert [record.offset_delta for record in read] == list(range(header.count))
        stamps = [record_timestamp(header, record) for record in read]
        assert header.max_timestamp == max(stamps)
        found += [(record.key, record.value, record.headers, at) for record, at in zip(read, stamps, strict=True)]
    return found


def wanted(found: list[tuple[Any, Any, Any, Any]], extra: Any = None) -> list[tuple[Any, ...]]:
    return [
        (key, value, tuple(headers or ()) + ((extra[index],) if extra else ()), NOW_MS if at is None else at)
        for index, (key, value, headers, at) in enumerate(found)
    ]


@FAST
@given(rows, st.integers(0, 4), st.sampled_from([9200 * 2 + 200, 40_000, 2**20]))
def test_reads_back(found: list[Any], codec: int, limit: int) -> None:
    batches = encode_records(table(found), timestamp_ms=NOW_MS, max_batch_bytes=limit, codec=codec)
    assert decoded(batches) == wanted(found)
    assert all(len(batch.data) <= limit for batch in batches)
    assert all(parse_header(batch.data).codec in (codec, codecs.NONE) for batch in batches)


@FAST
@given(rows, st.text(max_size=80), st.data())
def test_a_stamp_is_the_last_header(found: list[Any], name: str, choice: st.DataObject) -> None:
    beginning = choice.draw(st.text(max_size=80))
    ends = choice.draw(st.lists(st.binary(max_size=80), min_size=len(found), max_size=len(found)))
    stamp = name, beginning, pa.array(ends, pa.binary())
    extra = [(name, beginning.encode() + end) for end in ends]
    for whole in (table(found), table(found).drop_columns(["headers"])):
        plain = found if "headers" in whole.column_names else [(key, value, None, at) for key, value, _, at in found]
        batches = encode_records(whole, timestamp_ms=NOW_MS, max_batch_bytes=50_000, stamp=stamp)
        assert decoded(batches) == wanted(plain, extra)


@FAST
@given(rows.filter(bool))
def test_one_batch_is_byte_for_byte_what_the_scalar_writer_makes(found: list[Any]) -> None:
    (batch,) = encode_records(
        table(found),
        timestamp_ms=NOW_MS,
        max_batch_bytes=2**22,
        producer_id=5,
        producer_epoch=2,
        base_sequence=9,
        transactional=True,
    )
    stamps = [NOW_MS if at is None else at for _, _, _, at in found]
    records = [
        Record(key, value, tuple(headers or ()), at - stamps[0])
        for (key, value, headers, _), at in zip(found, stamps, strict=True)
    ]
    assert batch.data == build_batch(
        records, timestamp_ms=stamps[0], producer_id=5, producer_epoch=2, base_sequence=9, transactional=True
    )  # fmt: skip


@FAST
@given(rows, st.integers(0, 10), st.integers(0, 10))
def test_slices_and_chunks(found: list[Any], low: int, length: int) -> None:
    whole = pa.concat_tables([table(found[:7]), table(found[7:])])
    cut = whole.slice(low, length)
    assert decoded(encode_records(cut, timestamp_ms=NOW_MS, max_batch_bytes=2**22)) == wanted(found[low : low + length])
    for batch, part in zip(whole.slice(low).to_batches(), [found[low:7], found[max(7, low) :]], strict=False):
        if low < 7:
            assert decoded(encode_records(batch, timestamp_ms=NOW_MS, max_batch_bytes=2**22)) == wanted(part)


@FAST
@given(rows)
def test_what_is_encoded_parses_into_the_same_columns(found: list[Any]) -> None:
    offset, parsed = 0, []
    for batch in encode_records(table(found), timestamp_ms=NOW_MS, max_batch_bytes=2**22):
        data = offset.to_bytes(8, "big") + batch.data[8:]
        result = parse_records(data, tp=Named(), start=0, end=10**9, columns=("key", "value", "headers"))
        parsed += [row for part in result.batches for row in part.to_pylist()]
        offset = result.next_offset
    assert parsed == [
        {"key": key, "value": value, "headers": [{"key": n, "value": v} for n, v in headers] if headers else None}
        for key, value, headers, _ in found
    ]


class Named:
    topic = "orders"
    partition = 0


def test_batches_are_as_few_as_the_limit_allows() -> None:
    rng = random.Random(3)
    found = [(rng.randbytes(16), rng.randbytes(rng.randrange(150)), None, None) for _ in range(20_000)]
    batches = encode_records(table(found), timestamp_ms=NOW_MS, max_batch_bytes=16_384)
    assert decoded(batches) == wanted(found)
    assert max(len(batch.data) for batch in batches) <= 16_384
    assert len(batches) <= 1.03 * sum(len(batch.data) for batch in batches) / 16_384 + 1
    assert len(encode_records(table(found), timestamp_ms=NOW_MS, max_batch_bytes=2**24)) == 1


@pytest.mark.parametrize("size", [0, 1, 50, 56, 57, 100, 8180, 8200, 2**20])
def test_a_record_that_just_fits_and_one_that_does_not(size: int) -> None:
    one = table([(None, b"x" * size, None, None)])
    exact = len(build_batch([Record(None, b"x" * size)], timestamp_ms=NOW_MS))
    assert [len(it.data) for it in encode_records(one, timestamp_ms=NOW_MS, max_batch_bytes=exact)] == [exact]
    two = table([(None, b"", None, None), (None, b"x" * size, None, None)])
    with pytest.raises(ApiError, match=rf"{exact} bytes.*{exact - 1} is the limit") as caught:
        encode_records(two, timestamp_ms=NOW_MS, max_batch_bytes=exact - 1)
    assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE


def test_what_does_not_compress_stays_within_the_limit() -> None:
    content = random.Random(1).randbytes(5000)
    exact = len(build_batch([Record(None, content)], timestamp_ms=NOW_MS))
    for codec in range(5):
        (batch,) = encode_records(table([(None, content, None, None)]), timestamp_ms=NOW_MS, max_batch_bytes=exact, codec=codec)
        assert len(batch.data) <= exact
        assert decoded([batch]) == [(None, content, (), NOW_MS)]


def test_compressed_batches_are_smaller() -> None:
    found = [(b"key", b"the same " * 20, None, None)] * 200
    plain = sum(len(it.data) for it in encode_records(table(found), timestamp_ms=NOW_MS, max_batch_bytes=2**20))
    for codec in range(1, 5):
        batches = encode_records(table(found), timestamp_ms=NOW_MS, max_batch_bytes=2**20, codec=codec)
        assert sum(len(it.data) for it in batches) < plain / 5
        assert decoded(batches) == wanted(found)


def test_sequences_wrap_as_in_kafka() -> None:
    found = [(None, b"%03d" % index * 30, None, None) for index in range(40)]
    batches = encode_records(table(found), timestamp_ms=NOW_MS, max_batch_bytes=1100, producer_id=1, base_sequence=2**31 - 15)
    sequence, seen = 2**31 - 15, []
    for batch in batches:
        header = parse_header(batch.data)
        assert header.base_sequence == sequence
        seen.append(sequence)
        sequence = header.last_sequence + 1 if header.last_sequence < 2**31 - 1 else 0
    assert max(seen) > 2**31 - 16 and min(seen) < 40
    none = encode_records(table(found), timestamp_ms=NOW_MS, max_batch_bytes=1100)
    assert {parse_header(batch.data).base_sequence for batch in none} == {-1}


@pytest.mark.parametrize(
    "kind", [pa.timestamp("us", tz="UTC"), pa.timestamp("ms"), pa.timestamp("s", tz="Europe/Rome"), pa.int64()]
)
def test_types_of_columns(kind: Any) -> None:
    scale = {"timestamp[us, tz=UTC]": 1000, "timestamp[s, tz=Europe/Rome]": 0.001}.get(str(kind), 1)
    stamps = pa.array([int(NOW_MS * scale), None], pa.int64()).cast(kind)
    text = pa.table({"value": ["ä", None], "key": pa.array(["k", ""], pa.large_string()), "timestamp": stamps, "else": [1, 2]})
    assert decoded(encode_records(text, timestamp_ms=5, max_batch_bytes=999)) == [
        (b"k", "ä".encode(), (), NOW_MS),
        (b"", None, (), 5),
    ]


def test_only_values() -> None:
    assert decoded(encode_records(pa.record_batch({"value": [b"v"]}), timestamp_ms=1, max_batch_bytes=99)) == [
        (None, b"v", (), 1)
    ]
    nothing = pa.record_batch({"value": pa.nulls(2), "key": pa.nulls(2), "timestamp": pa.nulls(2)})
    assert decoded(encode_records(nothing, timestamp_ms=1, max_batch_bytes=99)) == [(None, None, (), 1)] * 2
    assert encode_records(pa.record_batch({"value": pa.array([], pa.binary())}), timestamp_ms=1, max_batch_bytes=99) == []


def test_refusals() -> None:
    value = pa.array([b"v"])
    unnamed = pa.array([[{"key": None, "value": b"x"}]], HEADERS)
    for columns, code in (
        ({"value": value, "headers": unnamed}, ErrorCode.INVALID_RECORD),
        ({"value": value, "timestamp": pa.array([-1])}, ErrorCode.INVALID_TIMESTAMP),
    ):
        with pytest.raises(ApiError) as caught:
            encode_records(pa.table(columns), timestamp_ms=1, max_batch_bytes=999)
        assert caught.value.code == code
    for columns in (
        {"key": value},
        {"value": pa.array([1])},
        {"value": value, "timestamp": pa.array(["noon"])},
        {"value": value, "headers": pa.array([1])},
        {"value": value, "headers": pa.array([[1]])},
    ):
        with pytest.raises(ValueError, match="column"):
            encode_records(pa.table(columns), timestamp_ms=1, max_batch_bytes=999)
    for ends, message in (([b"a", b"b"], "2 values of header 'h' for 1 records"), ([None], "a value of header 'h' is null")):
        with pytest.raises(ValueError, match=message):
            encode_records(
                pa.table({"value": value}), timestamp_ms=1, max_batch_bytes=999, stamp=("h", "", pa.array(ends, pa.binary()))
            )


def test_null_lists_that_hide_headers() -> None:
    """Arrow allows a null list to span elements."""
    items = pa.array([{"key": "a", "value": b"1"}, {"key": "b", "value": b"2"}], HEADERS.value_type)
    hiding = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), items, type=HEADERS, mask=pa.array([True, False]))
    found = decoded(encode_records(pa.table({"value": [b"v", b"w"], "headers": hiding}), timestamp_ms=1, max_batch_bytes=999))
    assert found == [(None, b"v", (), 1), (None, b"w", (("b", b"2"),), 1)]


def test_the_header_is_as_large_as_it_says() -> None:
    (batch,) = encode_records(pa.table({"value": [b""]}), timestamp_ms=1, max_batch_bytes=99)
    assert len(batch.data) == HEADER_BYTES + 7
