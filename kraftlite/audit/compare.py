"""Compares the replicas of a partition: they must hold the same bytes below what is committed on both.

Batches are paired by base offset; paired ones are compared byte for byte, in runs that lie in one piece in both files. Compacted
topics are compared record by record, as every replica compacts on its own. With three or more replicas the odd one out is named.

Source: RP-17, RP-28 (what replicas share); KIP-101.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kraftlite.audit.checks import STRUCTURAL, ReplicaScan
from kraftlite.log.batch import Record, iter_records
from kraftlite.model.errors import ApiError
from kraftlite.model.limits import MIB
from kraftlite.segments.files import Headers

COMPARE_BYTES: Final = 1 * MIB
_EPOCH_AT: Final = 12
_EPOCH_END: Final = 16
_FIELDS: Final = ("size", "magic", "attributes", "last_offset_delta", "count")
I64 = npt.NDArray[np.int64]


class Difference(NamedTuple):
    """The first place where two replicas differ: `mine` and `theirs` are indexes of batches, -1 where there is none."""

    kind: str
    offset: int
    mine: int
    theirs: int
    detail: str


def compare_partition(scans: Sequence[ReplicaScan]) -> int | None:
    """Compare all replicas; adds findings to them. The offset below which at least two were compared; None: there are no two.

    Raises OSError when a file is gone, or another one, since it was scanned.
    """
    peers = [scan for scan in scans if scan.replica.hw is not None and scan.scans and all(s.unread is None for s in scan.scans)]
    if len(peers) < 2:
        return None
    reference = reference_of(peers)
    others = [scan for scan in peers if scan is not reference]
    found = {index: differences(reference, other) for index, other in enumerate(others)}
    for kind in ("epoch_diverged", "content_diverged", "swapped_records"):
        first = {index: next((d for d in items if d.kind == kind), None) for index, items in found.items()}
        _blame(reference, others, {index: item for index, item in first.items() if item is not None})
    for scan in peers:
        _drop_consequences(scan)
    return max(min(scan.hw, reference.hw) for scan in others)


def reference_of(peers: Sequence[ReplicaScan]) -> ReplicaScan:
    """The replica that others are compared with: least damage of its own, then highest watermark, then longest log."""
    return min(peers, key=lambda s: (sum(f.kind in STRUCTURAL for f in s.findings), -s.hw, -s.leo, s.replica.broker))


def _blame(reference: ReplicaScan, others: Sequence[ReplicaScan], found: dict[int, Difference]) -> None:
    """Report at the odd one out: the reference, where the others differ from it in the same place and agree there."""
    offsets = {item.offset for item in found.values()}
    if len(others) > 1 and len(found) == len(others) and len(offsets) == 1:
        first = others[0]
        if all(not any(d.offset in offsets for d in differences(first, other)) for other in others[1:]):
            _report(reference, first, _flipped(found[0]))
            return
    if len(others) == 1 and found:
        _report_one_of_two(reference, others[0], found[0])
        return
    for index, item in found.items():
        _report(others[index], reference, item)


def _flipped(item: Difference) -> Difference:
    return item._replace(mine=item.theirs, theirs=item.mine)


def _report_one_of_two(reference: ReplicaScan, other: ReplicaScan, item: Difference) -> None:
    """Two replicas: the one whose own epochs contradict it, else the other one, saying that it may be either."""
    for scan, mine, facing in ((reference, _flipped(item), other), (other, item, reference)):
        suspects = ("epoch_regression", "bad_epoch_checkpoint")
        if item.kind == "epoch_diverged" and any(f.kind in suspects and f.offset == item.offset for f in scan.findings):
            _report(scan, facing, mine)
            return
    _report(other, reference, item._replace(detail=f"{item.detail}; with two replicas it may be either"))


def _report(scan: ReplicaScan, facing: ReplicaScan, item: Difference) -> None:
    other = facing.path_of(item.theirs) if item.theirs >= 0 else facing.replica.directory
    position = int(scan.headers["position"][item.mine]) if item.mine >= 0 else -1
    file = scan.path_of(item.mine) if item.mine >= 0 else scan.replica.directory
    scan.add(item.kind, item.detail, file=file, position=position, offset=item.offset, other=other)


def _drop_consequences(scan: ReplicaScan) -> None:
    """An epoch that differs from the other replicas' explains why it regresses, and why the checkpoint contradicts it."""
    diverged = {found.offset for found in scan.findings if found.kind == "epoch_diverged"}
    explained = ("epoch_regression", "bad_epoch_checkpoint")
    scan.findings[:] = [
        found
        for found in scan.findings
        if not (found.kind in explained and (found.offset in diverged) and not (found.offset < 0))
    ]


def differences(a: ReplicaScan, b: ReplicaScan) -> list[Difference]:
    """Below the smaller high watermark, at most one difference of each kind, the first; `mine` is of `b`, `theirs` of `a`."""
    below, above = min(a.hw, b.hw), max(a.log_start, b.log_start)
    mine, theirs = _usable(b, above, below), _usable(a, above, below)
    _, at_b, at_a = np.intersect1d(
        b.headers["base_offset"][mine], a.headers["base_offset"][theirs], assume_unique=True, return_indices=True
    )
    in_b, in_a = mine[at_b], theirs[at_a]
    found: list[Difference] = []
    epochs = np.flatnonzero(b.headers["epoch"][in_b] != a.headers["epoch"][in_a])
    if epochs.size:
        x, y = int(in_b[epochs[0]]), int(in_a[epochs[0]])
        detail = f"leader epoch {int(b.headers['epoch'][x])}, the other replica has {int(a.headers['epoch'][y])}"
        found.append(Difference("epoch_diverged", int(b.headers["base_offset"][x]), x, y, detail))
    content = _first_content(a, b, in_a, in_b)
    if not a.replica.compacted:
        content = _earlier(content, _first_boundary(a, b, np.setdiff1d(mine, in_b)))
        boundary = _first_boundary(b, a, np.setdiff1d(theirs, in_a))
        content = _earlier(content, _flipped(boundary) if boundary is not None else None)
    if content is not None:
        found.append(content)
    return found


def _earlier(one: Difference | None, two: Difference | None) -> Difference | None:
    if one is None or two is None:
        return one or two
    return one if one.offset <= two.offset else two


def _usable(scan: ReplicaScan, above: int, below: int) -> I64:
    """Batches that can be compared: intact, whole in [above, below), each base offset once, where it belongs."""
    headers = scan.headers
    good = headers["crc_ok"] & (headers["base_offset"] >= above) & (scan.ends <= below)
    for item in scan.findings:
        if item.kind in ("misnumbered_batch", "offset_regression", "duplicate_batch"):
            good &= ~((headers["position"] == item.position) & (headers["base_offset"] == item.offset))
    index = np.flatnonzero(good)
    _, first = np.unique(headers["base_offset"][index], return_index=True)
    return index[np.sort(first)]


def _first_boundary(a: ReplicaScan, b: ReplicaScan, alone: I64) -> Difference | None:
    """A batch of `b` whose offsets `a` has in other batches. Where `a` has nothing, its own checks have said so."""
    if alone.size == 0 or a.headers.size == 0:
        return None
    bases = np.sort(a.headers["base_offset"].astype(np.int64))
    ends = np.sort(a.ends)
    begin, end = b.headers["base_offset"][alone].astype(np.int64), b.ends[alone]
    # Batches that begin below `end`, less those that end at or before `begin`: the ones that overlap.
    overlapping = np.searchsorted(bases, end, side="left") - np.searchsorted(ends, begin, side="right")
    known = np.isin(begin, bases)
    wrong = np.flatnonzero((overlapping > 0) & ~known)
    if wrong.size == 0:
        return None
    index = int(alone[wrong[0]])
    offset = int(b.headers["base_offset"][index])
    holder = np.flatnonzero((a.headers["base_offset"] < b.ends[index]) & (a.ends > offset))
    if any(item.kind in STRUCTURAL and item.offset == int(a.headers["base_offset"][h]) for h in holder for item in a.findings):
        return None
    if any(item.kind in STRUCTURAL and item.offset == offset for item in b.findings):
        return None
    detail = f"a batch of offsets {offset} to {int(b.ends[index]) - 1}, which the other replica has in other batches"
    return Difference("content_diverged", offset, index, int(holder[0]) if holder.size else -1, detail)


def _first_content(a: ReplicaScan, b: ReplicaScan, in_a: I64, in_b: I64) -> Difference | None:
    """The first pair of batches that are not the same bytes, leader epochs aside."""
    if in_a.size == 0:
        return None
    ha, hb = a.headers[in_a], b.headers[in_b]
    unequal = np.zeros(in_a.size, np.bool_)
    for name in _FIELDS:
        unequal |= ha[name] != hb[name]
    first_unequal = int(np.argmax(unequal)) if unequal.any() else in_a.size
    limit = in_a.size if a.replica.compacted else first_unequal
    for start, stop in _runs(a, b, in_a[:limit], in_b[:limit], unequal[:limit]):
        place = start if unequal[start] else _first_unequal(a, b, ha, hb, in_a, in_b, start, stop)
        while place is not None:
            found = _describe(a, b, int(in_a[place]), int(in_b[place]))
            if found is not None:
                return found
            place = _first_unequal(a, b, ha, hb, in_a, in_b, place + 1, stop) if place + 1 < stop else None
    return _describe(a, b, int(in_a[limit]), int(in_b[limit])) if limit < in_a.size else None


def _runs(a: ReplicaScan, b: ReplicaScan, in_a: I64, in_b: I64, unequal: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Ranges of pairs that lie in one piece in both files. A pair of unequal headers is one of its own."""
    if in_a.size == 0:
        return []
    breaks = np.zeros(in_a.size, np.bool_)
    breaks[0] = True
    for scan, index in ((a, in_a), (b, in_b)):
        position = scan.headers["position"][index]
        behind = position + scan.headers["size"][index]
        breaks[1:] |= (position[1:] != behind[:-1]) | (scan.segment_of[index][1:] != scan.segment_of[index][:-1])
    breaks |= unequal
    breaks[1:] |= unequal[:-1]
    starts = np.flatnonzero(breaks)
    return list(zip(starts.tolist(), [*starts[1:].tolist(), in_a.size], strict=True))


def _first_unequal(
    a: ReplicaScan, b: ReplicaScan, ha: Headers, hb: Headers, in_a: I64, in_b: I64, start: int, stop: int
) -> int | None:
    """The first pair of a run that is not the same bytes but for its leader epoch."""
    while start < stop:
        sizes = np.cumsum(ha["size"][start:stop].astype(np.int64))
        count = max(1, int(np.searchsorted(sizes, COMPARE_BYTES, side="right")))
        length = int(sizes[count - 1])
        left = np.frombuffer(a.read(int(in_a[start]), length), np.uint8)
        right = np.frombuffer(b.read(int(in_b[start]), length), np.uint8)
        if not np.array_equal(left, right):
            size = min(left.size, right.size)
            wrong = np.flatnonzero(left[:size] != right[:size])
            batch = np.searchsorted(sizes[:count], wrong, side="right")
            within = wrong - np.where(batch > 0, sizes[np.maximum(batch - 1, 0)], 0)
            real = np.flatnonzero((within < _EPOCH_AT) | (within >= _EPOCH_END))
            if real.size:
                return start + int(batch[real[0]])
            if left.size != right.size:
                return start + count - 1
        start += count
    return None


def _describe(a: ReplicaScan, b: ReplicaScan, x: int, y: int) -> Difference | None:
    """Describe the difference between two batches of one base offset; None: nothing that must be equal (compacted topics)."""
    base = int(b.headers["base_offset"][y])
    try:
        left, right = list(iter_records(a.read(x))), list(iter_records(b.read(y)))
    except ApiError as error:
        return Difference("content_diverged", base, y, x, str(error))
    if a.replica.compacted:
        return _describe_compacted(base, left, right, x, y)
    offsets = [record.offset_delta for record in right]
    if Counter(map(_content, left)) == Counter(map(_content, right)):
        pairs = enumerate(zip(left, right, strict=True))
        moved = [i for i, (one, two) in pairs if (_content(one), one.offset_delta) != (_content(two), two.offset_delta)]
        if moved:
            detail = f"the batch's {len(right)} records are in another order than in the other replica"
            return Difference("swapped_records", base + offsets[moved[0]], y, x, detail)
    for one, two in zip(left, right, strict=False):
        if one != two:
            what = next(name for name in Record._fields if getattr(one, name) != getattr(two, name))
            return Difference("content_diverged", base + two.offset_delta, y, x, f"the record's {what.replace('_', ' ')} differs")
    detail = (
        f"{len(right)} records, the other replica has {len(left)}" if len(left) != len(right) else "the batch's header differs"
    )
    return Difference("content_diverged", base, y, x, detail)


def _content(record: Record) -> tuple[object, ...]:
    return (record.key, record.value, record.headers)


def _describe_compacted(base: int, left: list[Record], right: list[Record], x: int, y: int) -> Difference | None:
    """Compare records: those that both have must be the same, and one that was compacted away on one side is no difference."""
    other = {record.offset_delta: _content(record) for record in left}
    for record in right:
        if other.get(record.offset_delta, _content(record)) != _content(record):
            return Difference("content_diverged", base + record.offset_delta, y, x, "the record differs")
    return None


__all__ = ["Difference", "compare_partition", "differences", "reference_of"]
