"""Producer state on disk: `%020d.snapshot`, named by the offset up to which (exclusive) it is true.

    version i16 = 1 | crc u32 of what follows | count i32 | entries: producer_id i64, producer_epoch i16, last_sequence i32,
    last_offset i64, offset_delta i32, timestamp i64, coordinator_epoch i32, current_txn_first_offset i64 (-1: none)

Only the last batch of each producer is kept, so that a resend of an older one is out of order after a restart.

Source: LG-19, LG-20; Kafka's producer snapshot schema.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from crc32c import crc32c

from kraftlite.log.producers import NO_SEQUENCE, BatchEntry, ProducerEntry
from kraftlite.runtime.ports import Disk

SUFFIX: Final = ".snapshot"
_HEADER: Final = struct.Struct(">hI")
_COUNT: Final = struct.Struct(">i")
_ENTRY: Final = struct.Struct(">qhiqiqiq")
_VERSION: Final = 1


class CorruptSnapshot(ValueError):
    """Not a snapshot, or torn."""


def encode_snapshot(entries: Iterable[tuple[int, ProducerEntry]]) -> bytes:
    rows = []
    for producer_id, entry in entries:
        last = entry.batches[-1] if entry.batches else BatchEntry(NO_SEQUENCE, -1, 0, -1)
        rows.append(
            _ENTRY.pack(
                producer_id,
                entry.producer_epoch,
                last.last_sequence,
                last.last_offset,
                last.offset_delta,
                entry.last_timestamp_ms,
                entry.coordinator_epoch,
                -1 if entry.txn_first_offset is None else entry.txn_first_offset,
            )
        )
    body = _COUNT.pack(len(rows)) + b"".join(rows)
    return _HEADER.pack(_VERSION, crc32c(body)) + body


def decode_snapshot(data: bytes) -> list[tuple[int, ProducerEntry]]:
    """Raises CorruptSnapshot."""
    if len(data) < _HEADER.size + _COUNT.size:
        raise CorruptSnapshot(f"{len(data)} bytes are too few")
    version, crc = _HEADER.unpack_from(data)
    body = memoryview(data)[_HEADER.size :]
    (count,) = _COUNT.unpack_from(body)
    if version != _VERSION or crc != crc32c(body) or len(body) != _COUNT.size + count * _ENTRY.size:
        raise CorruptSnapshot(f"version {version} (known: 1), {count} entries in {len(body)} bytes, or the CRC does not match")
    found = []
    for producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, txn_first in _ENTRY.iter_unpack(
        body[_COUNT.size :]
    ):
        entry = ProducerEntry()
        entry.producer_epoch = epoch
        entry.coordinator_epoch = coordinator_epoch
        entry.last_timestamp_ms = timestamp
        entry.txn_first_offset = txn_first if txn_first >= 0 else None
        if offset >= 0:
            entry.batches.append(BatchEntry(sequence, offset, delta, timestamp))
        found.append((producer_id, entry))
    return found


def snapshot_path(directory: str, offset: int) -> str:
    return f"{directory}/{offset:020d}{SUFFIX}"


def list_snapshots(disk: Disk, directory: str) -> list[int]:
    """List the offsets of the snapshots, ascending."""
    return offsets_of(disk.listdir(directory))


def offsets_of(names: Iterable[str]) -> list[int]:
    """Return the offsets of the snapshots among the sorted names of a directory."""
    return [int(name[:20]) for name in names if len(name) == 29 and name.endswith(SUFFIX) and name[:20].isdecimal()]


def write_snapshot(disk: Disk, directory: str, offset: int, entries: Iterable[tuple[int, ProducerEntry]]) -> None:
    """Write a snapshot to the page cache: a torn one is recognised by its CRC, and `Log.flush` makes it durable."""
    file = disk.open(snapshot_path(directory, offset), create=True)
    try:
        data = encode_snapshot(entries)
        file.pwritev([data], 0)
        file.truncate(len(data))
    finally:
        file.close()


def sync_snapshot(disk: Disk, directory: str, offset: int) -> None:
    path = snapshot_path(directory, offset)
    if disk.stat(path) is None:
        return
    file = disk.open(path)
    try:
        file.sync()
    finally:
        file.close()


def delete_snapshots(disk: Disk, directory: str, offsets: Iterable[int]) -> int:
    count = 0
    for offset in offsets:
        path = snapshot_path(directory, offset)
        try:
            disk.unlink(path)
        except OSError:
            stat = disk.stat(path)
            if stat is None or not stat.is_dir:
                raise
            disk.rmtree(path)  # somebody's; under this name it is in the way
        count += 1
    return count
