"""Arrow columns to record batches, without one Python object per record.

What stands between keys, values and headers is written for all records at once; Arrow joins it with them into the bytes of many
batches, which are then cut apart.

Source: LG-02; the scalar form is `kraftlite.log.batch.build_batch`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from crc32c import crc32c

from kraftlite.columns import varints
from kraftlite.columns.varints import I64, U64
from kraftlite.log import codecs
from kraftlite.log.batch import HEADER, HEADER_BYTES, LOG_OVERHEAD, MAGIC, MAX_SEQUENCE, NO_SEQUENCE, TRANSACTIONAL_BIT
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.limits import MIB

JOINED_BYTES: Final = 4 * MIB
"""About so many bytes of batches are made at once."""
MAX_RECORDS: Final = 1 << 19
"""The most records in one batch: the varints of their offset deltas take three bytes at most."""
_DELTA_BYTES: Final = 3
_CRC: Final = struct.Struct(">I")
_CRC_POSITION: Final = 17
_CRC_COVERS: Final = 21


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """One record batch as a produce request carries it, and how many records it has."""

    data: bytes
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Producer:
    producer_id: int
    producer_epoch: int
    base_sequence: int
    codec: int
    level: int | None
    transactional: bool
    max_batch_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """Columns of all records. Sizes: bytes of the contents, -1 for null. `headers`: encoded, behind their count: arrays,
    and scalars, which are the same in each record."""

    key: Any
    key_size: I64
    value: Any
    value_size: I64
    headers: Sequence[Any]
    headers_size: I64
    timestamps: I64

    def slice(self, low: int, high: int) -> _Rows:
        return _Rows(
            key=self.key.slice(low, high - low),
            key_size=self.key_size[low:high],
            value=self.value.slice(low, high - low),
            value_size=self.value_size[low:high],
            headers=[it if isinstance(it, pa.Scalar) else it.slice(low, high - low) for it in self.headers],
            headers_size=self.headers_size[low:high],
            timestamps=self.timestamps[low:high],
        )


def encode_records(
    table: Any,
    *,
    timestamp_ms: int,
    max_batch_bytes: int,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
    codec: int = codecs.NONE,
    level: int | None = None,
    transactional: bool = False,
    stamp: tuple[str, str, Any] | None = None,
) -> list[EncodedBatch]:
    """The rows of a pa.Table or pa.RecordBatch, in order, in as few batches as `max_batch_bytes` (before compression) allows.

    Columns: `value`, and optionally `key` (both binary or string), `headers` (list<struct<key: string, value: binary>>, null:
    none) and `timestamp` (int64 ms, or a timestamp); where that is null or absent, `timestamp_ms` counts. Others are ignored.
    `stamp`: a header that every record gets behind its own: its name, the beginning of its values, and an array of their ends.
    `base_sequence`: of the first record; -1 for none. Sequences go on at 0 behind 2^31-1. Offsets are the broker's to assign.
    ApiError: MESSAGE_TOO_LARGE for a record that is too large alone, naming size and limit; INVALID_RECORD for a header without a
    name; INVALID_TIMESTAMP for a negative one. ValueError: a column is missing or of another type, or `stamp` of
    another length or with a null.
    """
    rows = _rows(table, timestamp_ms, stamp)
    if not table.num_rows:
        return []
    settings = _Producer(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        codec=codec,
        level=level,
        transactional=transactional,
        max_batch_bytes=max_batch_bytes,
    )
    batches: list[EncodedBatch] = []
    for low, high, edges in _groups(rows, max_batch_bytes):
        batches += _encode(rows.slice(low, high), low, edges - low, settings)
    return batches


def _rows(table: Any, timestamp_ms: int, stamp: tuple[str, str, Any] | None) -> _Rows:
    names = table.schema.names
    if "value" not in names:
        raise ValueError(f"there is no column 'value' in {names}")
    count = table.num_rows
    value = _binary(table.column("value"), "value")
    key = _binary(table.column("key"), "key") if "key" in names else pa.nulls(count, pa.binary())
    lists = _array(table.column("headers")) if "headers" in names else pa.nulls(count, pa.list_(pa.null()))
    headers, headers_size = _headers(lists, stamp)
    return _Rows(
        key=key,
        key_size=_lengths(key),
        value=value,
        value_size=_lengths(value),
        headers=headers,
        headers_size=headers_size,
        timestamps=_timestamps(table, timestamp_ms),
    )


def _array(column: Any) -> Any:
    if isinstance(column, pa.ChunkedArray):
        return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    return column


def _binary(column: Any, name: str) -> Any:
    kind = column.type
    if pa.types.is_null(kind) or kind in (pa.binary(), pa.string(), pa.large_binary(), pa.large_string()):
        return _array(column).cast(pa.binary())
    raise ValueError(f"column {name!r} is of type {kind}, not binary or string")


def _lengths(array: Any) -> I64:
    """Return the length of each element; -1 for null."""
    found: I64 = pc.binary_length(array).fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def _timestamps(table: Any, timestamp_ms: int) -> I64:
    if "timestamp" not in table.schema.names:
        found: I64 = np.full(table.num_rows, timestamp_ms, np.int64)
    else:
        column = _array(table.column("timestamp"))
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("ms", tz=column.type.tz), safe=False).cast(pa.int64())
        elif column.type != pa.int64() and not pa.types.is_null(column.type):
            raise ValueError(f"column 'timestamp' is of type {column.type}, not int64 (ms) or a timestamp")
        found = column.cast(pa.int64()).fill_null(timestamp_ms).to_numpy(zero_copy_only=False)
    if found.size and int(found.min()) < 0:
        raise ApiError(ErrorCode.INVALID_TIMESTAMP, f"timestamp {int(found.min())} ms of a record is negative")
    return found


def _headers(lists: Any, stamp: tuple[str, str, Any] | None) -> tuple[list[Any], I64]:
    """Encode the headers of every record: how many it has, and the headers. The second is the bytes that they take."""
    counts = _list_lengths(lists)
    many = bool(counts.any())
    stamps = [] if stamp is None else _stamps(*stamp, counts.size)
    counts = counts + (stamp is not None)
    parts = [_varints(counts) if many else pa.scalar(bytes([int(stamp is not None) << 1]), pa.binary())]
    if many:
        items = lists.flatten()
        if not pa.types.is_struct(items.type) or items.type.num_fields != 2:
            raise ValueError(f"column 'headers' is of type {lists.type}, not list<struct<key: string, value: binary>>")
        name_of, value_of = (_binary(item, "headers") for item in items.flatten())
        if name_of.null_count:
            raise ApiError(ErrorCode.INVALID_RECORD, "a header has no name")
        encoded = _join(_varints(_lengths(name_of)), name_of, _varints(_lengths(value_of)), value_of)
        edges = np.zeros(counts.size + 1, np.int64)
        np.cumsum(counts - (stamp is not None), out=edges[1:])
        places = _offsets(encoded)[edges].astype(np.int32)
        parts.append(pa.Array.from_buffers(pa.binary(), counts.size, [None, pa.py_buffer(places), encoded.buffers()[2]]))
    parts += stamps
    sizes = np.zeros(counts.size, np.int64)
    for part in parts:
        sizes += len(part.as_py()) if isinstance(part, pa.Scalar) else _lengths(part)
    return parts, sizes


def _stamps(name: str, beginning: str, ends: Any, count: int) -> list[Any]:
    """Encode one header of every record: its name, and its value that begins in all of them alike."""
    ends = _binary(ends, "stamp")
    if len(ends) != count:
        raise ValueError(f"{len(ends)} values of header {name!r} for {count} records")
    if ends.null_count:
        raise ValueError(f"a value of header {name!r} is null")
    raw, before = name.encode(), beginning.encode()
    head = _varints(np.array([len(raw)]))[0].as_py() + raw
    return [pa.scalar(head, pa.binary()), _varints(_lengths(ends) + len(before)), pa.scalar(before, pa.binary()), ends]


def _list_lengths(lists: Any) -> I64:
    if not pa.types.is_list(lists.type) and not pa.types.is_large_list(lists.type):
        raise ValueError(f"column 'headers' is of type {lists.type}, not a list")
    found: I64 = pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def _varints(values: I64) -> Any:
    return varints.write([varints.zigzag(values)], values.size)


def _join(*parts: Any) -> Any:
    return pc.binary_join_element_wise(*parts, b"", null_handling="replace", null_replacement=b"")


def _offsets(array: Any) -> npt.NDArray[np.int32]:
    """Return where each element of a binary array starts in its data, and where the last one ends."""
    return np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]


def _groups(rows: _Rows, max_batch_bytes: int) -> Iterator[tuple[int, int, I64]]:
    """(first row, row behind the last, edges of the batches in between: first and behind-last row of each)."""
    count = rows.key_size.size
    spread = varints.size(int(rows.timestamps.max() - rows.timestamps.min()))
    sizes = _body_sizes(rows, spread + _DELTA_BYTES)
    sizes += varints.sizes(varints.zigzag(sizes))
    upto = np.cumsum(sizes)
    budget = max_batch_bytes - HEADER_BYTES
    low, edges = 0, [0]
    while edges[-1] < count:
        first = edges[-1]
        used = int(upto[first - 1]) if first else 0
        behind = min(int(np.searchsorted(upto, used + budget, "right")), first + MAX_RECORDS)
        if behind == first:
            alone = int(_body_sizes(rows.slice(first, first + 1), 2)[0])
            alone += varints.size(alone) + HEADER_BYTES
            if alone > max_batch_bytes:
                raise ApiError(
                    ErrorCode.MESSAGE_TOO_LARGE,
                    f"a record takes {alone} bytes as a batch of its own, and {max_batch_bytes} is the limit",
                )
            behind = first + 1
        edges.append(behind)
        if int(upto[behind - 1]) - (int(upto[low - 1]) if low else 0) >= JOINED_BYTES or behind == count:
            yield low, behind, np.array(edges)
            low, edges = behind, [behind]


def _body_sizes(rows: _Rows, delta_bytes: int) -> I64:
    """Compute the size of every record, without the varint of its size. `delta_bytes`: what its timestamp and offset deltas
    take."""
    found = varints.sizes(varints.zigzag(rows.key_size)) + varints.sizes(varints.zigzag(rows.value_size)) + rows.headers_size
    found += np.maximum(rows.key_size, 0) + np.maximum(rows.value_size, 0) + (1 + delta_bytes)
    return found


def _encode(rows: _Rows, before: int, edges: I64, producer: _Producer) -> Iterator[EncodedBatch]:
    """The batches between these edges. `before`: how many records the batches before have."""
    firsts, counts = edges[:-1], np.diff(edges)
    deltas = varints.zigzag(np.arange(edges[-1]) - np.repeat(firsts, counts))
    base = rows.timestamps[firsts]
    times: U64 = varints.zigzag(rows.timestamps - np.repeat(base, counts))
    delta_sizes = varints.sizes(deltas) + varints.sizes(times)
    lengths = varints.zigzag(_body_sizes(rows, 0) + delta_sizes)
    count = int(edges[-1])
    before_key = varints.write([lengths, 0, times, deltas, varints.zigzag(rows.key_size)], count)
    before_value = varints.write([varints.zigzag(rows.value_size)], count)
    joined = _join(before_key, rows.key, before_value, rows.value, *rows.headers)
    body = memoryview(joined.buffers()[2])
    cuts = _offsets(joined)[edges].tolist()
    latest = np.maximum.reduceat(rows.timestamps, firsts).tolist()
    for index, (number, first, base_ms) in enumerate(zip(counts.tolist(), firsts.tolist(), base.tolist(), strict=True)):
        sequence = producer.base_sequence
        if sequence != NO_SEQUENCE:
            sequence = (sequence + before + first) & MAX_SEQUENCE
        times_ms = base_ms, latest[index]
        yield EncodedBatch(_batch(body[cuts[index] : cuts[index + 1]], number, times_ms, sequence, producer), number)


def _batch(body: memoryview, count: int, times_ms: tuple[int, int], sequence: int, producer: _Producer) -> bytes:
    codec, packed = producer.codec, body
    if codec:
        packed = memoryview(codecs.compress(codec, bytes(body), producer.level))
        if len(packed) + HEADER_BYTES > producer.max_batch_bytes:
            codec, packed = codecs.NONE, body  # what cannot be compressed grows a little
    attributes = codec | (TRANSACTIONAL_BIT if producer.transactional else 0)
    length = HEADER_BYTES - LOG_OVERHEAD + len(packed)
    ids = producer.producer_id, producer.producer_epoch
    head = bytearray(HEADER.pack(0, length, -1, MAGIC, 0, attributes, count - 1, *times_ms, *ids, sequence, count))
    _CRC.pack_into(head, _CRC_POSITION, crc32c(packed, crc32c(memoryview(head)[_CRC_COVERS:])))
    return b"".join((head, packed))
