"""Compacting a log in a test: the whole pass at once, as the broker's cleaner does it in steps."""

from __future__ import annotations

from kraftlite.log.batch import BatchHeader, Record, build_batch, iter_batches, iter_records
from kraftlite.log.cleaner import Cleaning, look
from kraftlite.log.config import LogConfig
from kraftlite.log.control import EndTxnMarker
from kraftlite.log.log import AppendOrigin, Log
from kraftlite.log.validation import marker_of
from kraftlite.runtime.ports import Disk
from tests.harness.disk import MemDisk
from tests.harness.log_support import NOW, everything, open_log

MAP_BYTES = 1 << 20
COMPACT = LogConfig(cleanup_policy=("compact",), index_interval_bytes=100, segment_bytes=100_000)


def put(log: Log, key: str, value: str | None, **kw: object) -> int:
    """One record; its offset."""
    record = Record(key.encode(), None if value is None else value.encode())
    options = {"timestamp_ms": NOW, "base_sequence": 0 if "producer_id" in kw else -1} | kw
    if "producer_id" in kw:
        options.setdefault("producer_epoch", 0)
    made = bytearray(build_batch([record], **options))  # type: ignore[arg-type]
    info = log.append_as_leader(made, leader_epoch=0, wall_ms=NOW, origin=AppendOrigin.CLIENT)
    return info.base_offset


def commit_all(log: Log) -> None:
    log.update_hw(log.leo)


def fresh(config: LogConfig = COMPACT, disk: MemDisk | None = None) -> tuple[MemDisk, Log]:
    disk = disk if disk is not None else MemDisk()
    return disk, open_log(disk, config)


def filled(segments: int = 4, config: LogConfig = COMPACT, age_ms: int = 0) -> tuple[MemDisk, Log]:
    disk, log = fresh(config)
    for number in range(segments):
        put(log, "k", f"v{number}", timestamp_ms=NOW - age_ms)
        log.roll()
    commit_all(log)
    return disk, log


def clean(log: Log, disk: Disk, *, wall_ms: int = NOW, map_bytes: int = MAP_BYTES) -> Cleaning | None:
    """One pass if anything is dirty, due or not."""
    todo = look(log, wall_ms)
    if not todo.dirty_bytes:
        return None
    log.flush_sync()
    cleaning = Cleaning(todo, disk, map_bytes=map_bytes, wall_ms=wall_ms)
    for _ in cleaning.index():
        pass
    for group in cleaning.groups():
        for _ in cleaning.rewrite(group):
            pass
        assert cleaning.intact()
        cleaning.swap(group)
    log.clean_offset = cleaning.end_offset
    return cleaning


def headers(log: Log) -> list[BatchHeader]:
    return [header for header, _ in iter_batches(everything(log))]


def keyed(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    """(offset, key, value) of every data record."""
    return [
        (header.base_offset + record.offset_delta, record.key, record.value)
        for header, view in iter_batches(everything(log))
        if not header.is_control
        for record in iter_records(view)
    ]


def markers(log: Log) -> list[tuple[int, bool]]:
    """(offset, committed) of every transaction marker."""
    found = []
    for header, view in iter_batches(everything(log)):
        marker = marker_of(view) if header.is_control else None
        if isinstance(marker, EndTxnMarker):
            found.append((header.base_offset, marker.commit))
    return found


def read_committed(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    """What a consumer with that isolation level is left with: (offset, key, value)."""
    coming = sorted(log.aborted_transactions(log.log_start_offset, log.last_stable_offset), key=lambda entry: entry[1])
    aborted: set[int] = set()
    found = []
    for header, view in iter_batches(everything(log)):
        if header.base_offset >= log.last_stable_offset:
            break
        while coming and coming[0][1] <= header.last_offset:
            aborted.add(coming.pop(0)[0])
        if header.is_control:
            marker = marker_of(view)
            if marker is not None and not marker.commit:
                aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborted):
            found += [(header.base_offset + record.offset_delta, record.key, record.value) for record in iter_records(view)]
    return found
