"""Parsing into Arrow gives what `kraftlite.log.batch` reads record by record, or an error; never other rows."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kraftlite.columns.decoding import ARROW_TYPES, LIKE_JAVA
from kraftlite.columns.records import COLUMNS, Parsed, parse_records
from kraftlite.log import codecs
from kraftlite.log.batch import (
    HEADER_BYTES,
    Record,
    build_batch,
    crc_of,
    empty_batch,
    iter_batches,
    iter_records,
    parse_header,
    record_timestamp,
    retained_batch,
    stamp,
    stamp_append_time,
    write_varint,
)
from kraftlite.log.control import EndTxnMarker, control_batch
from kraftlite.model.errors import ApiError, ErrorCode

NOW_MS = 1_700_000_000_000
EVERYTHING = 2**62
FAST = settings(max_examples=60)


class TP(NamedTuple):
    topic: str
    partition: int


ORDERS = TP("orders", 3)


PARSERS = ("numpy", "numba") if find_spec("numba") else ("numpy",)


def parse(data: Any, *, start: int = 0, end: int = EVERYTHING, **options: Any) -> Parsed:
    """By every parser that is installed: all give the same."""
    found: list[Parsed] = []
    errors: list[ApiError] = []
    for parser in PARSERS:
        try:
            found.append(parse_records(data, tp=ORDERS, start=start, end=end, parser=parser, **options))
        except ApiError as error:
            errors.append(error)
    assert not (found and errors)
    if errors:
        assert len({error.code for error in errors}) == 1
        raise errors[0]
    assert all(other == found[0] for other in found)
    return found[0]


def rows(parsed: Parsed) -> list[dict[str, Any]]:
    for batch in parsed.batches:
        batch.validate(full=True)
        assert batch.num_rows > 0
    found = []
    for batch in parsed.batches:
        plain = batch.set_column(5, "timestamp", batch.column("timestamp").cast(pa.int64()))
        found += plain.to_pylist()
    return found


def expected(data: bytes | bytearray, start: int = 0, end: int = EVERYTHING) -> list[dict[str, Any]]:
    found = []
    for header, batch in iter_batches(data):
        for record in [] if header.is_control or header.count == 0 else iter_records(batch):
            if start <= (offset := header.base_offset + record.offset_delta) < end:
                headers = [(n.encode("utf-8", "surrogateescape").decode("utf-8", LIKE_JAVA), it) for n, it in record.headers]
                found.append(
                    {
                        "key": record.key,
                        "value": record.value,
                        "topic": "orders",
                        "partition": 3,
                        "offset": offset,
                        "timestamp": record_timestamp(header, record) * 1000,
                        "timestampType": int(header.is_log_append_time),
                        "headers": [{"key": name, "value": value} for name, value in headers] or None,
                    }
                )
    return found


def resealed(batch: bytes | bytearray) -> bytes:
    """With the CRC of its bytes."""
    fixed = bytearray(batch)
    fixed[17:21] = crc_of(fixed).to_bytes(4, "big")
    return bytes(fixed)


contents = st.none() | st.binary(max_size=90) | st.integers(60, 9000).map(lambda size: bytes([size % 251]) * size)
headers = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3).map(tuple)
deltas = st.integers(-100, 100) | st.integers(-(2**45), 2**45)
gaps = st.sampled_from([1, 1, 1, 1, 2, 70, 10_000])
records = st.builds(Record, contents, contents, st.just(()) | headers, deltas, gaps)


@st.composite
def logs(draw: st.DrawFn, allowed: tuple[int, ...] = (0, 1, 2, 3, 4)) -> bytes:
    """Batches in order: compacted, empty, control, with the time of the append, without time."""
    data, offset = bytearray(), draw(st.integers(0, 5) | st.just(2**40))
    for _ in range(draw(st.integers(0, 6))):
        found: list[Record] = []
        at = draw(st.integers(0, 2))
        for record in draw(st.lists(records, max_size=9)):
            found.append(record._replace(offset_delta=at))
            at += record.offset_delta
        kind = draw(st.sampled_from(["plain", "plain", "plain", "appended", "timeless", "empty", "control", "marker"]))
        if kind == "marker":
            batch = bytearray(control_batch([EndTxnMarker(commit=True, coordinator_epoch=1)], timestamp_ms=NOW_MS))
        else:
            batch = bytearray(
                build_batch(
                    found,
                    timestamp_ms=-1 if kind == "timeless" else NOW_MS,
                    codec=draw(st.sampled_from(allowed)),
                    keep_offset_deltas=True,
                    last_offset_delta=at + draw(st.integers(0, 2)),
                    control=kind == "control",
                )
            )
        if kind == "appended":
            stamp_append_time(batch, parse_header(batch).attributes, NOW_MS + 5)
        if kind == "empty":
            batch = bytearray(empty_batch(parse_header(batch)))
        stamp(batch, offset, draw(st.integers(-1, 9)))
        offset = parse_header(batch).next_offset + draw(st.sampled_from([0, 0, 1, 1000]))
        data += batch
    return bytes(data)


@FAST
@given(logs(), st.integers(1, 12))
def test_rows_are_those_of_the_scalar_reader(data: bytes, max_rows: int) -> None:
    parsed = parse(data, max_rows=max_rows)
    assert rows(parsed) == expected(data)
    assert all(batch.num_rows <= max_rows for batch in parsed.batches)
    assert parsed.consumed_bytes == len(data)
    assert parsed.next_offset == max([header.next_offset for header, _ in iter_batches(data)], default=0)


@FAST
@given(logs(), st.data())
def test_the_range_cuts_inside_batches(data: bytes, choice: st.DataObject) -> None:
    bases = [header.base_offset for header, _ in iter_batches(data)] or [0]
    start = choice.draw(st.integers(bases[0], bases[-1] + 80))
    end = choice.draw(st.integers(start, bases[-1] + 160))
    parsed = parse(data, start=start, end=end)
    assert rows(parsed) == expected(data, start, end)
    reached = max([header.next_offset for header, _ in iter_batches(data)], default=0)
    beyond = any(header.base_offset >= end for header, _ in iter_batches(data))
    assert parsed.next_offset == (end if beyond else max(start, min(end, reached)))


@FAST
@given(logs(), st.data())
def test_going_on_from_next_offset_reads_everything_once(data: bytes, choice: st.DataObject) -> None:
    found, offset, position = [], 0, 0
    while position < len(data):
        whole = position + next(iter_batches(memoryview(data)[position:]))[0].size_bytes
        upto = choice.draw(st.integers(whole, len(data)))
        parsed = parse(memoryview(data)[position:upto], start=offset)
        found += rows(parsed)
        position, offset = position + parsed.consumed_bytes, parsed.next_offset
    assert found == expected(data)


@FAST
@given(logs(), st.integers(1, 200))
def test_a_torn_tail_is_left_out(data: bytes, missing: int) -> None:
    torn = data[:-missing]
    parsed = parse(torn)
    assert rows(parsed) == expected(torn)
    assert parsed.consumed_bytes == sum(header.size_bytes for header, _ in iter_batches(torn))


@FAST
@given(logs(), st.data())
def test_a_flipped_byte_never_gives_other_rows(data: bytes, choice: st.DataObject) -> None:
    """Base offset and leader epoch are not covered by the CRC; a length may make its batch a partial one."""
    spans, position = [], 0
    for header, _ in iter_batches(data):
        spans += [range(position + 8, position + 12), range(position + 16, position + header.size_bytes)]
        position += header.size_bytes
    if not spans:
        return
    span = choice.draw(st.sampled_from(spans))
    at = choice.draw(st.sampled_from(span))
    flipped = bytearray(data)
    flipped[at] ^= choice.draw(st.integers(1, 255))
    try:
        parsed = parse(flipped)
    except ApiError as error:
        assert error.code == ErrorCode.CORRUPT_MESSAGE
        assert "offset" in str(error)
    else:
        assert len(span) == 4, "only a length can look like a partial batch"
        assert rows(parsed) == [row for row in expected(data) if row["offset"] < parsed.next_offset]


@settings(FAST, max_examples=200)
@given(logs(allowed=(0,)), st.data())
def test_garbage_behind_a_good_crc_is_an_error_or_read_the_same(data: bytes, choice: st.DataObject) -> None:
    spans, position = [], 0
    for header, _ in iter_batches(data):
        spans.append(range(position + 21, position + header.size_bytes))
        position += header.size_bytes
    if not spans:
        return
    flipped = bytearray(data)
    for _ in range(choice.draw(st.integers(1, 3))):
        flipped[choice.draw(st.sampled_from(choice.draw(st.sampled_from(spans))))] = choice.draw(st.integers(0, 255))
    try:
        found = rows(parse(flipped, check_crc=False))
    except ApiError as error:
        assert error.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_TIMESTAMP) and "offset" in str(error)
    else:
        assert found == expected(flipped)


@FAST
@given(st.lists(st.lists(records, min_size=1, max_size=3), min_size=1, max_size=3), st.integers(40, 120), st.booleans())
def test_many_small_batches(shapes: list[list[Record]], count: int, compressed: bool) -> None:
    shapes_as_bytes = [build_batch(shape, timestamp_ms=NOW_MS, codec=codecs.LZ4 * compressed) for shape in shapes]
    data, offset = bytearray(), 0
    for index in range(count):
        batch = bytearray(shapes_as_bytes[index % len(shapes)])
        stamp(batch, offset, 1)
        offset = parse_header(batch).next_offset
        data += batch
    assert rows(parse(data)) == expected(data)
    middle = offset // 2
    assert rows(parse(data, start=middle, end=middle + 7, max_rows=50)) == expected(data, middle, middle + 7)


@pytest.mark.parametrize("size", [0, 1, 11, 12, 13, 55, 63, 64, 127, 128, 8190, 8192, 2**20 - 1, 2**20, 2**21 + 3])
@pytest.mark.parametrize("codec", [codecs.NONE, codecs.SNAPPY])
def test_lengths_of_one_to_four_bytes(size: int, codec: int) -> None:
    content = random.Random(size).randbytes(size)
    data = build_batch([Record(content, None), Record(None, content), Record(content, content)], timestamp_ms=NOW_MS, codec=codec)
    assert rows(parse(data)) == expected(data)


@pytest.mark.parametrize("max_rows", [1, 7, 99, 100, 10_000])
def test_a_batch_with_more_records_than_rows_is_cut(max_rows: int) -> None:
    data = build_batch([Record(b"%d" % index, None) for index in range(700)], timestamp_ms=NOW_MS, base_offset=50)
    data += build_batch([Record(b"x", b"y")], timestamp_ms=NOW_MS, base_offset=750)
    parsed = parse(data, max_rows=max_rows)
    assert rows(parsed) == expected(data)
    assert max(batch.num_rows for batch in parsed.batches) == min(max_rows, 701)


def test_many_and_few_headers_of_many_and_few_records() -> None:
    rng = random.Random(7)
    few = [Record(None, b"v", tuple((f"n{it}", rng.randbytes(it % 5) or None) for it in range(count))) for count in (0, 300, 1)]
    many = [Record(b"k", None, tuple(("ä" * (it % 3), b"x" * it) for it in range(rng.randrange(6)))) for _ in range(400)]
    data = build_batch(few, timestamp_ms=NOW_MS) + build_batch(many, timestamp_ms=NOW_MS, base_offset=3)
    assert rows(parse(data)) == expected(data)
    assert rows(parse(data, start=1, end=2)) == expected(data, 1, 2)


def raw(*records: bytes, count: int | None = None, last_offset_delta: int | None = None) -> bytes:
    """A batch of these bytes, each with its length in front."""
    body = bytearray()
    for record in records:
        write_varint(body, len(record))
        body += record
    number = len(records) if count is None else count
    batch = bytearray(build_batch([], timestamp_ms=NOW_MS, base_offset=77))
    batch[8:12] = (HEADER_BYTES - 12 + len(body)).to_bytes(4, "big")
    batch[57:61] = number.to_bytes(4, "big")
    batch[23:27] = (len(records) - 1 if last_offset_delta is None else last_offset_delta).to_bytes(4, "big")
    return resealed(batch + body)


GOOD = bytes([0, 0, 0, 1, 1, 0])
MALFORMED = {
    "more records than bytes": raw(GOOD, count=2, last_offset_delta=1),
    "absurd count": raw(GOOD, count=2**31 - 1, last_offset_delta=1),
    "fewer records than bytes": raw(GOOD, GOOD, count=1),
    "a field behind its record": raw(bytes([0, 0, 0, 1, 20, 0])),
    "a byte too many": raw(bytes([0, 0, 0, 1, 1, 0, 9])),
    "a key of 2^62 bytes": raw(bytes([0, 0, 0, 254, *[255] * 7, 126, 1, 0])),
    "two lengths that sum up to 0": raw(bytes([0, 0, 0, *[254], *[255] * 8, 1, *[254], *[255] * 8, 1, 0])),
    "a varint of eleven bytes": raw(bytes([0, *[128] * 10, 0, 0, 1, 1, 0])),
    "a varint of 65 bits": raw(bytes([0, *[128] * 9, 2, 0, 1, 1, 0])),
    "the same offset twice": raw(GOOD, GOOD),
    "an offset behind the batch": raw(bytes([0, 0, 8, 1, 1, 0])),
    "a negative offset": raw(bytes([0, 0, 1, 1, 1, 0])),
    "negative number of headers": raw(bytes([0, 0, 0, 1, 1, 1])),
    "headers that are missing": raw(bytes([0, 0, 0, 1, 1, 2])),
    "a header that is too long": raw(bytes([0, 0, 0, 1, 1, 2, 2, 65, 8])),
    "bytes behind the headers": raw(bytes([0, 0, 0, 1, 1, 2, 2, 65, 1, 0])),
    "an unknown codec": resealed(raw(GOOD)[:22] + bytes([7]) + raw(GOOD)[23:]),
    "what does not unpack": resealed(raw(GOOD)[:22] + bytes([4]) + raw(GOOD)[23:]),
}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("61ff62", "a\ufffdb"),
        ("c3a4c3", "ä\ufffd"),
        ("e0a0", "\ufffd"),
        ("e08080", "\ufffd\ufffd\ufffd"),
        ("f09f98", "\ufffd"),
        ("f4908080", "\ufffd\ufffd\ufffd\ufffd"),
        ("eda080", "\ufffd"),
        ("eda0bdedb880", "\ufffd\ufffd"),
        ("eda041", "\ufffdA"),
        ("edbf", "\ufffd"),
        ("ed9f80", "\ud7c0"),
        ("ed", "\ufffd"),
    ],
)
@pytest.mark.parametrize("copies", [1, 40])
def test_names_of_headers_that_are_not_utf_8_are_what_java_makes_of_them(name: str, text: str, copies: int) -> None:
    """The texts are those of `new String(bytes, UTF_8)` of Java 17 and 25, which is how Kafka's client reads a name."""
    data = b"".join(
        build_batch(
            [Record(None, None, (("good", b"1"), (bytes.fromhex(name).decode("utf-8", "surrogateescape"), b"2"), ("", None)))],
            timestamp_ms=NOW_MS,
            base_offset=offset,
        )
        for offset in range(copies)
    )
    found = [row["headers"] for row in rows(parse(data))]
    assert found == [[{"key": "good", "value": b"1"}, {"key": text, "value": b"2"}, {"key": "", "value": None}]] * copies


def test_the_malformed_would_be_good_otherwise() -> None:
    assert rows(parse(raw(GOOD))) == expected(raw(GOOD))


@pytest.mark.parametrize("what", MALFORMED)
@pytest.mark.parametrize("copies", [1, 40])
def test_malformed_records(what: str, copies: int) -> None:
    """Alone, and behind so many small batches that all are decoded in steps."""
    good = bytearray()
    for index in range(copies - 1):
        good += build_batch([Record(b"k", b"v", (("h", b"x"),))] * 1, timestamp_ms=NOW_MS, base_offset=index)
    with pytest.raises(ApiError) as caught:
        parse(bytes(good) + MALFORMED[what])
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE
    assert "offset" in str(caught.value)
    if "header" not in what and "varint" not in what:
        assert "offset 77" in str(caught.value)


def test_what_is_no_batch_is_named_by_the_offset_before_it() -> None:
    good = build_batch([Record(b"k", b"v")], timestamp_ms=NOW_MS, base_offset=41)
    for garbage in (b"\0" * 70, good[:8] + b"\0\0\0\x10" + good[12:], good[:16] + b"\1" + good[17:]):
        with pytest.raises(ApiError, match=r"CORRUPT_MESSAGE.*offset 42"):
            parse(good + garbage)
    with pytest.raises(ApiError, match=r"CORRUPT_MESSAGE.*offset 41: an offset >= 42"):
        parse(good + good)


def test_a_bad_crc_is_named_and_can_be_passed_over() -> None:
    bad = bytearray(build_batch([Record(b"key", b"value")], timestamp_ms=NOW_MS, base_offset=41))
    bad[-2] ^= 1
    with pytest.raises(ApiError, match=r"CORRUPT_MESSAGE.*offset 41.*CRC"):
        parse(bad)
    assert rows(parse(bad, check_crc=False)) == expected(bad)


def test_compaction_leaves_gaps_and_empty_batches() -> None:
    whole = [Record(b"%d" % index, b"v", timestamp_delta=index - 3, offset_delta=index) for index in range(9)]
    first = build_batch(whole, timestamp_ms=NOW_MS, base_offset=10)
    kept = retained_batch(parse_header(first), whole[2:8:3], delete_horizon_ms=NOW_MS + 10_000)
    gone = empty_batch(parse_header(build_batch(whole, timestamp_ms=NOW_MS, base_offset=19)))
    data = kept + gone
    parsed = parse(data, start=10, end=100)
    assert [row["offset"] for row in rows(parsed)] == [12, 15]
    assert rows(parsed) == expected(data)
    assert parsed.next_offset == 28
    assert parse(gone, start=19, end=25) == Parsed(batches=[], next_offset=25, consumed_bytes=len(gone))


def test_nothing_before_the_end_means_the_end_is_reached() -> None:
    later = build_batch([Record(b"k", b"v")], timestamp_ms=NOW_MS, base_offset=500)
    assert parse(later, start=100, end=300) == Parsed(batches=[], next_offset=300, consumed_bytes=0)
    assert parse(later[:-1], start=100, end=300) == Parsed(batches=[], next_offset=100, consumed_bytes=0)
    assert parse(b"", start=100, end=300) == Parsed(batches=[], next_offset=100, consumed_bytes=0)


def transaction(offset: int, producer_id: int, names: Sequence[str]) -> bytes:
    records = [Record(None, name.encode()) for name in names]
    return build_batch(
        records, timestamp_ms=NOW_MS, base_offset=offset, transactional=True, producer_id=producer_id, producer_epoch=0
    )


def marker(offset: int, producer_id: int, commit: bool) -> bytes:
    return control_batch(
        [EndTxnMarker(commit=commit, coordinator_epoch=0)],
        timestamp_ms=NOW_MS,
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0,
    )


def committed(data: bytes, aborted: Iterable[tuple[int, int]], **options: Any) -> list[str]:
    return [row["value"].decode() for row in rows(parse(data, aborted=aborted, read_committed=True, **options))]


TRANSACTIONS = (
    transaction(0, 7, "ab")
    + transaction(2, 8, "cd")
    + build_batch([Record(None, b"e")], timestamp_ms=NOW_MS, base_offset=4)
    + marker(5, 7, commit=False)
    + transaction(6, 7, "f")
    + transaction(7, 8, "g")
    + marker(8, 8, commit=True)
    + transaction(9, 8, "h")
    + marker(10, 7, commit=True)
    + marker(11, 8, commit=False)
    + transaction(12, 8, "i")
)
ABORTED = ((8, 9), (7, 0))


def test_records_of_aborted_transactions_are_dropped() -> None:
    assert committed(TRANSACTIONS, ABORTED) == list("cdefgi")
    assert committed(TRANSACTIONS, ABORTED, start=3, end=10) == list("defg")
    assert committed(TRANSACTIONS, ()) == list("abcdefghi")
    assert [row["value"] for row in rows(parse(TRANSACTIONS, aborted=ABORTED))] == [b"%c" % it for it in b"abcdefghi"]
    parsed = parse(TRANSACTIONS, aborted=ABORTED, read_committed=True)
    assert (parsed.next_offset, parsed.consumed_bytes) == (13, len(TRANSACTIONS))


def test_an_abort_that_began_before_the_data_ends_at_its_marker() -> None:
    middle = len(transaction(0, 7, "ab"))
    assert committed(TRANSACTIONS[middle:], [(7, -5), (8, 9)], start=2) == list("cdefgi")
    only = transaction(20, 7, "x") + transaction(21, 7, "y")
    assert committed(only, [(7, 3)], start=20) == []
    assert parse(only, aborted=[(7, 3)], read_committed=True, start=20).next_offset == 22


def test_a_producer_without_transactions_is_not_dropped_with_its_aborted_ones() -> None:
    idempotent = build_batch([Record(None, b"x")], timestamp_ms=NOW_MS, base_offset=1, producer_id=7, producer_epoch=0)
    assert committed(transaction(0, 7, "a") + idempotent, [(7, 0)]) == ["x"]


def test_types_are_those_that_spark_compares_with() -> None:
    data = build_batch([Record(b"k", b"v", (("h", b"x"),)), Record(None, None)], timestamp_ms=NOW_MS)
    (batch,) = parse(data).batches
    assert str(batch.schema.field("headers").type) == "list<element: struct<key: string, value: binary>>"
    wanted = [("key", pa.binary()), ("value", pa.binary()), ("topic", pa.string()), ("partition", pa.int32())]
    wanted += [("offset", pa.int64()), ("timestamp", pa.timestamp("us", tz="UTC")), ("timestampType", pa.int32())]
    assert batch.schema.equals(pa.schema([*wanted, ("headers", ARROW_TYPES["headers"])]), check_metadata=True)
    assert all(field.nullable for field in batch.schema)


def test_columns_in_the_order_they_are_asked_for() -> None:
    data = build_batch([Record(b"k", b"v"), Record(b"l", None)], timestamp_ms=NOW_MS, base_offset=5)
    (batch,) = parse(data, columns=("offset", "key")).batches
    assert batch.to_pydict() == {"offset": [5, 6], "key": [b"k", b"l"]}
    for columns in ((), ("offset", "nothing")):
        with pytest.raises(ValueError, match="columns"):
            parse(data, columns=columns)
    for name in COLUMNS:
        (batch,) = parse(data, columns=(name,)).batches
        assert batch.column(0).to_pylist() == parse(data).batches[0].column(name).to_pylist()


def test_nothing_refers_to_the_data() -> None:
    data = bytearray(build_batch([Record(b"key" * 9, b"value" * 9, (("name" * 9, b"x" * 40),))] * 20, timestamp_ms=NOW_MS))
    found, wanted = parse(memoryview(data)), expected(data)
    data[:] = b"\xff" * len(data)
    assert rows(found) == wanted


@example(2**63 - 1, 0)
@example(2**62, 2**62)
@example(2**53, 2**53)
@example(0, -(2**63))
@example(-5, -(2**63))
@example(-(2**63), 2**62)
@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
def test_a_timestamp_that_spark_cannot_hold_is_an_error(base: int, delta: int) -> None:
    """Unless it is not asked for. A base far away is none: batches with a delete horizon in a far future have one."""
    batch = bytearray(build_batch([Record(b"k", b"v", timestamp_delta=delta)], timestamp_ms=0))
    batch[27:35] = base.to_bytes(8, "big", signed=True)
    data = resealed(batch)
    assert parse(data, columns=("key",)).batches[0].to_pylist() == [{"key": b"k"}]
    if abs((base + delta + 2**63) % 2**64 - 2**63) > (2**63 - 1) // 1000:  # as Java adds
        with pytest.raises(ApiError, match=r"INVALID_TIMESTAMP.*offset 0"):
            parse(data)
    else:
        assert rows(parse(data)) == expected(data)


def test_parsers() -> None:
    data = build_batch([Record(b"k", b"v")], timestamp_ms=NOW_MS)
    assert parse_records(data, tp=ORDERS, start=0, end=9) == parse(data, end=9)
    for parser in ("fast", *([] if "numba" in PARSERS else ["numba"])):
        with pytest.raises(ValueError, match=f"parser '{parser}'"):
            parse_records(data, tp=ORDERS, start=0, end=9, parser=parser)


def sized(rng: random.Random, count: int) -> bytes:
    """A batch in which records of one size come in runs, long and short; sizes take one, two and three bytes."""
    records: list[Record] = []
    while len(records) < count:
        size = rng.choice((0, 3, 50, 57, 58, 63, 64, 84, 300, 8_180, 8_190, 9_000))
        again = 1 if size > 8_000 else rng.choice((1, 2, 31, 32, 33, 64, 65, 200))
        records += [Record(None, rng.randbytes(size), (), rng.choice((0, 0, 1, 100)) if again < 5 else 7) for _ in range(again)]
    return build_batch(records[:count], timestamp_ms=NOW_MS)


@pytest.mark.parametrize("count", [1, 31, 32, 33, 63, 64, 65, 66, 500, 2_500])
def test_records_of_one_size_that_follow_each_other(count: int) -> None:
    rng = random.Random(count)
    for _ in range(5):
        data = sized(rng, count)
        assert rows(parse(data, max_rows=10_000)) == expected(data)
    same = build_batch([Record(b"key", b"v" * 84)] * count, timestamp_ms=NOW_MS)
    assert rows(parse(same)) == expected(same)


@pytest.mark.parametrize("change", [-2, 2, 40])
@pytest.mark.parametrize("where", [0, 31, 32, 40, 99])
def test_one_of_many_records_of_one_size_has_another_one(where: int, change: int) -> None:
    """The size of one is wrong: whatever its neighbours say, it is found."""
    data = bytearray(build_batch([Record(None, b"v" * 20, (), 1)] * 100, timestamp_ms=NOW_MS))
    size = len(data[HEADER_BYTES:]) // 100
    at = HEADER_BYTES + where * size
    data[at + max(0, where - 64)] += change  # from the 64th on, offsets take two bytes
    data[17:21] = crc_of(data).to_bytes(4, "big")
    with pytest.raises(ApiError) as error:
        parse(data)
    assert error.value.code == ErrorCode.CORRUPT_MESSAGE
