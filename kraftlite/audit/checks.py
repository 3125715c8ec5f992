"""The checks that one replica's log must pass on its own: batches, order, tail, indexes, checkpoints. They work on what was
scanned before.

What follows from damage that is reported already is not reported again: no index of a segment whose batches are out of order, no
gap behind bytes that are no batch.

Source: LG-01 to LG-08, LG-26 to LG-30; RP-28.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kraftlite.audit.findings import MAX_FINDINGS_PER_REPLICA, Finding
from kraftlite.audit.index import index_problems
from kraftlite.audit.order import OffsetOrder, epoch_regressions, next_offsets
from kraftlite.audit.scan import SegmentScan, read_again
from kraftlite.columns.scan import HEADERS
from kraftlite.log.checkpoints import HW_CHECKPOINT, LOG_START_CHECKPOINT, RECOVERY_POINT_CHECKPOINT
from kraftlite.model.ids import uuid_to_str
from kraftlite.segments.directories import LogDir, Replica
from kraftlite.segments.files import Headers

STRUCTURAL: Final = frozenset(
    ("bad_crc", "bad_header", "misnumbered_batch", "duplicate_batch", "swapped_batches", "offset_gap", "offset_regression")
)
TAIL: Final = frozenset(("lost_tail", "torn_tail", "segment_cut", "missing_segment"))


@dataclass(slots=False, kw_only=True)
class ReplicaScan:
    """A replica with everything that was read of it. `scans` in order of base offset; findings are added by the checks."""

    replica: Replica
    scans: tuple[SegmentScan, ...]
    findings: list[Finding] = field(default_factory=list)
    reached: int | None = None
    """The end of the log by the walk over its offsets, None before it."""

    @cached_property
    def headers(self) -> Headers:
        """The headers of all batches, in file order; positions count from the start of their segment."""
        return np.concatenate([scan.headers for scan in self.scans]) if self.scans else np.empty(0, HEADERS)

    @cached_property
    def segment_of(self) -> npt.NDArray[np.int64]:
        """Index into `scans`, one per batch."""
        return np.repeat(np.arange(len(self.scans)), [len(scan.headers) for scan in self.scans])

    @cached_property
    def ends(self) -> npt.NDArray[np.int64]:
        return next_offsets(self.headers)

    @property
    def leo(self) -> int:
        """Exclusive end of what can be read: of the last segment's last batch."""
        if not self.scans:
            return self.replica.log_start or 0
        if self.reached is not None:
            return self.reached
        last = self.scans[-1]
        return int(next_offsets(last.headers).max()) if len(last.headers) else last.segment.base_offset

    @property
    def log_start(self) -> int:
        first = self.scans[0].segment.base_offset if self.scans else 0
        return max(first, self.replica.log_start or 0)

    @property
    def hw(self) -> int:
        """The high watermark that the broker wrote into its checkpoint; 0 without an entry."""
        return self.replica.hw or 0

    def path_of(self, index: int) -> str:
        return self.scans[int(self.segment_of[index])].segment.log_path

    def read(self, index: int, size: int | None = None) -> bytes:
        """The bytes of a batch, or `size` bytes from its beginning. Raises OSError, also when its file was replaced."""
        header = self.headers[index]
        scan = self.scans[int(self.segment_of[index])]
        return read_again(scan, int(header["position"]), int(header["size"]) if size is None else size)

    def finding(self, kind: str, detail: str, **where: Any) -> Finding:
        replica = self.replica
        base = {"file": replica.directory, **where}
        return Finding(kind=kind, broker=replica.broker, topic=replica.topic, partition=replica.partition, detail=detail, **base)

    def add(self, kind: str, detail: str, **where: Any) -> None:
        self.findings.append(self.finding(kind, detail, **where))

    def has(self, kinds: Iterable[str], file: str) -> bool:
        wanted = frozenset(kinds)
        return any(found.kind in wanted and found.file == file for found in self.findings)


def check_replica(found: ReplicaScan) -> None:
    """Everything but what needs the other replicas. Adds to `found.findings`."""
    for scan in found.scans:
        if scan.unread is not None:
            found.add("unread", scan.unread, file=scan.segment.log_path)
    if any(scan.unread is not None for scan in found.scans):
        return  # what is left says nothing about the whole
    _check_batches(found)
    _check_offsets(found)
    _check_tails(found)
    _check_epochs(found)
    _check_indexes(found)
    _check_log_start(found)


def _check_batches(found: ReplicaScan) -> None:
    for scan in found.scans:
        headers = scan.headers
        bad = np.flatnonzero(~headers["crc_ok"])
        damaged_ends = set()
        for index in bad.tolist():
            position, offset = int(headers["position"][index]), int(headers["base_offset"][index])
            damaged_ends.add(position + int(headers["size"][index]))
            if len(found.findings) < MAX_FINDINGS_PER_REPLICA:
                _add_bad_crc(found, scan, position, offset)
        for hole in scan.holes:
            if hole.position in damaged_ends:
                continue  # a damaged length led there
            detail = f"{hole.end - hole.position} bytes that are no batch ({hole.reason})"
            found.add(
                "bad_header", detail, file=scan.segment.log_path, position=hole.position, offset=_end_before(scan, hole.position)
            )


def _add_bad_crc(found: ReplicaScan, scan: SegmentScan, position: int, offset: int) -> None:
    flushed = max(found.hw, found.replica.recovery_point or 0)
    if scan.segment.last and not found.replica.clean and offset >= flushed:
        detail = f"wrong CRC, above all that was flushed or committed ({flushed}); its broker did not shut down in order"
        found.add("torn_tail", detail, file=scan.segment.log_path, position=position, offset=offset)
    else:
        found.add("bad_crc", "the CRC does not match", file=scan.segment.log_path, position=position, offset=offset)


def _end_before(scan: SegmentScan, position: int) -> int:
    before = scan.headers[scan.headers["position"] < position]
    return int(next_offsets(before)[-1]) if len(before) else scan.segment.base_offset


def _check_offsets(found: ReplicaScan) -> None:
    dense = not found.replica.compacted
    expected: int | None = None
    for number, scan in enumerate(found.scans):
        base = scan.segment.base_offset
        if expected is not None:
            _check_border(found, number, expected, dense)
        following = found.scans[number + 1].segment.base_offset if number + 1 < len(found.scans) else None
        resumed = frozenset(hole.end for hole in scan.holes)
        first = base
        if number == 0 and len(scan.headers) and scan.headers["base_offset"][0] < base:
            first = int(scan.headers["base_offset"][0])  # a follower that began inside of a batch
        order = OffsetOrder(scan.headers, dense=dense, follows=following, resumed=resumed)
        for anomaly in order.anomalies(first):
            if len(found.findings) >= MAX_FINDINGS_PER_REPLICA:
                break
            found.add(
                anomaly.kind,
                anomaly.detail,
                file=scan.segment.log_path,
                position=int(scan.headers["position"][anomaly.batch]),
                offset=int(scan.headers["base_offset"][anomaly.batch]),
            )
        expected = max(expected or 0, order.reached, base)
    found.reached = expected


def _check_border(found: ReplicaScan, number: int, expected: int, dense: bool) -> None:
    """Check the border between a segment and the one before it, which ends at `expected`."""
    before, scan = found.scans[number - 1], found.scans[number]
    base = scan.segment.base_offset
    where = {"file": scan.segment.log_path, "position": 0, "offset": base}
    if base < expected:
        if not found.has(STRUCTURAL, before.segment.log_path):
            found.add("segment_overlap", f"begins at {base}, the segment before it ends at {expected}", **where)
    elif base > expected and dense and before.tail is None:
        if before.headers.size and not before.headers["crc_ok"][-1]:
            return  # the last batch's own word does not count, and is reported
        missing = f"offsets {expected} to {base - 1} are missing"
        cut = not before.size or any(problem.ahead for problem in index_problems(before, settled=False))
        if cut and expected not in found.replica.orphans:
            detail = f"{missing} before the next segment, {base}"
            found.add("segment_cut", detail, file=before.segment.log_path, position=before.size, offset=expected)
        else:
            found.add("missing_segment", f"{missing} in front of it", **where)


def _check_tails(found: ReplicaScan) -> None:
    for scan in found.scans:
        tail = scan.tail
        if tail is None:
            continue
        if _led_astray(scan):
            continue
        offset = _end_before(scan, tail.position)
        where = {"file": scan.segment.log_path, "position": tail.position, "offset": offset}
        what = f"{tail.end - tail.position} {'zero ' if scan.tail_is_zero else ''}bytes that are no batch ({tail.reason})"
        if scan.segment.last and not found.replica.clean:
            if offset >= found.hw:
                found.add("torn_tail", f"{what}; its broker did not shut down in order", **where)
        elif not (scan.segment.last and scan.tail_is_zero):
            found.add("segment_cut", f"{what}, at the end of a segment that was complete", **where)


def _led_astray(scan: SegmentScan) -> bool:
    """The last batch has a bad CRC, which is reported, and maybe a damaged length: what comes behind it says nothing."""
    return scan.tail is not None and len(scan.headers) > 0 and not scan.headers["crc_ok"][-1]


def check_claims(found: ReplicaScan, others: Sequence[ReplicaScan]) -> None:
    """High watermark and recovery point beyond the log's end: the tail was lost, or the checkpoint is wrong.

    The checkpoint is taken to be wrong where everything else contradicts it: the broker shut down in order and its recovery
    point is the log's end, or there are other replicas and none of them has that offset.
    """
    if any(scan.unread is not None for scan in found.scans):
        return
    replica, leo = found.replica, found.leo
    claims = {HW_CHECKPOINT: replica.hw, RECOVERY_POINT_CHECKPOINT: replica.recovery_point}
    beyond = {name: value for name, value in claims.items() if value is not None and value > leo}
    if not beyond or (found.scans and _led_astray(found.scans[-1])):
        return
    name, claim = max(beyond.items(), key=lambda item: item[1])
    consistent = replica.clean and replica.recovery_point == leo
    peers = [other for other in others if other is not found and other.replica.hw is not None]
    unknown = bool(peers) and all(other.leo < claim for other in peers) and len(beyond) == 1
    if consistent or unknown:
        found.add("bad_checkpoint", f"{replica.name} {claim}: the log ends at {leo}", file=replica.checkpoint_path(name))
        return
    last = found.scans[-1] if found.scans else None
    file = last.segment.log_path if last is not None else replica.directory
    position = -1 if last is None else last.tail.position if last.tail is not None else last.size
    found.findings[:] = [item for item in found.findings if (item.kind, item.file) != ("segment_cut", file)]
    words = ", ".join(f"{key} says {value}" for key, value in beyond.items())
    found.add("lost_tail", f"the log ends at {leo}, and {words}", file=file, position=position, offset=leo)


def check_topic_ids(found: Sequence[ReplicaScan]) -> None:
    """All replicas must belong to the same topic: a directory of one that was deleted has the same name."""
    counts = Counter(scan.replica.topic_id for scan in found if scan.replica.topic_id is not None)
    usual = max(counts, key=lambda it: (counts[it], str(it))) if counts else None
    for scan in found:
        replica = scan.replica
        if replica.topic_id_problem is not None:
            detail = replica.topic_id_problem
        elif usual is None or replica.topic_id == usual:
            continue
        elif replica.topic_id is not None:
            detail = f"topic id {uuid_to_str(replica.topic_id)}, other replicas have {uuid_to_str(usual)}"
            if max(counts.values()) == 1:
                detail += "; it may be either"
        elif replica.clean:
            detail = "the file is missing"
        else:
            continue
        scan.add("bad_partition_metadata", detail, file=replica.partition_metadata_path)


def _check_log_start(found: ReplicaScan) -> None:
    replica = found.replica
    path = replica.checkpoint_path(LOG_START_CHECKPOINT)
    if replica.log_start is not None and replica.log_start > found.leo:
        found.add("bad_checkpoint", f"{replica.name} {replica.log_start}: the log ends at {found.leo}", file=path)
    elif replica.clean and replica.hw is not None and replica.hw < found.log_start:
        detail = f"{replica.name} {replica.hw}: the log starts at {found.log_start}"
        found.add("bad_checkpoint", detail, file=replica.checkpoint_path(HW_CHECKPOINT))


def _check_epochs(found: ReplicaScan) -> None:
    headers, astray = found.headers, STRUCTURAL - {"bad_crc", "bad_header", "offset_gap"}
    for anomaly in epoch_regressions(headers):
        file = found.path_of(anomaly.batch)
        if not headers["crc_ok"][anomaly.batch] or found.has(astray, file) or len(found.findings) >= MAX_FINDINGS_PER_REPLICA:
            continue
        position, offset = int(headers["position"][anomaly.batch]), int(headers["base_offset"][anomaly.batch])
        found.add(anomaly.kind, anomaly.detail, file=file, position=position, offset=offset)
    _check_epoch_checkpoint(found)


def _check_epoch_checkpoint(found: ReplicaScan) -> None:
    """Compare the file with the log. After a crash it may lack the latest epochs; what it has must be true."""
    replica, path = found.replica, found.replica.epochs_path
    if replica.epochs_problem is not None:
        found.add("bad_epoch_checkpoint", replica.epochs_problem, file=path)
        return
    headers = found.headers
    if len(headers) == 0 or any(item.kind in ("epoch_regression", *STRUCTURAL) for item in found.findings):
        return
    if replica.epochs is None:
        if replica.clean:
            found.add("bad_epoch_checkpoint", "the file is missing", file=path)
        return
    entries = np.array(replica.epochs, np.int64).reshape(-1, 2)
    held = headers["base_offset"] >= found.log_start
    if not replica.clean:
        held &= headers["epoch"] <= (entries[-1, 0] if len(entries) else -1)
    place = np.searchsorted(entries[:, 1], headers["base_offset"], side="right") - 1
    said = np.where(place >= 0, entries[np.maximum(place, 0), 0], -1) if len(entries) else np.full(len(headers), -1)
    wrong = np.flatnonzero(held & (said != headers["epoch"]))
    if wrong.size:
        index = int(wrong[0])
        offset, epoch = int(headers["base_offset"][index]), int(headers["epoch"][index])
        detail = f"epoch {int(said[index])} at offset {offset}, where {found.path_of(index)} has epoch {epoch}"
        found.add("bad_epoch_checkpoint", detail, file=path, offset=offset, other=found.path_of(index))
    elif replica.clean and len(entries) and entries[-1, 1] > found.leo:
        detail = f"epoch {int(entries[-1, 0])} starts at {int(entries[-1, 1])}: the log ends at {found.leo}"
        found.add("bad_epoch_checkpoint", detail, file=path, offset=int(entries[-1, 1]))


def _check_indexes(found: ReplicaScan) -> None:
    for number, scan in enumerate(found.scans):
        segment = scan.segment
        after = found.scans[number + 1].segment.log_path if number + 1 < len(found.scans) else ""
        if found.has(STRUCTURAL | TAIL, segment.log_path) or found.has(("segment_overlap",), after):
            continue
        for problem in index_problems(scan, settled=found.replica.clean or not segment.last):
            path = segment.index_path if problem.kind == "bad_index" else segment.time_index_path
            suffix = ".index" if problem.kind == "bad_index" else ".timeindex"
            file = path or str(Path(segment.log_path).with_suffix(suffix))
            if problem.ahead and segment.last and found.leo < max(found.hw, found.replica.recovery_point or 0):
                continue  # the log's tail was lost, which is reported
            found.add(problem.kind, problem.detail, file=file, position=problem.position, offset=problem.offset)


def check_log_dirs(dirs: Sequence[LogDir]) -> Iterator[Finding]:
    """Checkpoint files, directories that are missing, and those that were left out."""
    for log_dir in dirs:
        for checkpoint in log_dir.checkpoints:
            if checkpoint.problem is not None:
                yield _of_dir(log_dir, "bad_checkpoint", checkpoint.problem, checkpoint.path)
        for topic, partition, hw in log_dir.missing:
            if log_dir.clean:
                path = f"{log_dir.path}/{topic}-{partition}"
                detail = f"{HW_CHECKPOINT} says {hw}, and there is no such directory"
                yield _of_dir(log_dir, "missing_replica", detail, path, topic, partition)
        for name in log_dir.skipped:
            yield _of_dir(log_dir, "left_out", "not the directory of a partition", f"{log_dir.path}/{name}")


def _of_dir(log_dir: LogDir, kind: str, detail: str, file: str, topic: str = "", partition: int = -1) -> Finding:
    return Finding(kind=kind, broker=log_dir.broker, topic=topic, partition=partition, file=file, detail=detail)
