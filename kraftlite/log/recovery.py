"""Opening a log directory: leftovers, segments, indexes, epochs and producer state, after a clean shutdown or a crash.

After a crash every segment from the one that holds the recovery point on is checked batch by batch. The log ends at the first
bad byte. What is below the recovery point was fsynced and is trusted, and so is everything after a clean shutdown, unless the
ends of the segments contradict it: then the log is checked from there on.

Source: LG-19, LG-26 to LG-30; RP-28.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kraftlite.log import checkpoints, producer_snapshots
from kraftlite.log.batch import BatchHeader
from kraftlite.log.config import LogConfig
from kraftlite.log.epochs import LeaderEpochCache
from kraftlite.log.holes import end_behind_hole
from kraftlite.log.indexes import CorruptIndex
from kraftlite.log.leftovers import remove_leftovers
from kraftlite.log.producer_reload import reload_producers
from kraftlite.log.producers import ProducerState
from kraftlite.log.promises import LogAhead, LogDamaged, Promise, base_of, bases_of, check_names
from kraftlite.log.segment import (
    INDEX_SUFFIX,
    SEGMENT_SUFFIXES,
    TXN_INDEX_SUFFIX,
    Segment,
    segment_path,
)
from kraftlite.log.segments import SegmentList
from kraftlite.log.set_aside import set_aside
from kraftlite.model.errors import ApiError
from kraftlite.model.limits import MAX_INT64, PRODUCER_BATCHES
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.ports import Disk, Tracer
from kraftlite.runtime.trace.log import EpochsCollected, IndexRebuilt, LogDoubted, LogRecovered, SegmentSetAside


@dataclass(slots=True, kw_only=True)
class LoadedLog:
    """The log that was found: offsets [log_start_offset, leo)."""

    segments: SegmentList
    leo: int
    log_start_offset: int
    recovery_point: int
    epochs: LeaderEpochCache
    epochs_filed: bool
    """There is a file that holds epochs."""
    producers: ProducerState
    deleted: tuple[str, ...] = ()
    """Files of segments that were deleted before, and are to be unlinked when that was stated."""


@dataclass(slots=True, kw_only=True)
class Loader:
    """One opening of one directory. `jitter` draws a segment's roll jitter."""

    disk: Disk
    directory: str
    tp: TopicPartition
    config: LogConfig
    wall_ms: int
    jitter: Callable[[], int]
    tracer: Tracer
    max_epoch: int | None = None
    """No batch is of a later leader epoch; None: not known."""
    promise: Promise | None = None
    """The promise that the log must keep; None: nobody promises anything, and what is damaged is cut off."""
    producer_batches: int = PRODUCER_BATCHES
    _must_reach: int = field(default=0, init=False)
    _has_holes: bool = field(default=False, init=False)
    """Offsets are missing between batches that were scanned, or before the first one."""
    _without_index: set[int] = field(default_factory=set, init=False)
    """The base offsets of the segments that were found with neither an offset index nor a transaction index."""

    def create(self, log_start_offset: int) -> LoadedLog:
        """The log of a directory in which nothing is yet. Touches no file."""
        segment = self._create(log_start_offset, deferred=True)
        segment.start_tail(log_start_offset)
        return LoadedLog(
            segments=SegmentList(segment),
            leo=log_start_offset,
            log_start_offset=log_start_offset,
            recovery_point=log_start_offset,
            epochs=LeaderEpochCache(),
            epochs_filed=False,
            producers=ProducerState(self.producer_batches),
        )

    def load(self, names: Sequence[str], log_start_offset: int, recovery_point: int, *, clean: bool) -> LoadedLog:
        """`names`: those of the directory. Raises OSError; LogDamaged when the files contradict the promise."""
        stated, deleting = None, False
        if self.promise is not None:
            deleting = check_names(self.promise, self.directory, names, recovery_point, self.config.deletes)
            stated = self.promise.stated
            if stated is not None:
                log_start_offset, recovery_point = stated.start, stated.end
            elif recovery_point == 0 and not bases_of(names):
                log_start_offset = 0  # of an older topic of this name
        names, deleted = remove_leftovers(self.disk, self.directory, names, self.tp, self.tracer, keep_deleted=deleting)
        if not recovery_point and not log_start_offset and set(names) <= {checkpoints.PARTITION_METADATA}:
            return self.create(0)  # it never had a record: with many partitions most are such
        segments = self._find_segments(names, log_start_offset)
        filed = checkpoints.LEADER_EPOCH_CHECKPOINT in names
        epochs, trusted = self._load_epochs(segments, log_start_offset, clean) if filed else (LeaderEpochCache(), False)
        # At a boundary the segment before it counts as unflushed: its indexes may not have been part of the last flush.
        first = len(segments) if clean else segments.index_of(max(recovery_point - 1, 0))
        flushed = recovery_point
        self._must_reach = 0 if self.promise is None else self.promise.end(recovery_point, segments.active.base_offset)
        doubt = self._doubt(segments, first, recovery_point, ends_there=clean and stated is not None)
        if doubt is not None:
            # What was said to be good is not: nothing said about the segments from there on counts.
            first, reason = doubt
            clean, recovery_point = False, min(recovery_point, segments[first].base_offset)
            self.tracer.emit(LogDoubted(tp=self.tp, base_offset=segments[first].base_offset, reason=reason))
        first_checked = None if clean else segments[first].base_offset
        if not trusted:
            collect_epochs(segments, epochs, below=first_checked, max_epoch=self.max_epoch)
        leo = self._trust(segments) if clean else self._recover(segments, epochs, first, recovery_point, flushed)
        if self.promise is not None:
            leo = self._check_end(segments, epochs, leo, log_start_offset, recovery_point)
        log_start_offset = max(log_start_offset, segments.first.base_offset)
        snapshots = producer_snapshots.offsets_of(names)
        if leo < log_start_offset:
            self._restart(segments, log_start_offset, snapshots)
            snapshots = []
            epochs.clear()
            leo = log_start_offset
        epochs.truncate_from_end(leo)
        epochs.truncate_from_start(log_start_offset)
        producers = ProducerState(self.producer_batches)
        reload_producers(
            self.disk,
            self.directory,
            segments,
            producers,
            known=snapshots,
            leo=leo,
            trust_below=leo if first_checked is None else first_checked,
            index_from=first_checked,
            expired_before_ms=self.wall_ms - self.config.producer_id_expiration_ms,
            tracer=self.tracer,
            tp=self.tp,
        )
        segments.active.start_tail(leo)
        return LoadedLog(
            segments=segments,
            leo=leo,
            log_start_offset=log_start_offset,
            recovery_point=leo if clean else min(recovery_point, leo),
            epochs=epochs,
            epochs_filed=trusted,
            producers=producers,
            deleted=deleted,
        )

    def _check_end(
        self, segments: SegmentList, epochs: LeaderEpochCache, leo: int, log_start_offset: int, recovery_point: int
    ) -> int:
        """Check that the log reaches as far as was promised; return where it ends. Raises LogDamaged."""
        promise, last = self.promise, segments.active
        assert promise is not None
        # Where offsets are missing, what is left may be another log's.
        promise.check_end(leo, self._must_reach, f"{last.path} ends at offset {leo}", more_behind=self._has_holes)
        stated = promise.stated
        if leo < self._must_reach:
            # The others have it. What is left of this segment may be one of another log, whose CRCs are right, too.
            self._set_aside(segments, f"the log ends at offset {leo}, and {self._must_reach} was promised")
            return last.base_offset
        if promise.accept_loss:
            end = max(leo, log_start_offset if stated is None else max(stated.start, stated.end), recovery_point)
            if end > leo:  # an offset that was given once is not given again
                end_behind_hole(segments, epochs, end, self._create)
            return end
        if stated is None and leo < log_start_offset and segments.size_bytes:
            raise LogDamaged(
                f"{self.directory} ends at offset {leo}, though {checkpoints.LOG_START_CHECKPOINT} says that it begins at "
                f"{log_start_offset}: one of them is wrong"
            )
        return leo

    def _set_aside(self, segments: SegmentList, reason: str) -> None:
        """Begin the last segment anew, and keep all that was in it in a file that nothing reads."""
        last = segments.active
        size = last.file.size() if self.disk.stat(last.path) is not None else 0
        if size:
            kept = set_aside(self.disk, self.directory, last.path)
            self.tracer.emit(SegmentSetAside(tp=self.tp, base_offset=last.base_offset, file=kept, size_bytes=size, reason=reason))
        last.close()
        last.unlink()
        segments.replace_active(self._create(last.base_offset))

    def _find_segments(self, names: Sequence[str], log_start_offset: int) -> SegmentList:
        """All segments of the directory; a new one at `log_start_offset` when there is none. Indexes without a log go."""
        bases = bases_of(names)
        for name in names:
            _, dot, suffix = name.partition(".")
            base = base_of(name, dot + suffix) if dot + suffix in SEGMENT_SUFFIXES else None
            if base is not None and base not in bases:
                self.disk.unlink(f"{self.directory}/{name}")
        if not bases:
            return SegmentList(self._create(log_start_offset, deferred=True))
        indexed = {*bases_of(names, INDEX_SUFFIX), *bases_of(names, TXN_INDEX_SUFFIX)}
        self._without_index = {base for base in bases if base not in indexed}  # before any of them is made again
        loaded = [self._load_segment(base) for base in bases]
        segments = SegmentList(loaded[0])
        for segment in loaded[1:]:
            segments.add(segment)
        return segments

    def _create(self, base_offset: int, *, deferred: bool = False) -> Segment:
        return Segment.create(
            self.disk,
            self.directory,
            base_offset,
            self.config,
            created_ms=self.wall_ms,
            jitter_ms=self.jitter(),
            deferred=deferred,
        )

    def _load_segment(self, base: int) -> Segment:
        stat = self.disk.stat(segment_path(self.directory, base))
        size = stat.size if stat is not None else 0
        return Segment.load(
            self.disk, self.directory, base, self.config, size=size, created_ms=self.wall_ms, jitter_ms=self.jitter()
        )

    def _load_epochs(self, segments: SegmentList, log_start_offset: int, clean: bool) -> tuple[LeaderEpochCache, bool]:
        """The cache, and whether the file could be used. It can be collected again from the batches.

        A file that knows of a later epoch than there ever was, or of another one for the first batch of a segment or the last
        of all, is not used: its replica could never lead, or would be truncated at the wrong place.
        """
        path = f"{self.directory}/{checkpoints.LEADER_EPOCH_CHECKPOINT}"
        try:
            data = checkpoints.read_bounded(self.disk, path, checkpoints.MAX_SMALL_FILE_BYTES)
            epochs = LeaderEpochCache(checkpoints.parse_epochs(path, data))
        except FileNotFoundError:
            return LeaderEpochCache(), False
        except checkpoints.MalformedCheckpoint as error:
            stat = self.disk.stat(path)
            if stat is not None and stat.is_dir:
                self.disk.rmtree(path)  # somebody's; under this name it is in the way of the file
            self.tracer.emit(EpochsCollected(tp=self.tp, reason=str(error)))
            return LeaderEpochCache(), False
        self._check_not_ahead(epochs, segments)
        problem = self._wrong_epochs(epochs, segments, log_start_offset, clean)
        if problem is None:
            return epochs, True
        self.tracer.emit(EpochsCollected(tp=self.tp, reason=f"{path}: {problem}"))
        return LeaderEpochCache(), False

    def _check_not_ahead(self, epochs: LeaderEpochCache, segments: SegmentList) -> None:
        """Check that the metadata is not older than the log. Raises LogAhead.

        No bit that flips gives a batch and the file the same epoch at the same offset: then there was such a leader, and who does
        not know of it is a controller whose files were put back from a copy. What is damaged is not the log.
        """
        if self.max_epoch is None or self.promise is None or self.promise.accept_loss:
            return
        for epoch, start in epochs.entries:
            header = _header_at(segments, start) if epoch > self.max_epoch else None
            if header is not None and header.partition_leader_epoch == epoch:
                raise LogAhead(
                    f"{self.directory} has records of leader epoch {epoch} from {header.base_offset} on, though the metadata "
                    f"knows no later one than {self.max_epoch}: the metadata of the controllers is older than this log"
                )

    def _wrong_epochs(self, epochs: LeaderEpochCache, segments: SegmentList, log_start_offset: int, clean: bool) -> str | None:
        latest = epochs.latest_epoch
        if latest is not None and self.max_epoch is not None and latest > self.max_epoch:
            return f"leader epoch {latest}, though {self.max_epoch} is the latest"
        headers = [segment.first for segment in segments]
        if clean:
            with contextlib.suppress(ApiError):  # a damaged end is somebody else's business
                headers.append(segments.active.last_header())
        # What the log start has moved past has no entry; where nothing is promised, the log start is not known here.
        from_offset = log_start_offset if self.promise is not None else MAX_INT64
        cut = epochs.entries and epochs.entries[0][1] > from_offset  # at a log start that a crash has forgotten
        for header in (*headers, _header_at(segments, from_offset) if cut else None):
            if header is None or (epoch := header.partition_leader_epoch) < 0:
                continue
            offset = max(header.base_offset, from_offset if header.last_offset >= from_offset else 0)
            if (said := epochs.epoch_at(offset)) != epoch and (said is not None or offset >= from_offset):
                return f"leader epoch {said} at offset {offset}, where the batch is of epoch {epoch}"
        return None

    def _doubt(
        self, segments: SegmentList, count: int, recovery_point: int, *, ends_there: bool = False
    ) -> tuple[int, str] | None:
        """Check the first `count` segments, which were flushed: return the first that cannot be what was flushed, and why.

        A look at the ends of each, not a scan: time is that of the number of segments, not of their size (LG-27). A bit that
        flipped inside a flushed batch is not found here; who reads the batch finds it by its CRC, as with Kafka.
        Departs: Kafka takes a segment that is missing, or cut at the end of a batch, for what there is.
        """
        for index in range(count):
            segment = segments[index]
            try:
                segment.txn_index.load(self.disk)
                if self._lost_aborted(segment):
                    return index, f"{segment.path} has transactions, and all of its indexes are gone"
                last = segment.check_tail(crc=index + 1 == len(segments))
            except (ApiError, CorruptIndex) as error:
                return index, str(error)
            end = segment.base_offset if last is None else last.next_offset
            if last is not None and self.max_epoch is not None and last.partition_leader_epoch > self.max_epoch:
                return index, f"{segment.path}: leader epoch {last.partition_leader_epoch}, though {self.max_epoch} is the latest"
            if index + 1 < len(segments):
                following = segments[index + 1].base_offset
                if end > following or (end < following and not self._may_miss(following)):
                    return index, f"{segment.path} ends at offset {end}, the next segment begins at {following}"
            elif end < recovery_point:
                return index, f"{segment.path} ends at offset {end}, though everything below {recovery_point} was flushed"
            elif end > recovery_point and ends_there:
                return index, f"{segment.path} ends at offset {end}, though the log was closed at {recovery_point}"
        return None

    def _lost_aborted(self, segment: Segment) -> bool:
        """Return whether the transaction index went with the others. That of a segment without aborted transactions has no file,
        so it is not missed by itself; but who removes indexes, because they are made again, removes all of them (LG-28).
        """
        if not segment.size or segment.base_offset not in self._without_index:
            return False
        return any(header.is_control and header.is_transactional for _, header in segment.headers())

    def _may_miss(self, offset: int) -> bool:
        """Return whether there may be a gap right before `offset`."""
        return self.config.compacted or (self.promise is not None and offset <= self.promise.gaps_below)

    # clean

    def _trust(self, segments: SegmentList) -> int:
        for segment in segments:
            problem = segment.index_problem()
            if problem is not None and segment.size > 0:
                segment.rebuild_indexes()
                segment.sync_indexes()
                self.tracer.emit(IndexRebuilt(tp=self.tp, base_offset=segment.base_offset, reason=problem))
            elif problem is not None:
                segment.rewrite_indexes()
        last = segments.active.last_header()
        return last.next_offset if last is not None else segments.active.base_offset

    # unclean

    def _recover(self, segments: SegmentList, epochs: LeaderEpochCache, first: int, recovery_point: int, flushed: int) -> int:
        expected = segments[first].base_offset
        filed = deque(entry for entry in epochs.entries if entry[1] >= expected)
        epochs.truncate_from_end(expected)
        checked = dropped = dropped_segments = 0
        reason: str | None = None
        for index in range(first, len(segments)):
            segment = segments[index]
            total = segment.size
            reason = self._misplaced(segment, expected, is_first=index == first)
            if reason is None:
                accept = self._accept(epochs, filed, expected, flushed)
                expected = max(expected, segment.base_offset)  # compaction may have left a hole
                scan = segment.scan(expected, accept)
                expected, reason = max(scan.next_offset, expected), scan.reason
                checked += scan.valid_bytes
                index += 1
                if reason is None and not scan.valid_bytes and index < len(segments):
                    reason = "it is empty, and others follow"
                if reason is not None:
                    self._check_cut(segment, expected, reason, more_behind=index < len(segments))
                    dropped += total - scan.valid_bytes
                    if expected >= self._must_reach:  # else it is set aside, with all that is in it
                        segment.file.truncate(scan.valid_bytes)
                segment.write_indexes()
                if reason is not None and self._accepts_loss and index < len(segments):
                    expected, reason = max(expected, segments[index].base_offset), None
            else:
                self._check_cut(segment, expected, reason, more_behind=True)
            if reason is not None:
                while len(segments) > index:
                    dropped += segments.active.size
                    dropped_segments += 1
                    dropped_segment = segments.drop_last()
                    dropped_segment.close()
                    dropped_segment.unlink()
                break
        if dropped_segments:
            self.disk.sync_dir(self.directory)
        if checked or dropped or dropped_segments:
            self.tracer.emit(
                LogRecovered(
                    tp=self.tp,
                    recovery_point=recovery_point,
                    leo=expected,
                    checked_bytes=checked,
                    dropped_bytes=dropped,
                    dropped_segments=dropped_segments,
                    reason=reason,
                )
            )
        return expected

    @property
    def _accepts_loss(self) -> bool:
        return self.promise is not None and self.promise.accept_loss

    def _check_cut(self, segment: Segment, expected: int, reason: str, *, more_behind: bool) -> None:
        """Check a cut before anything is thrown away. Raises LogDamaged when the records were promised."""
        if self.promise is not None:
            behind = more_behind or self._has_holes
            self.promise.check_end(expected, self._must_reach, f"{segment.path}: {reason}", more_behind=behind)

    def _accept(
        self, epochs: LeaderEpochCache, filed: deque[tuple[int, int]], expected: int, flushed: int
    ) -> Callable[[BatchHeader], str | None]:
        """Judge each intact batch that a scan reports. Its CRC covers neither base offset nor leader epoch: a bit that flipped
        there shows only in what is known otherwise. Departs: Kafka takes any offset and epoch that grow.

        Below `flushed` there may be holes though the topic is not compacted: it may have been once. `filed`: what the file says
        of the epochs that begin from here on. It counts where there is a hole: an epoch begins where its leader began to write,
        and not at the first batch that compaction has left of it (RP-31).
        """
        dense, max_epoch, next_offset = not self.config.compacted, self.max_epoch, expected
        if self.promise is not None:
            flushed = max(flushed, self.promise.gaps_below)
            stated = self.promise.stated
            if self.promise.accept_loss and stated is not None:
                flushed = stated.end  # behind that there was nothing that could be missing

        def accept(header: BatchHeader) -> str | None:
            nonlocal next_offset
            if dense and header.base_offset != next_offset and header.base_offset >= flushed:
                return f"offset {header.base_offset} where {next_offset} was expected"
            if max_epoch is not None and header.partition_leader_epoch > max_epoch:
                return f"leader epoch {header.partition_leader_epoch}, though {max_epoch} is the latest"
            while filed and filed[0][1] < header.base_offset:
                epoch, start = filed.popleft()
                if start >= next_offset and epoch <= header.partition_leader_epoch:
                    epochs.assign(epoch, start)
            self._has_holes |= header.base_offset > next_offset
            next_offset = header.next_offset
            return _note_epoch(epochs, header)

        return accept

    def _misplaced(self, segment: Segment, expected: int, *, is_first: bool) -> str | None:
        """Say why this segment cannot follow a log that ends at `expected`: its predecessor lost its tail, or it is stale."""
        if is_first or segment.base_offset == expected:
            return None
        if segment.base_offset < expected:
            return f"segment {segment.base_offset} overlaps what ends at {expected}"
        if self._may_miss(segment.base_offset):
            return None
        return f"segment {segment.base_offset} does not follow offset {expected}"

    def _restart(self, segments: SegmentList, offset: int, snapshots: Sequence[int]) -> None:
        """Nothing that is left is wanted: remove it all, newest first, and start empty at `offset` (LG-30)."""
        for segment in reversed(list(segments)):
            segment.close()
            segment.unlink()
        producer_snapshots.delete_snapshots(self.disk, self.directory, snapshots)
        segments.restart(self._create(offset))
        self.disk.sync_dir(self.directory)


def _header_at(segments: SegmentList, offset: int) -> BatchHeader | None:
    """Return the header of the batch with this offset; None where there is none that can be read."""
    with contextlib.suppress(ApiError):
        for segment in segments.from_offset(offset):
            position = segment.position_of(offset) if segment.size else None
            return None if position is None else next((header for _, header in segment.headers(position)), None)
    return None


def _note_epoch(epochs: LeaderEpochCache, header: BatchHeader) -> str | None:
    """Leader epochs never decrease within a log: a batch that breaks this is a stale remnant."""
    epoch, latest = header.partition_leader_epoch, epochs.latest_epoch
    if epoch < 0 or epoch == latest:
        return None
    if latest is not None and epoch < latest:
        return f"leader epoch {epoch} behind {latest}"
    epochs.assign(epoch, header.base_offset)
    return None


def collect_epochs(segments: SegmentList, epochs: LeaderEpochCache, *, below: int | None, max_epoch: int | None = None) -> None:
    """Collect the cache anew from the batches of all segments (None), or of those with a base offset below `below`.

    A batch of a later epoch than `max_epoch` has a bit that flipped there, which no CRC covers: it says nothing.
    """
    epochs.clear()
    for segment in segments:
        if below is not None and segment.base_offset >= below:
            return
        for _, header in segment.headers():
            if max_epoch is None or header.partition_leader_epoch <= max_epoch:
                _note_epoch(epochs, header)
