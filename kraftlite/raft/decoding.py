"""Decodes batches in the log to the state machine's records: the replay path, where every node spends its start.

One pass over the bytes of a batch and no object per record but the value that the serde makes of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kraftlite.log.batch import HEADER_BYTES, BatchHeader, iter_batches, iter_records
from kraftlite.log.control import KRaftVoters, decode_control
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.limits import MAX_INT32
from kraftlite.raft.client import CommittedBatch, RecordSerde
from kraftlite.raft.membership import parse_voters_record


def decode_in_steps(data: bytes, serde: RecordSerde, records_per_step: int = MAX_INT32) -> Iterator[CommittedBatch | None]:
    """The batches in `data`, with a None after every so many records of a batch that has more. A control batch keeps its place,
    but has no records."""
    decode = serde.decode
    for header, raw in iter_batches(data):
        records: tuple[Any, ...] = ()
        if not header.is_control:
            values = record_values(header, raw)
            decoded: list[Any] = []
            for start in range(0, len(values), records_per_step):
                if start:
                    yield None
                decoded += [decode(value) for value in values[start : start + records_per_step]]
            records = tuple(decoded)
        yield CommittedBatch(
            base_offset=header.base_offset,
            last_offset=header.last_offset,
            epoch=header.partition_leader_epoch,
            append_timestamp_ms=header.max_timestamp,
            size_bytes=header.size_bytes,
            records=records,
        )


def record_values(header: BatchHeader, raw: memoryview) -> list[bytes]:
    """The values of a batch in order. Raises ApiError(CORRUPT_MESSAGE) when the records do not parse."""
    if header.codec == 0:
        values = _plain_values(bytes(raw[HEADER_BYTES:]), header.count)
        if values is not None:
            return values
    return [record.value for record in iter_records(raw) if record.value is not None]


def _plain_values(data: bytes, count: int) -> list[bytes] | None:
    """Values of records without key and headers, as this layer writes them; None when one is different.

    A record: length, attributes, timestamp delta, offset delta, key length -1, value length, value, header count 0; all
    numbers are zigzag varints.
    """
    values: list[bytes] = []
    position = 0
    try:
        for _ in range(count):
            while data[position] > 127:  # length
                position += 1
            position += 2  # and attributes
            while data[position] > 127:  # timestamp delta
                position += 1
            position += 1
            while data[position] > 127:  # offset delta
                position += 1
            position += 1
            if data[position] != 1:
                return None
            position += 1
            size = shift = 0
            while (byte := data[position]) > 127:
                size |= (byte & 127) << shift
                shift += 7
                position += 1
            size |= byte << shift
            position += 1
            if size & 1:
                return None
            end = position + (size >> 1)
            if end >= len(data) or data[end] != 0:
                return None
            values.append(data[position:end])
            position = end + 1
    except IndexError:
        return None
    return values


def _check_controls(batch: memoryview) -> int:
    """Count the control records of a batch. Raises ApiError(CORRUPT_MESSAGE) for one that says nonsense."""
    count = 0
    for record in iter_records(batch):
        if record.offset_delta != count:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"control record {count} has offset delta {record.offset_delta}")
        control = decode_control(record)
        if isinstance(control, KRaftVoters):
            parse_voters_record(control, None)
        count += 1
    return count


def check_readable(data: bytes) -> None:
    """Raises ApiError(CORRUPT_MESSAGE) when there is a batch in `data` whose records cannot be read, or are not as many as its
    header says: what is appended will be delivered, and must not be found unreadable only then. The log itself checks the CRC."""
    for header, raw in iter_batches(data):
        where = f"the batch at offset {header.base_offset}"
        if header.codec != 0:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{where} is compressed, as no batch of the metadata is")
        try:
            found = len(record_values(header, raw)) if not header.is_control else _check_controls(raw)
        except (ValueError, IndexError, OverflowError) as error:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{where}: {error}") from error
        if found != header.count or header.count != header.last_offset_delta + 1:
            raise ApiError(
                ErrorCode.CORRUPT_MESSAGE,
                f"{where} has {found} records, and says {header.count} up to offset {header.last_offset}",
            )
