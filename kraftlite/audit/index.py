"""Checks that `.index` and `.timeindex` agree with the segment they belong to. Pure.

An offset entry is (last offset of a batch - base offset, position of that batch), a time entry (largest timestamp so far, last
offset of the batch that has it - base offset). Indexes are sparse, and behind their log while a broker runs or after it crashed;
what they do say must be true.

Source: LG-05, LG-06; KIP-33; Kafka's DumpLogSegments (what it calls a mismatch).
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kraftlite.audit.order import next_offsets
from kraftlite.audit.scan import SegmentScan

_OFFSET_ENTRY: Final = np.dtype([("offset", ">i4"), ("position", ">i4")])
_TIME_ENTRY: Final = np.dtype([("time", ">i8"), ("offset", ">i4")])
I64 = npt.NDArray[np.int64]


class IndexProblem(NamedTuple):
    """`position`: in the index file; `ahead`: it speaks of what lies behind the log's end, `offset` is what it names."""

    kind: str
    position: int
    offset: int
    detail: str
    ahead: bool = False


def index_problems(scan: SegmentScan, *, settled: bool) -> list[IndexProblem]:
    """Report at most one problem per file, the first. `settled`: the files are complete (sealed segment, or a broker that shut
    down)."""
    if scan.size == 0:
        return []
    found = (_offset_problem(scan, settled), _time_problem(scan, settled))
    return [problem for problem in found if problem is not None]


def _entries(data: bytes, entry: np.dtype[Any]) -> npt.NDArray[Any]:
    """All entries, without the zeros that a preallocated file ends in."""
    entries = np.frombuffer(data[: len(data) // entry.itemsize * entry.itemsize], entry)
    used = np.flatnonzero(np.any([entries[name] != 0 for name in entry.names or ()], axis=0))
    return entries[: int(used[-1]) + 1 if used.size else 0]


def _counted(good: npt.NDArray[np.bool_], data: bytes, size: int, settled: bool) -> int:
    """So many entries count. Apache Kafka lays an index out beforehand and truncates it in its memory alone: until the broker
    shuts down in order, what follows the last true entry may be what was there before."""
    if settled or len(data) // size <= good.size:
        return int(good.size)
    true = np.flatnonzero(good)
    return int(true[-1]) + 1 if true.size else 0


def _offset_problem(scan: SegmentScan, settled: bool) -> IndexProblem | None:
    data = scan.index
    if data is None:
        return IndexProblem("bad_index", -1, -1, "the file is missing") if settled else None
    if len(data) % _OFFSET_ENTRY.itemsize:
        return IndexProblem("bad_index", len(data), -1, f"size {len(data)} is not a multiple of {_OFFSET_ENTRY.itemsize}")
    entries = _entries(data, _OFFSET_ENTRY)
    offsets: I64 = entries["offset"].astype(np.int64) + scan.segment.base_offset
    positions: I64 = entries["position"].astype(np.int64)
    if offsets.size == 0:
        return None

    def problem(index: int, detail: str, *, ahead: bool = False) -> IndexProblem:
        return IndexProblem("bad_index", index * _OFFSET_ENTRY.itemsize, int(offsets[index]), detail, ahead)

    held: I64 = scan.headers["position"].astype(np.int64)
    at = np.searchsorted(held, positions)
    inside = at < held.size
    known = inside.copy()
    known[inside] = held[at[inside]] == positions[inside]
    last: I64 = next_offsets(scan.headers) - 1
    known[known] = last[at[known]] == offsets[known]
    count = _counted(known, data, _OFFSET_ENTRY.itemsize, settled)
    falls = np.flatnonzero((np.diff(offsets[:count]) <= 0) | (np.diff(positions[:count]) <= 0)) + 1
    if falls.size:
        return problem(int(falls[0]), f"entry {int(falls[0])} does not increase")
    wrong = np.flatnonzero(~known[:count])
    if wrong.size == 0:
        return None
    first = int(wrong[0])
    where = f"entry {first} says that the batch at position {int(positions[first])} ends with offset {int(offsets[first])}"
    end = scan.tail.position if scan.tail is not None else scan.size
    if positions[first] >= end:
        return problem(first, f"{where}, behind the log's end at {end}", ahead=True)
    return problem(first, f"{where}; the log has none such")


def _time_problem(scan: SegmentScan, settled: bool) -> IndexProblem | None:
    data = scan.time_index
    timestamps: I64 = scan.headers["max_timestamp"].astype(np.int64)
    latest = int(timestamps.max()) if timestamps.size else -1
    if data is None:
        return IndexProblem("bad_time_index", -1, -1, "the file is missing") if settled else None
    if len(data) % _TIME_ENTRY.itemsize:
        return IndexProblem("bad_time_index", len(data), -1, f"size {len(data)} is not a multiple of {_TIME_ENTRY.itemsize}")
    entries = _entries(data, _TIME_ENTRY)
    times: I64 = entries["time"].astype(np.int64)
    offsets: I64 = entries["offset"].astype(np.int64) + scan.segment.base_offset

    def problem(index: int, detail: str, *, ahead: bool = False) -> IndexProblem:
        return IndexProblem("bad_time_index", index * _TIME_ENTRY.itemsize, int(offsets[index]), detail, ahead)

    ends: I64 = next_offsets(scan.headers) - 1
    running = np.maximum.accumulate(timestamps) if timestamps.size else timestamps
    at = np.searchsorted(ends, offsets)
    good = at < ends.size
    some = good.copy()
    good[some] = (ends[at[some]] == offsets[some]) & (running[at[some]] == times[some]) & (timestamps[at[some]] == times[some])
    count = _counted(good, data, _TIME_ENTRY.itemsize, settled)
    falls = np.flatnonzero((np.diff(times[:count]) <= 0) | (np.diff(offsets[:count]) < 0)) + 1
    if falls.size:
        return problem(int(falls[0]), f"entry {int(falls[0])} does not increase")
    wrong = np.flatnonzero(~good[:count])
    if wrong.size:
        first = int(wrong[0])
        where = f"entry {first} says that {int(times[first])} ms is the largest timestamp up to offset {int(offsets[first])}"
        if not some[first]:
            return problem(first, f"{where}, behind the log's end", ahead=True)
        return problem(first, f"{where}; the log says {int(running[at[first]])}")
    if settled and latest >= 0 and not scan.segment.last and (times.size == 0 or times[-1] != latest):
        ends_with = int(times[-1]) if times.size else "nothing"
        return IndexProblem(
            "bad_time_index", len(data), -1, f"ends with {ends_with}, the segment's largest timestamp is {latest}"
        )
    return None
