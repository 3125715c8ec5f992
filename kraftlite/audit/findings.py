"""The findings of an audit. The class names are stable: scripts may test for them.

| class | what is wrong |
|---|---|
| `bad_crc` | the bytes of a batch are not those that its CRC was made of (a flipped bit) |
| `bad_header` | where a batch should begin there is none, though there are batches behind it |
| `misnumbered_batch` | one batch's base offset does not fit between its neighbours (the CRC does not cover it) |
| `duplicate_batch` | a batch is there a second time |
| `swapped_batches` | batches are all there, in another order |
| `offset_gap` | offsets are missing inside a segment of a topic that was never compacted |
| `offset_regression` | a batch begins below the end of the one before it, and is no copy and not swapped |
| `missing_segment` | offsets are missing between two segments |
| `segment_cut` | a segment ends inside a batch or below what its indexes or its successor say; not the tail of a crashed broker |
| `segment_overlap` | a segment begins below the end of the one before it |
| `lost_tail` | the log ends below the high watermark or the recovery point that its broker had written down |
| `torn_tail` | note: a crashed broker's log ends in bytes that are no batch, above what was committed; recovery cuts them |
| `epoch_regression` | leader epochs decrease |
| `epoch_diverged` | replicas have the same batch under different leader epochs (the CRC does not cover it) |
| `content_diverged` | replicas differ below the smaller of their high watermarks |
| `swapped_records` | the records of a batch are all there, in another order than in the other replicas or than their offsets |
| `bad_records` | a batch with a good CRC whose records do not parse |
| `bad_index` | `.index` is missing, malformed, or has an entry that the log contradicts |
| `bad_time_index` | `.timeindex`, likewise |
| `bad_checkpoint` | a checkpoint is malformed, or says what no log of that partition bears out |
| `bad_epoch_checkpoint` | `leader-epoch-checkpoint` is malformed, missing after a clean shutdown, or contradicts the log |
| `bad_partition_metadata` | `partition.metadata` is malformed, missing after a clean shutdown, or names another topic |
| `missing_replica` | a broker that shut down in order has a high watermark for a partition, and no directory |
| `acked_lost` | an acknowledged record is not there |
| `acked_changed` | at its offset there is a record with another key or value |
| `acked_reordered` | an acknowledged record is at another offset, or behind one that its producer sent later |
| `acked_duplicated` | an acknowledged record is there a second time |
| `history_conflict` | two records were acknowledged with the same offset |
| `unread` | note: a file that vanished or could not be read while the audit ran |
| `left_out` | note: a directory that is no partition's (`…-delete`, `…-stray`), or a replica without a high watermark |
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Final

VIOLATION: Final = "violation"
NOTE: Final = "note"
NOTES: Final = ("torn_tail", "unread", "left_out")
KINDS: Final = tuple(line.split("`")[1] for line in (__doc__ or "").splitlines() if line.startswith("| `"))
MAX_FINDINGS_PER_REPLICA: Final = 200
"""More of one replica are counted and left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong. `position`: bytes into `file`, -1 where none applies; `offset`: of the first record, or -1.

    `other`: the file of the replica (or the line of the history) that it was compared with.
    """

    kind: str
    broker: str
    topic: str
    partition: int
    file: str
    position: int = -1
    offset: int = -1
    detail: str
    other: str = ""

    @property
    def severity(self) -> str:
        return NOTE if self.kind in NOTES else VIOLATION

    def as_json(self) -> dict[str, object]:
        return {"severity": self.severity, **asdict(self)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSummary:
    """One replica in numbers. `leo`: exclusive; `violations`: of this replica alone."""

    broker: str
    segments: int
    bytes: int
    batches: int
    log_start: int
    hw: int | None
    leo: int
    clean: bool
    violations: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionResult:
    """The findings in one partition. `compared_below`: committed prefixes are identical or reported below this offset.

    `acked`: records of the history that were looked for; `expired`: of them, those that retention or compaction removed.
    """

    topic: str
    partition: int
    replicas: tuple[ReplicaSummary, ...]
    compared_below: int | None
    findings: tuple[Finding, ...]
    acked: int = 0
    expired: int = 0
    unacked: int = 0

    @property
    def violations(self) -> int:
        return sum(finding.severity == VIOLATION for finding in self.findings)
