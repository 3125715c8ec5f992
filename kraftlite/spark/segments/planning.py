"""The files of brokers answer what the planning of a query asks a cluster, and are cut into tasks.

One replica of each partition is read: the one with the highest high watermark written down, of several the longest, of several
the first by the broker's name. It ends at that high watermark: what lies beyond is not known to be committed.

Source: RP-28 (the checkpoint of high watermarks); KIP-33 (which offset a time has).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeVar
from uuid import UUID

import numpy as np

from kraftlite.columns.scan import next_offsets
from kraftlite.log.batch import CONTROL_BIT, iter_records, parse_header, record_timestamp
from kraftlite.log.checkpoints import HW_CHECKPOINT
from kraftlite.model.limits import MAX_INT64, MIB
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.segments.directories import (
    COMPACTED_ALWAYS,
    METADATA_TOPIC,
    Replica,
    SegmentFiles,
    discover,
    list_again,
)
from kraftlite.segments.files import Buffer, Stretch, boundaries, last_boundary, newest_ms, open_log, walk
from kraftlite.spark.offsets import EARLIEST, LATEST, Range
from kraftlite.spark.segments.options import Files

TASK_BYTES: Final = 64 * MIB
"""Segments of a partition are read by one task up to this size, and larger ones cut: a task costs some ten milliseconds."""
TASK_PIECES: Final = 256
ATTEMPTS: Final = 5
"""To look at a log whose files are replaced meanwhile."""
INTERNAL: Final = (METADATA_TOPIC, *COMPACTED_ALWAYS)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FoundOffset:
    """-1: nothing is as late."""

    offset: int


@dataclass(frozen=True, slots=True)
class FoundTopic:
    """Partitions that some broker has a replica of."""

    partitions: tuple[int, ...]
    internal: bool
    topic_id: UUID | None = None


class FileCluster:
    """The directories of some brokers as a `planning.Cluster`. For one plan: files are listed once.

    Raises AuditInputError (directories that cannot be read), OSError, ValueError (a checkpoint that cannot be read).
    """

    def __init__(self, files: Files) -> None:
        self._log_end = files.log_end
        found = discover({name: [Path(it) for it in paths] for name, paths in files.dirs})
        self._unread = {
            (log_dir.broker, log_dir.path): f"{checkpoint.path}: {checkpoint.problem}"
            for log_dir in found
            for checkpoint in log_dir.checkpoints
            if checkpoint.problem is not None and Path(checkpoint.path).name == HW_CHECKPOINT
        }
        self.replicas: dict[TopicPartition, list[Replica]] = {}
        """In order of the brokers' names; those without a segment are left out."""
        for replica in (it for log_dir in found for it in log_dir.replicas if it.segments):
            self.replicas.setdefault(TopicPartition(replica.topic, replica.partition), []).append(replica)
        self._chosen: dict[TopicPartition, Replica] = {}
        self._buffer = Buffer()

    def topics(self) -> Mapping[str, FoundTopic]:
        partitions: dict[str, list[int]] = {}
        for tp in sorted(self.replicas):
            partitions.setdefault(tp.topic, []).append(tp.partition)
        return {name: FoundTopic(tuple(numbers), name in INTERNAL) for name, numbers in partitions.items()}

    def describe(self, names: Iterable[str]) -> Mapping[str, FoundTopic]:
        every = self.topics()
        return {name: every[name] for name in names if name in every}

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> Mapping[TopicPartition, FoundOffset]:
        """`read_committed` is refused by the options."""
        return {tp: FoundOffset(self._offset(tp, at)) for tp, at in wanted.items()}

    def _offset(self, tp: TopicPartition, at: int) -> int:
        if at == EARLIEST:
            return self._start(self.replica(tp))
        return self._end(tp) if at == LATEST else self._at_time(tp, at)

    def replica(self, tp: TopicPartition) -> Replica:
        """The one that is read."""
        if tp not in self._chosen:
            every = self.replicas[tp]
            highest = max(-1 if it.hw is None else it.hw for it in every)
            best = [it for it in every if it.hw == highest or (it.hw is None and highest == -1)]
            self._chosen[tp] = best[0] if len(best) == 1 else max(best, key=self._leo)
        return self._chosen[tp]

    def _start(self, replica: Replica) -> int:
        return max(replica.segments[0].base_offset, replica.log_start or 0)

    def _end(self, tp: TopicPartition) -> int:
        replica = self.replica(tp)
        if self._log_end:
            return self._leo(replica)
        if replica.hw is not None:
            return max(replica.hw, self._start(replica))
        problem = self._unread.get((replica.broker, replica.log_dir))
        if problem is not None:
            raise ValueError(f"where {tp} ends is not known: {problem}; with endAt=logEnd everything in its log is read")
        return self._leo(replica)

    def _leo(self, replica: Replica) -> int:
        def look(now: Replica) -> int:
            segment = now.segments[-1]
            found = segment.base_offset
            with open_log(segment.log_path) as file:
                for it in walk(file, self._buffer, floor=found, position=last_boundary(file, segment), crc=False):
                    if isinstance(it, Stretch):
                        found = max(found, int(next_offsets(it.headers[-1:])[0]))
            return found

        return self._looked(replica, look)

    def _at_time(self, tp: TopicPartition, time_ms: int) -> int:
        """The first record that is as late, of those that can be read."""
        chosen = self.replica(tp)
        start, end = self._start(chosen), self._end(tp)
        return self._looked(chosen, lambda now: next(self._as_late(now, time_ms, start, end), -1))

    def _as_late(self, replica: Replica, time_ms: int, start: int, end: int) -> Iterator[int]:
        for segment in replica.segments:
            newest = newest_ms(segment)
            if not segment.last and newest is not None and newest < time_ms:
                continue
            with open_log(segment.log_path) as file:
                for it in walk(file, self._buffer, floor=segment.base_offset, end=end, crc=False):
                    if isinstance(it, Stretch):
                        yield from (offset for offset in _as_late_in(it, time_ms) if start <= offset < end)

    def _looked(self, replica: Replica, look: Callable[[Replica], T]) -> T:
        """Listed anew when a running broker has taken a file away."""
        for _ in range(ATTEMPTS):
            try:
                return look(replica)
            except FileNotFoundError:
                replica = list_again(replica)
                if not replica.segments:
                    break
        return look(replica)

    # tasks

    def cut(self, ranges: Iterable[Range]) -> list[Range]:
        """Cut ranges where segments end, and large segments inside, so that a task has about `TASK_BYTES`."""
        return [part for whole in ranges for part in self._cut(whole)]

    def _cut(self, whole: Range) -> list[Range]:
        edges, size = [whole.start], 0.0
        for segment, behind in _spans(self.replica(whole.tp), whole.end):
            first, last = max(whole.start, segment.base_offset), min(whole.end, behind)
            if first >= last:
                continue
            part = segment.log_bytes * (last - first) / (behind - segment.base_offset)
            if size + part > 1.5 * TASK_BYTES and first > edges[-1]:
                edges.append(first)
                size = 0
            pieces = min(max(1, round(part / TASK_BYTES)), last - first)
            edges += [first + (last - first) * number // pieces for number in range(1, pieces)]
            size = size + part if pieces == 1 else part / pieces
        return [Range(whole.tp, a, b) for a, b in itertools.pairwise([*edges, whole.end]) if a < b]

    def part(self, range_: Range) -> Replica:
        """The replica that is read, with the segments of this range only, as it travels to a task."""
        replica = self.replica(range_.tp)
        kept = tuple(it for it, behind in _spans(replica, MAX_INT64) if it.base_offset < range_.end and behind > range_.start)
        return replace(replica, segments=kept, epochs=None, epochs_problem=None, orphans=())


@dataclass(frozen=True, slots=True)
class Piece:
    """The batches of a segment that begin at bytes [start, stop)."""

    segment: SegmentFiles
    start: int
    stop: int


def pieces_of(segments: Sequence[SegmentFiles], min_tasks: int | None) -> list[list[Piece]]:
    """Whole segments and parts of large ones, put together for tasks: about `min_tasks`, as far as indexes know boundaries."""
    total = sum(it.log_bytes for it in segments)
    task_bytes = max(1, TASK_BYTES if min_tasks is None else min(TASK_BYTES, total // min_tasks))
    bundles: list[list[Piece]] = []
    size = 0
    for segment in segments:
        for piece, piece_bytes in _pieces(segment, task_bytes):
            if not bundles or size + piece_bytes > task_bytes or len(bundles[-1]) >= TASK_PIECES:
                bundles.append([])
                size = 0
            bundles[-1].append(piece)
            size += piece_bytes
    return bundles


def _pieces(segment: SegmentFiles, task_bytes: int) -> Iterator[tuple[Piece, int]]:
    edges = [0]
    if segment.log_bytes >= 1.5 * task_bytes:
        try:
            with open_log(segment.log_path) as file:
                edges += boundaries(file, segment, task_bytes)
        except FileNotFoundError:
            pass  # whoever reads it says so
    for start, stop in itertools.pairwise([*edges, MAX_INT64]):
        yield Piece(segment, start, stop), max(0, min(stop, segment.log_bytes) - start)


def _spans(replica: Replica, end: int) -> list[tuple[SegmentFiles, int]]:
    """Each segment with the offset behind it: the next one's base, of the last one `end`."""
    bases = [it.base_offset for it in replica.segments]
    return list(zip(replica.segments, [*bases[1:], max(end, bases[-1] + 1)], strict=True))


def _as_late_in(it: Stretch, time_ms: int) -> Iterator[int]:
    headers = it.headers
    for index in np.flatnonzero((headers["max_timestamp"] >= time_ms) & (headers["attributes"] & CONTROL_BIT == 0)).tolist():
        position = int(headers["position"][index]) - it.position
        batch = it.data[position : position + int(headers["size"][index])]
        header = parse_header(batch)
        for record in iter_records(batch):
            if record_timestamp(header, record) >= time_ms:
                yield header.base_offset + record.offset_delta
