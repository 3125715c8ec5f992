"""The smaller files of a partition: offset, time and transaction indexes (checked against their log), producer snapshots."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

from kraftlite.cli.dump_report import Report
from kraftlite.cli.files import MAX_INDEX_BYTES, read_bounded
from kraftlite.log.batch import HEADER_BYTES, parse_header
from kraftlite.log.producer_snapshots import CorruptSnapshot, decode_snapshot

_OFFSET = struct.Struct(">ii")
_TIME = struct.Struct(">qi")
_TXN = struct.Struct(">hqqqq")


def dump(path: Path, report: Report) -> None:
    try:
        data = read_bounded(path, MAX_INDEX_BYTES)
    except ValueError as error:
        report.problem(str(error))
        return
    if path.suffix == ".snapshot":
        _producers(path, data, report)
        return
    entry = {".index": _OFFSET, ".timeindex": _TIME, ".txnindex": _TXN}[path.suffix]
    if len(data) % entry.size:
        report.problem(f"Found {len(data) % entry.size} invalid bytes at the end of {path.name}: entries have {entry.size} bytes")
    whole = data[: len(data) - len(data) % entry.size]
    rows = list(entry.iter_unpack(whole))
    if not rows and path.suffix == ".index":
        report.line(f"{path} is empty.", {"empty": True})
    if path.suffix == ".txnindex":
        for version, producer_id, first, last, stable in rows:
            facts = {
                "version": version,
                "producerId": producer_id,
                "firstOffset": first,
                "lastOffset": last,
                "lastStableOffset": stable,
            }
            report.line(" ".join(f"{key}: {value}" for key, value in facts.items()), facts)
            if version != 0:
                report.problem(f"Found version {version} in {path.name}; known is 0, so this is damage or a later format")
    else:
        _positions(path, rows, report)


def _positions(path: Path, rows: list[tuple[Any, ...]], report: Report) -> None:
    base = int(path.stem) if path.stem.isdigit() else 0
    log = path.with_suffix(".log")
    last: tuple[int, int] | None = None
    for row in rows:
        if last is not None and row == (0, 0):
            return  # the unused rest of a preallocated index
        if path.suffix == ".index":
            pair = (base + row[0], row[1])
            shown = (f"offset: {pair[0]} position: {pair[1]}", {"offset": pair[0], "position": pair[1]})
        else:
            pair = (row[0], base + row[1])
            shown = (f"timestamp: {pair[0]} offset: {pair[1]}", {"timestamp": pair[0], "offset": pair[1]})
        if report.entries:
            report.line(*shown)
        if last is not None and (pair[0] <= last[0] or pair[1] < last[1]):
            report.problem(f"Found an entry out of order in {path.name}: {pair} follows {last}")
        last = pair
        if path.suffix == ".index":
            _check_position(path, log, pair[0], pair[1], report)


def _check_position(path: Path, log: Path, offset: int, position: int, report: Report) -> None:
    try:
        with log.open("rb") as file:
            if position < 0:
                report.problem(f"Index mismatch in {path.name}: offset {offset} at position {position}, which no log has")
                return
            file.seek(position)
            head = file.read(HEADER_BYTES)
    except FileNotFoundError:
        return
    if len(head) < HEADER_BYTES:
        report.problem(
            f"Index mismatch in {path.name}: offset {offset} at position {position}, which is behind the end of the log"
        )
        return
    header = parse_header(head)
    if header.magic != 2 or not header.base_offset <= offset <= header.last_offset:
        report.problem(
            f"Index mismatch in {path.name}: index offset: {offset}, log offset at position {position}: {header.base_offset}"
        )


def _producers(path: Path, data: bytes, report: Report) -> None:
    try:
        entries = decode_snapshot(data)
    except CorruptSnapshot as error:
        report.problem(f"Found a producer snapshot that cannot be read: {path.name}: {error}")
        return
    for producer_id, entry in entries:
        last = entry.batches[-1] if entry.batches else None
        facts = {
            "producerId": producer_id,
            "producerEpoch": entry.producer_epoch,
            "coordinatorEpoch": entry.coordinator_epoch,
            "currentTxnFirstOffset": entry.txn_first_offset,
            "lastTimestamp": entry.last_timestamp_ms,
        }
        if last is not None:
            facts |= {
                "firstSequence": last.first_sequence,
                "lastSequence": last.last_sequence,
                "lastOffset": last.last_offset,
                "offsetDelta": last.offset_delta,
                "timestamp": last.timestamp_ms,
            }
        begun = entry.txn_first_offset
        shown = {**facts, "currentTxnFirstOffset": "OptionalLong.empty" if begun is None else f"OptionalLong[{begun}]"}
        report.line(" ".join(f"{key}: {value}" for key, value in shown.items()), facts)
