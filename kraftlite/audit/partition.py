"""All checks of one partition: each replica, the replicas against each other, the history against the log. No pyspark."""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from kraftlite.audit.checks import ReplicaScan, check_claims, check_replica, check_topic_ids
from kraftlite.audit.compare import compare_partition, reference_of
from kraftlite.audit.findings import VIOLATION, Finding, PartitionResult, ReplicaSummary
from kraftlite.audit.history import HistoryCounts, check_history
from kraftlite.audit.scan import SegmentScan, scan_segment
from kraftlite.local.history import Sent
from kraftlite.segments.directories import METADATA_TOPIC, Replica, list_again

ATTEMPTS: Final = 3
_SAME_BATCH: Final = ("base_offset", "epoch", "size", "last_offset_delta", "max_timestamp")


def check_partition(replicas: Sequence[Replica], scans: Iterable[SegmentScan], history: Sequence[Sent] = ()) -> PartitionResult:
    """`replicas` of one partition, the scans of all of their segments in any order, the history's lines of this partition.

    Where a running broker took files away after they were listed or scanned, everything is read again, and after ATTEMPTS the
    finding `unread` says so.
    """
    by_directory: dict[str, list[SegmentScan]] = {replica.directory: [] for replica in replicas}
    for part in scans:
        by_directory[part.segment.directory].append(part)
    ordered = sorted(replicas, key=lambda replica: (replica.broker, replica.directory))
    found = [_of_replica(replica, by_directory[replica.directory]) for replica in ordered]
    for attempt in range(ATTEMPTS + 1):
        missing = [scan for scan in found if any(part.unread is not None for part in scan.scans)]
        gone: OSError | None = None
        if not missing or attempt == ATTEMPTS:
            try:
                return _result(found, history)
            except OSError as error:
                gone = error
        if attempt < ATTEMPTS:
            found = [_again(scan.replica) for scan in found]
        elif gone is not None:
            found = [_of_replica(scan.replica, scan.scans) for scan in found]
            found[0].add("unread", f"{gone.strerror or gone}, again and again: not checked", file=str(gone.filename))
    return _summed(found, None, HistoryCounts())


def _of_replica(replica: Replica, scans: Iterable[SegmentScan]) -> ReplicaScan:
    return ReplicaScan(replica=replica, scans=tuple(sorted(scans, key=lambda scan: scan.segment.base_offset)))


def _again(replica: Replica) -> ReplicaScan:
    with contextlib.suppress(OSError):  # the whole directory is gone: its segments say so when they are read
        replica = list_again(replica)
    return _of_replica(replica, [scan_segment(segment) for segment in replica.segments])


def _result(found: Sequence[ReplicaScan], history: Sequence[Sent]) -> PartitionResult:
    if found[0].replica.topic == METADATA_TOPIC:
        _set_agreed(found)
    for scan in found:
        check_replica(scan)
    for scan in found:
        check_claims(scan, found)
        if scan.replica.hw is None and scan.leo > 0 and scan.replica.topic != METADATA_TOPIC:
            scan.add("left_out", "no high watermark is written down: not compared with the other replicas")
    check_topic_ids(found)
    compared_below = compare_partition(found)
    counts = HistoryCounts()
    if history:
        counts = check_history(reference_of([scan for scan in found if scan.scans] or found), history)
    return _summed(found, compared_below, counts)


def _set_agreed(found: Sequence[ReplicaScan]) -> None:
    """The metadata log's high watermark is not written down. Instead, up to where each log must be like another one: the end of
    its last batch that another replica has at the same offset in the same epoch. (Raft, log matching: then so is all before.)"""
    held = [_batches(scan) for scan in found]
    replicas = Counter(itertools.chain.from_iterable(held))
    for scan, batches in zip(found, held, strict=True):
        common = [end for key, end in batches.items() if replicas[key] > 1]
        scan.replica = replace(scan.replica, hw=max(common) if common else None)


def _batches(scan: ReplicaScan) -> dict[tuple[int, ...], int]:
    """The intact batches and where they end, exclusive."""
    good = scan.headers["crc_ok"]
    keys = zip(*(scan.headers[name][good].tolist() for name in _SAME_BATCH), strict=True)
    return dict(zip(keys, scan.ends[good].tolist(), strict=True))


def _summed(found: Sequence[ReplicaScan], compared_below: int | None, counts: HistoryCounts) -> PartitionResult:
    return PartitionResult(
        topic=found[0].replica.topic,
        partition=found[0].replica.partition,
        replicas=tuple(_summary(scan) for scan in found),
        compared_below=compared_below,
        findings=tuple(sorted((item for scan in found for item in scan.findings), key=_order)),
        acked=counts.acked,
        expired=counts.expired,
        unacked=counts.unacked,
    )


def without_replica(topic: str, partition: int, history: Sequence[Sent]) -> PartitionResult:
    """A partition that a history speaks of and no broker has."""
    acked = [line for line in history if line.offset >= 0]
    findings = tuple(
        Finding(
            kind="acked_lost",
            broker="",
            topic=topic,
            partition=partition,
            file="",
            offset=line.offset,
            detail="no broker has a replica of this partition",
            other=line.where,
        )
        for line in acked[:1]
    )
    return PartitionResult(
        topic=topic, partition=partition, replicas=(), compared_below=None, findings=findings, acked=len(acked)
    )


def _order(finding: Finding) -> tuple[int, int, str, str, int]:
    """Violations first, then by offset."""
    return (finding.severity != VIOLATION, finding.offset, finding.broker, finding.file, finding.position)


def _summary(scan: ReplicaScan) -> ReplicaSummary:
    return ReplicaSummary(
        broker=scan.replica.broker,
        segments=len(scan.scans),
        bytes=sum(part.size for part in scan.scans),
        batches=len(scan.headers),
        log_start=scan.log_start,
        hw=scan.replica.hw,
        leo=scan.leo,
        clean=scan.replica.clean,
        violations=sum(item.severity == VIOLATION for item in scan.findings),
    )
