"""Reloads a log's knowledge of its producers, from the newest snapshot and the batches behind it. Source: LG-19 to LG-21."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Final

from kraftlite.log import checkpoints, producer_snapshots
from kraftlite.log.batch import BatchHeader
from kraftlite.log.producers import ProducerEntry, ProducerState
from kraftlite.log.segment import Segment
from kraftlite.log.segments import SegmentList
from kraftlite.log.validation import marker_of
from kraftlite.model.errors import ApiError
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.ports import Disk, Tracer
from kraftlite.runtime.trace.log import ProducerStateReloaded

RECALL_BYTES: Final = (256 << 10, 1 << 20, 4 << 20)
RECALL_BATCHES: Final = 200
"""The part of the log's tail that is looked through for what a producer snapshot leaves out: more bytes when batches are
large."""


def reload_producers(
    disk: Disk,
    directory: str,
    segments: SegmentList,
    producers: ProducerState,
    *,
    known: Sequence[int],
    leo: int,
    trust_below: int,
    index_from: int | None,
    expired_before_ms: int,
    tracer: Tracer,
    tp: TopicPartition,
    remembered_to: int = 0,
) -> None:
    """Producer state at `leo`: the newest good snapshot at or below `trust_below`, or what `producers` remembers at or below
    `remembered_to`, whichever is newer, and the batches behind it.

    `known`: the offsets of all snapshots. Those beyond `trust_below` may tell of data that is gone and are removed. From offset
    `index_from` on the transaction index is written anew (None: it is trusted).
    """
    stale = [offset for offset in known if offset > trust_below]
    if producer_snapshots.delete_snapshots(disk, directory, stale):
        disk.sync_dir(directory)
    origin = producers.return_to(remembered_to)
    for offset in sorted(set(known) - set(stale), reverse=True):
        if origin is not None and offset <= origin:
            break
        entries = _read(disk, directory, offset)
        if entries is None:
            producer_snapshots.delete_snapshots(disk, directory, [offset])
            continue
        producers.restore(
            (producer_id, entry)
            for producer_id, entry in entries
            if entry.txn_first_offset is not None or entry.last_timestamp_ms > expired_before_ms
        )
        recall_batches(segments, producers, offset)
        producers.decided_below = origin = offset
        break
    if index_from is not None:
        for segment in segments.from_offset(index_from):
            segment.txn_index.truncate(segment.base_offset)
            segment.txn_index.rewrite()
    replay_producers(segments, producers, origin or 0, leo, index_from)
    if index_from is not None:
        for segment in segments.from_offset(index_from):
            segment.txn_index.write(disk)
    if known or len(producers):
        tracer.emit(ProducerStateReloaded(tp=tp, snapshot_offset=origin, leo=leo, producers=len(producers)))


def _read(disk: Disk, directory: str, offset: int) -> list[tuple[int, ProducerEntry]] | None:
    """Read a snapshot; None when it is damaged."""
    path = producer_snapshots.snapshot_path(directory, offset)
    try:
        return producer_snapshots.decode_snapshot(checkpoints.read_bounded(disk, path, checkpoints.MAX_CHECKPOINT_BYTES))
    except (producer_snapshots.CorruptSnapshot, checkpoints.MalformedCheckpoint):
        return None


def find_undecided(disk: Disk, directory: str, segments: SegmentList, hw: int, end: int) -> dict[int, int]:
    """Find the transactions whose marker is in [hw, end), which snapshots do not tell: first offset -> offset of the marker.

    Rare: a replica that restarts with markers beyond the HW, or whose new leader has a lower HW. Only where there are such
    markers the log is replayed, from the newest snapshot that is not beyond the HW.
    """
    try:
        if not _has_markers(segments, hw, end):
            return {}
        replayed, origin = ProducerState(), 0
        for offset in sorted(producer_snapshots.list_snapshots(disk, directory), reverse=True):
            entries = _read(disk, directory, offset) if offset <= hw else None
            if entries is not None:
                replayed.restore(entries)
                origin = offset
                break
        replay_producers(segments, replayed, origin, end, None)
    except ApiError:
        return {}  # a damaged batch is for whoever reads it
    return replayed.undecided_from(hw)


def _has_markers(segments: SegmentList, start: int, end: int) -> bool:
    for segment in segments.from_offset(start):
        position = segment.position_of(start) if start > segment.base_offset else 0
        if segment.size == 0 or position is None:
            continue
        for _, header in segment.headers(position):
            if header.base_offset >= end:
                return False
            if header.is_control and header.is_transactional:
                return True
    return False


def recall_batches(segments: SegmentList, producers: ProducerState, end: int) -> None:
    """Recall what a snapshot at `end` does not hold: the batches before each producer's last one, from the log's last bytes.

    A client may have several requests under way when all replicas restart, and sends all of them again. Best effort: without
    these, all but the last are refused as out of order.
    Departs: Kafka knows only the last batch then, and idempotent clients give up.
    """
    if not len(producers):
        return
    found: list[BatchHeader] = []
    for size in RECALL_BYTES:
        found, whole = _tail_headers(segments, end, size)
        if whole or len(found) >= RECALL_BATCHES:
            break
    producers.recall(found)


def _tail_headers(segments: SegmentList, end: int, size: int) -> tuple[list[BatchHeader], bool]:
    """The batches in about the last `size` bytes before offset `end`, and whether that is all there are."""
    parts: list[tuple[Segment, int]] = []
    for segment in reversed(list(segments)):
        if size <= 0:
            break
        if segment.base_offset >= end or segment.size == 0:
            continue
        stop = segment.position_of(end)
        length = segment.size if stop is None else stop
        parts.append((segment, segment.boundary_at_or_below(length - size, 0) if length > size else 0))
        size -= length
    found: list[BatchHeader] = []
    try:
        for segment, position in reversed(parts):
            found += itertools.takewhile(lambda h: h.base_offset < end, (header for _, header in segment.headers(position)))
    except ApiError:
        return [], True  # a damaged batch is for whoever reads it
    return found, size > 0


def replay_producers(segments: SegmentList, producers: ProducerState, start: int, leo: int, index_from: int | None) -> None:
    """Feed the batches of [start, leo) to `producers`."""
    for segment in segments.from_offset(start):
        if segment.size == 0:
            continue
        position = segment.position_of(start) if start > segment.base_offset else 0
        if position is None:
            continue
        for at, header in segment.headers(position):
            if header.base_offset >= leo:
                return
            if header.producer_id < 0 or header.base_offset < start:
                continue
            if not header.is_control:
                producers.append_batch(header, header.base_offset, header.max_timestamp)
                continue
            marker = marker_of(segment.file.pread(header.size_bytes, at))
            if marker is None:
                continue
            done = producers.append_marker(header, marker, header.base_offset, header.max_timestamp)
            aborted = producers.complete(done) if done is not None else None
            if aborted is not None and index_from is not None and segment.base_offset >= index_from:
                segment.txn_index.append(aborted)
