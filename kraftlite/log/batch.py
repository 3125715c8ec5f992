"""Record batch v2: the only form in which records exist on disk, in fetch responses and in produce requests.

    base_offset i64 | length i32 | partition_leader_epoch i32 | magic i8 | crc u32 | attributes i16 | last_offset_delta i32 |
    base_timestamp i64 | max_timestamp i64 | producer_id i64 | producer_epoch i16 | base_sequence i32 | count i32 | records

The CRC-32C covers everything from `attributes` on: base offset and leader epoch are stamped without recomputing it.

Source: LG-01, LG-02; KIP-98.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from crc32c import crc32c

from kraftlite.log import codecs
from kraftlite.model.errors import ApiError, ErrorCode

HEADER_BYTES: Final = 61
LOG_OVERHEAD: Final = 12
"""Base offset and length: what comes before the bytes that `length` counts."""
MAGIC: Final = 2
MAGIC_POSITION: Final = 16
NO_TIMESTAMP: Final = -1
NO_PRODUCER_ID: Final = -1
NO_SEQUENCE: Final = -1
MAX_SEQUENCE: Final = 2**31 - 1
MAX_RELATIVE_OFFSET: Final = 2**31 - 1
"""An index holds offsets relative to the base of their segment, as i32."""

CODEC_MASK: Final = 0x07
TIMESTAMP_TYPE_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40
KNOWN_BITS: Final = CODEC_MASK | TIMESTAMP_TYPE_BIT | TRANSACTIONAL_BIT | CONTROL_BIT | DELETE_HORIZON_BIT
"""The attributes that a leader keeps when it writes the header of a client's batch anew."""

_LONGEST_VARINT: Final = 10
_WRAP: Final = 1 << 64
_CRC_POSITION: Final = 17
_ATTRIBUTES_POSITION: Final = 21
_MAX_TIMESTAMP_POSITION: Final = 35

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_unpack_header = HEADER.unpack_from
_PREFIX: Final = struct.Struct(">qi")
_OFFSET: Final = struct.Struct(">q")
_EPOCH: Final = struct.Struct(">i")
_CRC: Final = struct.Struct(">I")
_ATTRIBUTES: Final = struct.Struct(">h")


class Record(NamedTuple):
    """One record. Deltas are relative to its batch's base offset and base timestamp.

    Kafka takes header keys that are not UTF-8; their odd bytes are surrogates here, so that they go back as they came.
    """

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_delta: int = 0
    offset_delta: int = 0


class BatchHeader(NamedTuple):
    """The header, parsed. Offsets inclusive unless called `next_`; `size_bytes` counts the whole batch."""

    base_offset: int
    size_bytes: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int  # type: ignore[assignment]  # hides tuple.count

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record. It wraps to 0 behind 2^31-1; -1 without a sequence."""
        if self.base_sequence < 0:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & MAX_SEQUENCE

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_BIT != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_log_append_time(self) -> bool:
        return self.attributes & TIMESTAMP_TYPE_BIT != 0

    @property
    def has_delete_horizon(self) -> bool:
        return self.attributes & DELETE_HORIZON_BIT != 0

    @property
    def timestamp_type(self) -> str:
        return "LogAppendTime" if self.is_log_append_time else "CreateTime"


def parse_header(buffer: bytes | bytearray | memoryview, position: int = 0) -> BatchHeader:
    """The header at `position`. ApiError(CORRUPT_MESSAGE) when fewer than 61 bytes are there; nothing else is checked."""
    try:
        offset, length, *rest = _unpack_header(buffer, position)
    except struct.error:
        raise ApiError(
            ErrorCode.CORRUPT_MESSAGE, f"{len(buffer) - position} bytes are too few for a batch header of {HEADER_BYTES}"
        ) from None
    return BatchHeader(offset, length + LOG_OVERHEAD, *rest)


def attributes_of(batch: bytes | bytearray | memoryview) -> int:
    """The attributes that these bytes would have as a batch; 0 when they cannot be one."""
    if len(batch) < HEADER_BYTES or batch[MAGIC_POSITION] != MAGIC:
        return 0
    return int(_ATTRIBUTES.unpack_from(batch, _ATTRIBUTES_POSITION)[0])


def iter_headers(buffer: bytes | bytearray | memoryview) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each whole batch; a partial one at the end is left out.

    ApiError(CORRUPT_MESSAGE) at an impossible length, or a magic other than 2.
    """
    position, end = 0, len(buffer)
    while end - position >= HEADER_BYTES:
        header = parse_header(buffer, position)
        if header.size_bytes < HEADER_BYTES or header.magic != MAGIC:
            raise ApiError(
                ErrorCode.CORRUPT_MESSAGE,
                f"no batch at byte {position}: length {header.size_bytes}, magic {header.magic} (expected >= {HEADER_BYTES}, 2)",
            )
        if position + header.size_bytes > end:
            return
        yield position, header
        position += header.size_bytes


def iter_batches(buffer: bytes | bytearray | memoryview) -> Iterator[tuple[BatchHeader, memoryview]]:
    """(header, bytes) of each whole batch, without copies. Errors as `iter_headers`."""
    view = memoryview(buffer)
    for position, header in iter_headers(view):
        yield header, view[position : position + header.size_bytes]


def crc_of(batch: bytes | bytearray | memoryview) -> int:
    """Compute the CRC-32C of one batch's covered bytes. `batch` ends where the batch ends."""
    return crc32c(memoryview(batch)[_ATTRIBUTES_POSITION:])


def check_crc(batch: bytes | bytearray | memoryview, header: BatchHeader | None = None) -> bool:
    """Return whether the stored CRC is that of the bytes. `batch` is exactly one batch."""
    stored = header.crc if header is not None else _CRC.unpack_from(batch, _CRC_POSITION)[0]
    return bool(crc32c(memoryview(batch)[_ATTRIBUTES_POSITION:]) == stored)


def stamp(batch: bytearray | memoryview, base_offset: int, leader_epoch: int) -> None:
    """Write base offset and leader epoch in place; the CRC stays valid."""
    _OFFSET.pack_into(batch, 0, base_offset)
    _EPOCH.pack_into(batch, LOG_OVERHEAD, leader_epoch)


def stamp_max_timestamp(batch: bytearray | memoryview, timestamp_ms: int) -> None:
    """Put right what the header says of the records' timestamps, without attributes that nobody knows, and its CRC."""
    _ATTRIBUTES.pack_into(batch, _ATTRIBUTES_POSITION, attributes_of(batch) & KNOWN_BITS)
    _OFFSET.pack_into(batch, _MAX_TIMESTAMP_POSITION, timestamp_ms)
    _CRC.pack_into(batch, _CRC_POSITION, crc_of(batch))


def stamp_append_time(batch: bytearray | memoryview, attributes: int, timestamp_ms: int) -> None:
    """Turn a batch into LogAppendTime with this timestamp, and renew its CRC."""
    _ATTRIBUTES.pack_into(batch, _ATTRIBUTES_POSITION, attributes & KNOWN_BITS | TIMESTAMP_TYPE_BIT)
    _OFFSET.pack_into(batch, _MAX_TIMESTAMP_POSITION, timestamp_ms)
    _CRC.pack_into(batch, _CRC_POSITION, crc_of(batch))


def build_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    timestamp_ms: int,
    codec: int = codecs.NONE,
    control: bool = False,
    transactional: bool = False,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
    keep_offset_deltas: bool = False,
    last_offset_delta: int | None = None,
    level: int | None = None,
) -> bytes:
    """One batch of `records`, numbered from 0 unless `keep_offset_deltas`; `timestamp_ms` is what their deltas start from.

    `last_offset_delta` overrides the last record's (a batch that lost its tail keeps its offset range). `level`: of the codec.
    """
    body = bytearray()
    latest = 0
    for index, record in enumerate(records):
        _write_record(body, record, record.offset_delta if keep_offset_deltas else index)
        latest = max(latest, record.timestamp_delta)
    if last_offset_delta is None:
        last_offset_delta = (records[-1].offset_delta if keep_offset_deltas else len(records) - 1) if records else 0
    attributes = codec | (CONTROL_BIT if control else 0) | (TRANSACTIONAL_BIT if transactional else 0)
    packed = codecs.compress(codec, bytes(body), level) if codec else body
    batch = bytearray(HEADER_BYTES)
    HEADER.pack_into(
        batch,
        0,
        base_offset,
        HEADER_BYTES - LOG_OVERHEAD + len(packed),
        leader_epoch,
        MAGIC,
        0,
        attributes,
        last_offset_delta,
        timestamp_ms,
        max(timestamp_ms + latest, NO_TIMESTAMP),
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    batch += packed
    _CRC.pack_into(batch, _CRC_POSITION, crc_of(batch))
    return bytes(batch)


def with_body(header: BatchHeader, packed: bytes | bytearray, *, codec: int, max_timestamp: int) -> bytearray:
    """Build a client's batch with another body and its codec. The rest of its header stays, but for a delete horizon, which is a
    cleaner's to give, and for attributes that nobody knows."""
    attributes = header.attributes & KNOWN_BITS & ~(CODEC_MASK | DELETE_HORIZON_BIT) | codec
    return bytearray(_repacked(header, attributes, header.base_timestamp, max_timestamp, packed, header.count))


def retained_batch(header: BatchHeader, records: Sequence[Record], *, delete_horizon_ms: int | None = None) -> bytes:
    """Return the rest of a batch after compaction: these of its records, in its codec, at their offsets and times.

    Offset range, sequences, producer and flags stay, so that what is known of its producer does, too. `delete_horizon_ms`: when
    its tombstones (or the transaction marker) may go; it takes the place of the base timestamp (KIP-534). None: as it was.
    """
    attributes, base_ms = header.attributes, header.base_timestamp
    if delete_horizon_ms is not None:
        attributes, base_ms = attributes | DELETE_HORIZON_BIT, delete_horizon_ms
    shift = header.base_timestamp - base_ms
    body = bytearray()
    for record in records:
        delta = _as_int64(record.timestamp_delta + shift)
        _write_record(body, record._replace(timestamp_delta=delta), record.offset_delta)
    packed = codecs.compress(header.codec, bytes(body)) if header.codec else bytes(body)
    latest = max((NO_TIMESTAMP, *(record_timestamp(header, record) for record in records)))
    return _repacked(header, attributes, base_ms, latest, packed, len(records))


def empty_batch(header: BatchHeader) -> bytes:
    """A batch of which no record is left: its header, for what it says of offsets and of its producer."""
    attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON_BIT)
    return _repacked(header, attributes, NO_TIMESTAMP, header.max_timestamp, b"", 0)


def placeholder_batch(offset: int, leader_epoch: int) -> bytes:
    """A batch without records at this offset: what `empty_batch` leaves, where nothing else is known."""
    none = (NO_TIMESTAMP, NO_TIMESTAMP, NO_PRODUCER_ID, -1, NO_SEQUENCE)
    return empty_batch(BatchHeader(offset, 0, leader_epoch, MAGIC, 0, 0, 0, *none, 0))


def _repacked(header: BatchHeader, attributes: int, base_ms: int, max_ms: int, packed: bytes | bytearray, count: int) -> bytes:
    batch = bytearray(HEADER_BYTES)
    length = HEADER_BYTES - LOG_OVERHEAD + len(packed)
    head = (header.base_offset, length, header.partition_leader_epoch, MAGIC, 0, attributes, header.last_offset_delta)
    HEADER.pack_into(
        batch, 0, *head, base_ms, max_ms, header.producer_id, header.producer_epoch, header.base_sequence, count
    )  # fmt: skip
    batch += packed
    _CRC.pack_into(batch, _CRC_POSITION, crc_of(batch))
    return bytes(batch)


def iter_records(batch: bytes | bytearray | memoryview) -> Iterator[Record]:
    """The records of exactly one batch. ApiError(CORRUPT_MESSAGE) when they do not parse. Does not check the CRC.

    A compressed batch is unpacked as the records are asked for: what is held is a chunk, and the record that is not whole yet.
    """
    header = parse_header(batch)
    body = memoryview(batch)[HEADER_BYTES : header.size_bytes]
    try:
        if header.codec:
            yield from _chunked_records(codecs.unpacked(header.codec, body), header.count)
            return
        data, position = bytes(body), 0
        for _ in range(header.count):
            record, position = _read_record(data, position)
            yield record
    except IndexError as error:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"records of the batch at offset {header.base_offset} do not parse") from error


def _chunked_records(chunks: Iterator[bytes | memoryview], count: int) -> Iterator[Record]:
    parts: list[bytes | memoryview] = []
    have, need, done = 0, 1, 0
    for chunk in chunks:
        parts.append(chunk)
        have += len(chunk)
        if have < need:
            continue
        data, position = b"".join(parts), 0
        while done < count:
            end = _end_of_record(data, position)
            if end is None or end > have:
                need = (have + 1 if end is None else end) - position
                break
            record, position = _read_record(data, position)
            done += 1
            yield record
        parts, have = [data[position:]], have - position
        if done == count and have:
            raise IndexError("more records than announced")
    if done < count:
        raise IndexError("fewer records than announced")


def _end_of_record(data: bytes, position: int) -> int | None:
    """Return the position behind the record that begins there; None: its length is not there yet."""
    try:
        size, start = read_varint(data, position)
    except IndexError:
        if len(data) - position > _LONGEST_VARINT:
            raise
        return None
    return start + size


def record_timestamp(header: BatchHeader, record: Record) -> int:
    """A record's timestamp as a consumer sees it: before 1970, too."""
    if header.is_log_append_time:
        return header.max_timestamp
    return _as_int64(header.base_timestamp + record.timestamp_delta)


def _as_int64(value: int) -> int:
    """Times and their differences wrap around, as Java's do: so each time has a difference to each other one."""
    return (value + _WRAP // 2) % _WRAP - _WRAP // 2


def write_varint(out: bytearray, value: int) -> None:
    """Write a zigzag varint."""
    value = (value << 1) ^ (value >> 63)
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """(value, next position). IndexError at the end of the data, or when it runs beyond ten bytes."""
    result = shift = 0
    while True:
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (result >> 1) ^ -(result & 1), position
        shift += 7
        if shift > 63:
            raise IndexError("varint is too long")


def _write_bytes(out: bytearray, value: bytes | None) -> None:
    if value is None:
        out.append(1)
        return
    write_varint(out, len(value))
    out += value


def _write_record(out: bytearray, record: Record, offset_delta: int) -> None:
    body = bytearray(1)
    write_varint(body, record.timestamp_delta)
    write_varint(body, offset_delta)
    _write_bytes(body, record.key)
    _write_bytes(body, record.value)
    write_varint(body, len(record.headers))
    for name, value in record.headers:
        _write_bytes(body, name.encode("utf-8", "surrogateescape"))
        _write_bytes(body, value)
    write_varint(out, len(body))
    out += body


def _read_bytes(data: bytes, position: int) -> tuple[bytes | None, int]:
    size, position = read_varint(data, position)
    if size < 0:
        return None, position
    end = position + size
    if end > len(data):
        raise IndexError("field runs beyond the batch")
    return data[position:end], end


def _read_record(data: bytes, position: int) -> tuple[Record, int]:
    size, position = read_varint(data, position)
    end = position + size
    if size < 0 or end > len(data):
        raise IndexError("record runs beyond the batch")
    timestamp_delta, position = read_varint(data, position + 1)
    offset_delta, position = read_varint(data, position)
    key, position = _read_bytes(data, position)
    value, position = _read_bytes(data, position)
    header_count, position = read_varint(data, position)
    headers: tuple[tuple[str, bytes | None], ...] = ()
    if header_count:
        found = []
        for _ in range(header_count):
            name, position = _read_bytes(data, position)
            content, position = _read_bytes(data, position)
            found.append(((name or b"").decode("utf-8", "surrogateescape"), content))
        headers = tuple(found)
    if position != end:
        raise IndexError("record length does not match its fields")
    return Record(key, value, headers, timestamp_delta, offset_delta), end


def implausible(header: BatchHeader, available: int, next_offset: int, base_offset: int) -> str | None:
    """Say why these bytes cannot be the next batch."""
    if header.size_bytes < HEADER_BYTES:
        return f"impossible batch length {header.size_bytes}"
    if header.magic != MAGIC:
        return f"magic {header.magic}"
    if header.size_bytes > available:
        return "partial batch"
    if header.base_offset < next_offset or header.last_offset_delta < 0:
        return f"offset {header.base_offset} where >= {next_offset} was expected"
    if header.last_offset - base_offset > MAX_RELATIVE_OFFSET:
        return f"offset {header.last_offset} is too far from the segment's base"
    return None
