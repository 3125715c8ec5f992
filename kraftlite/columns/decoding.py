"""The records of a run of batches, decoded together into Arrow columns.

Where a record starts depends on the one before it. That is found by a light loop in each batch, for many small batches by steps
that all of them take at once, or with the extra `fast` by compiled code. Every field is then decoded for all records at once;
keys and values are gathered by Arrow.

Source: LG-02; the scalar form is `kraftlite.log.batch.iter_records`.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from importlib.util import find_spec
from itertools import repeat
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kraftlite.columns import varints
from kraftlite.columns.varints import I64, U8, Malformed
from kraftlite.log.batch import TIMESTAMP_TYPE_BIT, read_varint
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.limits import MAX_INT32, MAX_INT64

ARROW_TYPES: Final[dict[str, Any]] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))),
}
"""Column to type. Spark compares them strictly."""

_MIN_RECORD_BYTES: Final = 7
_MAX_TIMESTAMP_MS: Final = MAX_INT64 // 1000
"""A timestamp that does not fit."""
_FEW: Final = 8
"""The headers of so few records are read one by one."""
_STEP_NS: Final = 16_000
_RECORD_NS: Final = 70
_BATCH_NS: Final = 600
"""The costs of a step of all batches, and of a record and a batch in the light loop. Only to choose between the two."""
_PROBE: Final = 32
"""So many records of one size are taken together at least."""
_MAX_PATIENCE: Final = 1024
"""Records that are walked over one by one before others of one size are looked for again."""
_SHORT: Final = [byte // 2 + 1 if byte < 0x80 else byte // 2 - 62 for byte in range(256)]
_LONG: Final = [byte << 6 for byte in range(128)]
"""Bytes of a record with its size, from the size's first and second byte: _SHORT[first], plus _LONG[second] if first >= 0x80."""


class CorruptBatch(Exception):
    """The records of a batch do not parse. `offset`: its base offset."""

    def __init__(self, offset: int, why: str) -> None:
        super().__init__(f"batch at offset {offset}: {why}")
        self.offset = offset
        self.why = why


class Run(NamedTuple):
    """Batches to decode together: their records, not compressed, start at `bases` of `data` and take `sizes` bytes.

    `headers`: those of the batches (`kraftlite.columns.scan.HEADERS`); each has a record at least.
    """

    data: bytes | memoryview
    headers: npt.NDArray[np.void]
    bases: I64
    sizes: I64


class _Fields(NamedTuple):
    """One element per record; positions in the run's data. A negative size is null."""

    offset_delta: I64
    timestamp_delta: I64
    key_at: I64
    key_size: I64
    value_at: I64
    value_size: I64
    headers: I64
    headers_at: I64
    ends: I64


def decode(
    run: Run, tp: tuple[str, int], start: int, end: int, columns: Sequence[str], max_rows: int, find: Finder
) -> Iterator[Any]:
    """RecordBatches of 1 to `max_rows` rows with start <= offset < end. CorruptBatch; ApiError(INVALID_TIMESTAMP).

    A run of more than one batch has at most `max_rows` records.
    """
    headers = run.headers
    counts = headers["count"].astype(np.int64)
    thin = counts * _MIN_RECORD_BYTES > run.sizes
    if thin.any():
        raise CorruptBatch(int(headers["base_offset"][np.argmax(thin)]), "it has more records than its bytes can hold")
    starts = find(run, counts)
    ends = np.empty_like(starts)
    ends[:-1] = starts[1:]
    ends[np.cumsum(counts) - 1] = run.bases + run.sizes
    data, buffer = np.frombuffer(run.data, np.uint8), pa.py_buffer(run.data)
    last = -1
    for low in range(0, starts.size, max_rows):
        high = min(starts.size, low + max_rows)
        part = _Part(data, buffer, headers, counts if headers.size > 1 else np.array([high - low]))
        part.decode(starts[low:high], ends[low:high], last)
        last = int(part.offsets[-1])
        part.keep(start, end)
        if part.offsets.size:
            yield part.columns(tp, columns, max_rows)


Finder = Callable[[Run, I64], I64]
"""Finds where each record of a run starts, given how many each batch has. CorruptBatch unless they end where the batches do."""


@lru_cache(maxsize=4)
def starts_finder(parser: str) -> Finder:
    """Return the finder that is called "numpy" or "numba", or for "auto" the better of those that are there. ValueError:
    unknown, or not installed."""
    if parser not in ("auto", "numpy", "numba"):
        raise ValueError(f"parser {parser!r}: it is auto, numpy or numba")
    if parser == "numpy" or (parser == "auto" and find_spec("numba") is None):
        return _starts
    try:
        from kraftlite.columns.compiled import starts
    except ImportError as error:
        raise ValueError(f"parser 'numba' needs kraftlite[fast]: {error}") from error

    def compiled(run: Run, counts: I64) -> I64:
        data = np.frombuffer(run.data, np.uint8)
        data.flags.writeable = False
        found = np.empty(int(counts.sum()), np.int64)
        bad = starts(data, run.bases, run.sizes, counts, found)
        if bad >= 0:
            raise CorruptBatch(int(run.headers["base_offset"][bad]), "its records do not end where it ends")
        return found

    return compiled


def _starts(run: Run, counts: I64) -> I64:
    steps = int(counts.max())
    if steps * _STEP_NS < int(counts.sum()) * _RECORD_NS + counts.size * _BATCH_NS:
        found = _starts_by_steps(np.frombuffer(run.data, np.uint8), run.bases, run.bases + run.sizes, counts)
        if found is not None:
            return found
    low, high = int(run.bases[0]), int(run.bases[-1] + run.sizes[-1])
    body = bytes(run.data[low:high])
    starts: list[int] = []
    offsets = run.headers["base_offset"].tolist()
    for base, size, count, offset in zip(run.bases.tolist(), run.sizes.tolist(), counts.tolist(), offsets, strict=True):
        behind = _walk(body, base - low, count, starts)
        if behind != base - low + size:
            raise CorruptBatch(offset, "its records do not end where it ends")
    return np.array(starts, np.int64) + low


def _starts_by_steps(data: U8, bases: I64, ends: I64, counts: I64) -> I64 | None:
    """One step is one record of every batch that has so many. None when they do not end where their batches do."""
    order = np.argsort(-counts, kind="stable")
    falling = counts[order]
    slots = (np.cumsum(counts) - counts)[order]
    found = np.empty(int(counts.sum()), np.int64)
    at = bases[order]
    active = np.searchsorted(-falling, -np.arange(int(falling[0])), "left").tolist()
    try:
        for step, batches in enumerate(active):
            found[slots[:batches] + step] = at[:batches]
            size, behind = varints.read(data, at[:batches])
            at[:batches] = behind + size
    except Malformed:
        return None
    return found if np.array_equal(at, ends[order]) else None


def _walk(body: bytes, position: int, count: int, found: list[int]) -> int:
    """Append where each record starts; the position behind the last, -1 when it is beyond the data.

    Sizes are only trusted here, and checked with all other fields. Records of one size that follow each other are taken together.
    """
    add, short, long = found.append, _SHORT, _LONG
    patience = _PROBE
    try:
        while count > 0:
            alike, size = _alike(body, position, count)
            if alike >= _PROBE:
                found.extend(range(position, position + alike * size, size))
                position += alike * size
                count -= alike
                patience = _PROBE
                continue
            for _ in repeat(None, min(patience, count)):
                add(position)
                first = body[position]
                if first < 0x80:
                    position += short[first]
                elif (second := body[position + 1]) < 0x80:
                    position += short[first] + long[second]
                else:
                    size, behind = read_varint(body, position)
                    position = behind + abs(size)
            count -= patience
            patience = min(2 * patience, _MAX_PATIENCE)
    except IndexError:
        return -1
    return position


def _alike(body: bytes, position: int, count: int) -> tuple[int, int]:
    """Count how many of the next `count` records have the size of the first one, as far as it pays to know; returns that size,
    too.

    If the bytes that hold a size are there again one record further, so is its size: the next record is found, and so on.
    """
    first = body[position]
    size, wide = _SHORT[first], first >= 0x80
    if wide:
        if (second := body[position + 1]) >= 0x80:
            return 0, 0
        size += _LONG[second]
    alike = 0
    for limit in (min(count, _PROBE), count):
        end = position + limit * size
        alike = _repeats(body[position:end:size])
        if wide:
            alike = min(alike, _repeats(body[position + 1 : end : size]))
        if alike < _PROBE:
            break
    return alike, size


def _repeats(values: bytes) -> int:
    """Count how often the first value comes before another one."""
    return len(values) - len(values.lstrip(values[:1]))


class _Part:
    """A part of a run with at most `max_rows` records: `decode`, then `keep`, then `columns`."""

    offsets: I64
    timestamps: I64

    def __init__(self, data: U8, buffer: Any, headers: npt.NDArray[np.void], counts: I64) -> None:
        self._data = data
        self._buffer = buffer
        self._headers = headers
        self._counts = counts
        self._kept: Any = slice(None)

    def decode(self, starts: I64, ends: I64, last: int) -> None:
        """All fields. `last`: the offset before the first of these records."""
        data = self._data
        try:
            size, at = varints.read(data, starts)
            bad = at + size != ends
            timestamp_delta, at = varints.read(data, at + 1)
            offset_delta, at = varints.read(data, at)
            key_size, key_at = varints.read(data, at)
            value_size, value_at = varints.read(data, key_at + np.maximum(key_size, 0))
            headers, headers_at = varints.read(data, value_at + np.maximum(value_size, 0))
        except Malformed as error:
            raise self._corrupt(np.array([True]), str(error)) from error
        bad |= (headers_at > ends) | (headers < 0) | ((headers == 0) & (headers_at != ends))
        bad |= (key_size > MAX_INT32) | (value_size > MAX_INT32)
        if bad.any():
            raise self._corrupt(bad, "the length of a record is not that of its fields")
        self._fields = _Fields(
            offset_delta, timestamp_delta, key_at, key_size, value_at, value_size, headers, headers_at, ends
        )  # fmt: skip
        self.offsets = self._per_record(self._headers["base_offset"]) + offset_delta
        bad[1:] = self.offsets[1:] <= self.offsets[:-1]
        bad[0] = int(self.offsets[0]) <= last
        bad |= (offset_delta < 0) | (offset_delta > self._per_record(self._headers["last_offset_delta"]))
        if bad.any():
            raise self._corrupt(bad, "a record's offset is out of order, or not the batch's")
        self.timestamps = self._timestamps(timestamp_delta)

    def keep(self, start: int, end: int) -> None:
        """Drop the records that are not asked for."""
        if int(self.offsets[0]) < start or int(self.offsets[-1]) >= end:
            self._kept = kept = (self.offsets >= start) & (self.offsets < end)
            self._fields = _Fields(*(values[kept] for values in self._fields))
            self.offsets, self.timestamps = self.offsets[kept], self.timestamps[kept]

    def columns(self, tp: tuple[str, int], columns: Sequence[str], max_rows: int) -> Any:
        """Return the records that were kept, as a RecordBatch."""
        schema = pa.schema([(name, ARROW_TYPES[name]) for name in columns])
        return pa.RecordBatch.from_arrays([self._column(name, tp, max_rows) for name in columns], schema=schema)

    def _column(self, name: str, tp: tuple[str, int], max_rows: int) -> Any:
        kind, rows, fields = ARROW_TYPES[name], self.offsets.size, self._fields
        match name:
            case "key":
                return _gather(self._buffer, fields.key_at, fields.key_size)
            case "value":
                return _gather(self._buffer, fields.value_at, fields.value_size)
            case "topic":
                return _repeated(tp[0], kind, max_rows).slice(0, rows)
            case "partition":
                return _repeated(tp[1], kind, max_rows).slice(0, rows)
            case "offset":
                return _numbers(self.offsets, kind)
            case "timestamp":
                return _numbers(self._microseconds(), kind)
            case "timestampType":
                appended = (self._headers["attributes"] & TIMESTAMP_TYPE_BIT != 0).astype(np.int32)
                return _numbers(self._per_record(appended)[self._kept], kind)
            case _:
                return self._header_lists()

    def _per_record(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return np.repeat(values, self._counts)

    def _corrupt(self, bad: npt.NDArray[np.bool_], why: str) -> CorruptBatch:
        """Return the error for the batch of the first of these records."""
        index = int(np.searchsorted(np.cumsum(self._counts), int(np.argmax(bad)), "right"))
        return CorruptBatch(int(self._headers["base_offset"][index]), why)

    def _timestamps(self, delta: I64) -> I64:
        """Return timestamps in ms, as a consumer sees them: the batch's when it is the time of the append. Sums wrap around, as
        Java's do: what a base far away and a difference make together may be a time of today."""
        found: I64 = self._per_record(self._headers["base_timestamp"]) + delta
        appended = self._headers["attributes"] & TIMESTAMP_TYPE_BIT != 0
        if appended.any():
            return np.where(self._per_record(appended), self._per_record(self._headers["max_timestamp"]), found)
        return found

    def _microseconds(self) -> I64:
        bad = (self.timestamps > _MAX_TIMESTAMP_MS) | (self.timestamps < -_MAX_TIMESTAMP_MS)
        if bad.any():
            raise ApiError(
                ErrorCode.INVALID_TIMESTAMP,
                f"the timestamp of offset {int(self.offsets[np.argmax(bad)])} is beyond the microseconds that 64 bits hold",
            )
        return self.timestamps * 1000

    def _header_lists(self) -> Any:
        fields, kind = self._fields, ARROW_TYPES["headers"]
        edges = np.zeros(fields.headers.size + 1, np.int64)
        np.cumsum(fields.headers, out=edges[1:])
        try:
            if np.any(fields.headers * 2 > fields.ends - fields.headers_at):
                raise Malformed("there are more of them than bytes")
            name_at, name_size, value_at, value_size = _header_spans(self._data, fields, edges)
        except Malformed as error:
            raise CorruptBatch(int(self.offsets[0]), f"headers of this or a later record do not parse: {error}") from error
        names = _texts(_gather(self._buffer, name_at, np.maximum(name_size, 0)))
        values = _gather(self._buffer, value_at, value_size)
        structs = pa.StructArray.from_arrays([names, values], fields=list(kind.value_type))
        valid = pa.py_buffer(np.packbits(fields.headers > 0, bitorder="little"))
        places = pa.py_buffer(edges.astype(np.int32))
        return pa.Array.from_buffers(kind, fields.headers.size, [valid, places], children=[structs])


def _header_spans(data: U8, fields: _Fields, edges: I64) -> tuple[I64, I64, I64, I64]:
    """(position, size) of the names and of the values of all headers, in order. One step is one header of every record."""
    name_at, name_size, value_at, value_size = (np.zeros(int(edges[-1]), np.int64) for _ in range(4))
    records = np.flatnonzero(fields.headers)
    at, step = fields.headers_at[records], 0
    while records.size > _FEW:
        slots = edges[records] + step
        name_size[slots], name_at[slots] = size, at = varints.read(data, at)
        value_size[slots], value_at[slots] = length, at = varints.read(data, at + np.maximum(size, 0))
        at = at + np.maximum(length, 0)
        step += 1
        ends, last = fields.ends[records], fields.headers[records] == step
        if ((size > MAX_INT32) | (length > MAX_INT32) | (at > ends) | (last & (at != ends))).any():
            raise Malformed("they are not as long as their record")
        records, at = records[~last], at[~last]
    for record, position in zip(records.tolist(), at.tolist(), strict=True):
        end = int(fields.ends[record])
        body = data[position:end].tobytes()
        inside = 0
        try:
            for slot in range(int(edges[record]) + step, int(edges[record + 1])):
                long, inside = read_varint(body, inside)
                name_size[slot], name_at[slot] = long, position + inside
                long, inside = read_varint(body, inside + max(long, 0))
                value_size[slot], value_at[slot] = long, position + inside
                inside += max(long, 0)
        except (IndexError, OverflowError):
            inside = -1
        if inside != len(body):
            raise Malformed("they are not as long as their record")
    return name_at, name_size, value_at, value_size


def _gather(buffer: Any, at: I64, size: I64) -> Any:
    """These bytes as an array of their own: a take from an array over the buffer of which every second element is a field."""
    rows = at.size
    if not rows:
        return pa.array([], pa.binary())
    low = int(at[0])
    edges = np.empty(2 * rows + 1, np.int32)
    np.subtract(at, low, out=edges[:-1:2], casting="same_kind")
    np.add(edges[:-1:2], np.maximum(size, 0), out=edges[1::2], casting="same_kind")
    edges[-1] = edges[-2]
    spans = pa.Array.from_buffers(pa.binary(), 2 * rows, [None, pa.py_buffer(edges), buffer.slice(low)])
    found = spans.take(_every_second(rows))
    if int(size.min()) >= 0:
        return found
    valid = pa.py_buffer(np.packbits(size >= 0, bitorder="little"))
    return pa.Array.from_buffers(pa.binary(), rows, [valid, *found.buffers()[1:]])


def _texts(names: Any) -> Any:
    """Decode as strings. Bytes that are not UTF-8 become U+FFFD, as in the strings of Spark's own Kafka source."""
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([name.decode("utf-8", LIKE_JAVA) for name in names.to_pylist()], pa.string())


def _replaced_as_by_java(error: UnicodeError) -> tuple[str, int]:
    """Find where Java's decoder goes on behind one U+FFFD. It differs from Python's only in taking a surrogate, which is three
    bytes that UTF-8 forbids, for one malformed character."""
    assert isinstance(error, UnicodeDecodeError)
    data, start = error.object, error.start
    if data[start] == 0xED and data[start + 1 : start + 2] >= b"\xa0" and data[start + 1] & 0xC0 == 0x80:
        third = data[start + 2 : start + 3]
        return "\ufffd", start + (3 if third and third[0] & 0xC0 == 0x80 else 2)
    return "\ufffd", error.end


LIKE_JAVA: Final = "kraftlite.replaced_as_by_java"
codecs.register_error(LIKE_JAVA, _replaced_as_by_java)


def _numbers(values: npt.NDArray[Any], kind: Any) -> Any:
    return pa.Array.from_buffers(kind, values.size, [None, pa.py_buffer(np.ascontiguousarray(values))])


@lru_cache(maxsize=16)
def _repeated(value: str | int, kind: Any, rows: int) -> Any:
    return pa.repeat(pa.scalar(value, kind), rows)


@lru_cache(maxsize=4)
def _even(rows: int) -> Any:
    return pa.array(np.arange(0, 2 * rows, 2, dtype=np.int32))


def _every_second(rows: int) -> Any:
    """The first `rows` even numbers."""
    return _even(1 << max(rows - 1, 1).bit_length()).slice(0, rows)
