"""Checks that each acknowledged record is in the log once, unchanged, where its acknowledgement said, in the order it was sent.

The log is that of one replica, the one with the least damage and the highest watermark: that the others hold the same is compared
before. What retention or compaction removed is counted and not missed.
"""

from __future__ import annotations

import itertools
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kraftlite.audit.checks import ReplicaScan
from kraftlite.audit.findings import MAX_FINDINGS_PER_REPLICA
from kraftlite.audit.scan import read_again
from kraftlite.local.history import Sent, proofs_of
from kraftlite.log.batch import CONTROL_BIT, iter_records
from kraftlite.model.errors import ApiError
from kraftlite.model.limits import MIB
from kraftlite.model.topic_partition import TopicPartition

PARSE_BYTES: Final = 4 * MIB
_NAMES: Final = {"kv": "checksum of key and value", "v": "CRC-32 of the value"}


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryCounts:
    """`acked`: looked for; `expired`: of them, removed by retention or compaction; `unacked`: others in the log."""

    acked: int = 0
    expired: int = 0
    unacked: int = 0


class _Log:
    """The log's records as columns in order of offset: offsets, and per algorithm what each record's proof would be."""

    def __init__(self, found: ReplicaScan, algorithms: Sequence[str]) -> None:
        offsets = array("q")
        proofs = {name: array("Q") for name in algorithms}
        for some, keys, values in _records(found):
            offsets.extend(some)
            for name, column in proofs.items():
                column.extend(proofs_of(name, keys, values))
        self.offsets, order = np.unique(np.frombuffer(offsets, np.int64), return_index=True)
        self.proofs = {name: np.frombuffer(column, np.uint64)[order] for name, column in proofs.items()}

    def index_of(self, offset: int) -> int:
        """-1: there is no such record."""
        at = int(np.searchsorted(self.offsets, offset))
        return at if at < self.offsets.size and self.offsets[at] == offset else -1

    def confirmed(self, lines: Sequence[Sent], algorithm: str) -> npt.NDArray[np.bool_]:
        """Return which of these lines, all of one algorithm, are where they say."""
        offsets = np.fromiter((line.offset for line in lines), np.int64, len(lines))
        at = np.minimum(np.searchsorted(self.offsets, offsets), max(self.offsets.size - 1, 0))
        if self.offsets.size == 0:
            return np.zeros(len(lines), np.bool_)
        good: npt.NDArray[np.bool_] = self.offsets[at] == offsets
        if algorithm:
            good &= self.proofs[algorithm][at] == np.fromiter((line.proof for line in lines), np.uint64, len(lines))
        return good


def check_history(found: ReplicaScan, lines: Sequence[Sent]) -> HistoryCounts:
    """Adds findings to `found`. `lines`: of this partition, failed ones too. Raises OSError when a file is gone meanwhile."""
    acked = [line for line in lines if line.offset >= 0]
    by_algorithm: dict[str, list[Sent]] = {}
    for line in acked:
        by_algorithm.setdefault(line.algorithm, []).append(line)
    log = _Log(found, sorted(name for name in by_algorithm if name))
    acked_offsets = np.fromiter((line.offset for line in acked), np.int64, len(acked))
    if np.unique(acked_offsets).size != len(acked):
        _add_conflicts(found, acked)
    expired = 0
    for name, some in sorted(by_algorithm.items()):
        for index in np.flatnonzero(~log.confirmed(some, name)).tolist():
            expired += _check_line(found, log, some[index], acked_offsets)
    _check_order(found, acked)
    alone = ~np.isin(log.offsets, acked_offsets)
    _check_duplicates(found, log, lines, alone)
    return HistoryCounts(acked=len(acked), expired=expired, unacked=int(alone.sum()))


def _add_conflicts(found: ReplicaScan, acked: Sequence[Sent]) -> None:
    by_offset: dict[int, Sent] = {}
    for line in acked:
        earlier = by_offset.setdefault(line.offset, line)
        if earlier is not line:
            _add(found, "history_conflict", line, f"{earlier.where} was acknowledged with the same offset")


def _records(found: ReplicaScan) -> Iterator[tuple[list[int], list[bytes | None], list[bytes | None]]]:
    """Offsets, keys and values of all records in intact data batches; adds `bad_records` and `swapped_records` on the way."""
    from kraftlite.columns.records import parse_records

    tp = TopicPartition(found.replica.topic, found.replica.partition)
    for scan in found.scans:
        headers = scan.headers
        good = np.flatnonzero(headers["crc_ok"] & (headers["attributes"] & CONTROL_BIT == 0))
        stretches = list(_stretches(headers, good))
        while stretches:
            start, stop = stretches.pop(0)
            position = int(headers["position"][start])
            size = int(headers["position"][stop - 1]) + int(headers["size"][stop - 1]) - position
            data = read_again(scan, position, size)
            try:
                parsed = parse_records(data, tp=tp, start=0, end=2**62, columns=("key", "value", "offset"), check_crc=False)
            except ApiError as error:
                if stop - start > 1:  # one of them: each on its own
                    stretches[:0] = [(index, index + 1) for index in range(start, stop)]
                    continue
                offset = int(headers["base_offset"][start])
                found.add("bad_records", str(error), file=scan.segment.log_path, position=position, offset=offset)
                continue
            last = -1
            for batch in parsed.batches:
                offsets, keys, values = (
                    batch.column(batch.schema.get_field_index(name)).to_pylist() for name in ("offset", "key", "value")
                )
                previous = np.array([last, *offsets[:-1]], np.int64)
                for place in np.flatnonzero(np.array(offsets, np.int64) <= previous)[:1].tolist():
                    _add_swapped(found, scan, offsets[place], int(previous[place]))
                last = offsets[-1]
                yield offsets, keys, values


def _add_swapped(found: ReplicaScan, scan: Any, offset: int, last: int) -> None:
    headers = scan.headers
    holding = np.flatnonzero(
        (headers["base_offset"] <= offset) & (headers["base_offset"] + headers["last_offset_delta"] >= offset)
    )
    position = int(headers["position"][holding[-1]]) if holding.size else -1
    path = scan.segment.log_path
    if not found.has(("swapped_records", "swapped_batches", "duplicate_batch", "offset_regression"), path):
        found.add("swapped_records", f"offset {offset} is behind {last}", file=path, position=position, offset=offset)


def _stretches(headers: Any, good: Any) -> Iterator[tuple[int, int]]:
    """Ranges of indexes of `good` batches that lie in one piece, of about PARSE_BYTES."""
    start = 0
    while start < good.size:
        stop, size = start + 1, int(headers["size"][good[start]])
        while stop < good.size and good[stop] == good[stop - 1] + 1 and size < PARSE_BYTES:
            behind = int(headers["position"][good[stop - 1]]) + int(headers["size"][good[stop - 1]])
            if int(headers["position"][good[stop]]) != behind:
                break
            size += int(headers["size"][good[stop]])
            stop += 1
        yield int(good[start]), int(good[stop - 1]) + 1
        start = stop


def _check_line(found: ReplicaScan, log: _Log, line: Sent, acked_offsets: npt.NDArray[np.int64]) -> int:
    """A line that the log does not confirm. 1 when retention or compaction removed its record, else 0."""
    at = log.index_of(line.offset)
    if at < 0 and (line.offset < found.log_start or (found.replica.compacted and line.offset < found.leo)):
        return 1
    elsewhere = log.offsets[log.proofs[line.algorithm] == line.proof] if line.algorithm else log.offsets[:0]
    free = elsewhere[~np.isin(elsewhere, acked_offsets)]
    if free.size == 0 and elsewhere.size == 1 and at >= 0:
        free = elsewhere  # two acknowledged records changed places
    if free.size:
        _add(found, "acked_reordered", line, f"acknowledged at offset {line.offset}, it is at {int(free[0])}")
    elif at >= 0:
        name = _NAMES.get(line.algorithm, line.algorithm)
        there = int(log.proofs[line.algorithm][at])
        _add(found, "acked_changed", line, f"{name} is {there:08x}, that of what was sent {line.proof:08x}")
    else:
        _add(found, "acked_lost", line, f"nothing is at offset {line.offset}; the log ends at {found.leo}")
    return 0


def _check_order(found: ReplicaScan, acked: Sequence[Sent]) -> None:
    """Check the order by `seq`, within a producer: a record that was sent later lies behind."""
    by_producer: dict[str, list[Sent]] = {}
    for line in acked:
        if line.seq >= 0:
            by_producer.setdefault(line.producer, []).append(line)
    for _, lines in sorted(by_producer.items()):
        lines.sort(key=lambda line: line.seq)
        for before, after in itertools.pairwise(lines):
            if after.offset < before.offset:
                detail = f"seq {after.seq} is at offset {after.offset}, in front of seq {before.seq} at {before.offset}"
                _add(found, "acked_reordered", after, detail)


def _check_duplicates(found: ReplicaScan, log: _Log, lines: Sequence[Sent], alone: npt.NDArray[np.bool_]) -> None:
    """Records that no acknowledgement speaks of (`alone`) and that are copies of one. A failed attempt accounts for one."""
    failed = Counter((line.algorithm, line.proof) for line in lines if line.offset < 0)
    for name, proofs in log.proofs.items():
        originals = {line.proof: line for line in reversed(lines) if line.offset >= 0 and line.algorithm == name}
        known = np.fromiter(originals, np.uint64, len(originals))
        for at in np.flatnonzero(alone & np.isin(proofs, known)).tolist():
            proof, offset = int(proofs[at]), int(log.offsets[at])
            original = originals[proof]
            if failed[name, proof] > 0:
                failed[name, proof] -= 1
            elif _content(found, offset) == _content(found, original.offset):
                _add(found, "acked_duplicated", original, f"also at offset {offset}", offset=offset)


def _content(found: ReplicaScan, offset: int) -> tuple[bytes | None, bytes | None] | None:
    """Key and value at an offset, from the file."""
    for index in np.flatnonzero((found.headers["base_offset"] <= offset) & (found.ends > offset)).tolist():
        base = int(found.headers["base_offset"][index])
        for record in iter_records(found.read(index)):
            if base + record.offset_delta == offset:
                return record.key, record.value
    return None


def _add(found: ReplicaScan, kind: str, line: Sent, detail: str, *, offset: int | None = None) -> None:
    if sum(item.kind == kind for item in found.findings) >= MAX_FINDINGS_PER_REPLICA:
        return
    offset = line.offset if offset is None else offset
    holding = np.flatnonzero((found.headers["base_offset"] <= offset) & (found.ends > offset))
    if holding.size:
        index = int(holding[0])
        file, position = found.path_of(index), int(found.headers["position"][index])
    else:
        file, position = (
            (found.scans[-1].segment.log_path, found.scans[-1].size) if found.scans else (found.replica.directory, -1)
        )
    found.add(kind, detail, file=file, position=position, offset=offset, other=line.where)
