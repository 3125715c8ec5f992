"""Reads for clients: fetches, offsets by time, ends of leader epochs.

Source: RP-13, RP-14, RP-30, RP-31, RP-41; LG-23, LG-49 to LG-51; CP-18, CP-21, CP-22; KIP-207, KIP-320, KIP-392.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final
from uuid import UUID

from kraftlite.log.log import Log
from kraftlite.log.reads import Found
from kraftlite.log.seek import Seeker
from kraftlite.log.stored import StoredRecords
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.limits import KIB, MAX_INT32
from kraftlite.model.messages.replica import EpochEndOffset
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.replication.api import FetchEntry, FetchParams, FetchResult, OffsetResult
from kraftlite.replication.partition import Partition
from kraftlite.replication.purgatory import Deadlines
from kraftlite.replication.table import PartitionTable

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4

_HINTED: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


READ_AT_ONCE_BYTES: Final = 64 * KIB
"""The records of one fetch that are read at once; what is beyond stays in its files until the client's socket takes it. Below,
one read and one write are cheaper."""


class FetchWait:
    """A client's fetch that waits for data, or for its time to be over. `ready` is called once per `watch`."""

    __slots__ = ("_due", "_path", "_ready", "_watched", "_watching", "expired", "params")

    def __init__(self, path: ConsumePath, params: FetchParams, ready: Callable[[], None]) -> None:
        self._path = path
        self._ready = ready
        self._watched: list[Partition] = []
        self._watching = False
        self.params = params
        self.expired = False
        self._due = path.deadlines.add(self, params.max_wait_ms)

    def watch(self, entries: Iterable[FetchEntry]) -> None:
        """Watch the partitions until one of them has something new."""
        self._watching = True
        for entry in entries:
            partition = self._path.table.by_tp.get(entry.tp)
            if partition is not None:
                partition.waiters[self] = None
                self._watched.append(partition)
        if self.expired:
            self.wake()

    def wake(self) -> None:
        if self._watching:
            self._forget()
            self._ready()

    def expire(self) -> None:
        self.expired = True
        self.wake()

    def _forget(self) -> None:
        self._watching = False
        for partition in self._watched:
            partition.waiters.pop(self, None)
        self._watched.clear()

    def done(self) -> bool:
        return self._due < 0

    def cancel(self) -> None:
        """Stop waiting: the fetch is answered, or nobody wants the answer any more."""
        self._forget()
        if self._due >= 0:
            self._path.deadlines.remove(self, self._due)
            self._due = -1


def find_divergence(log: Log, fetch_offset: int, last_fetched_epoch: int | None) -> EpochEndOffset | None:
    """Find where a log that ends at `fetch_offset` with `last_fetched_epoch` stops being a prefix of ours; None when it is one.

    OFFSET_OUT_OF_RANGE below the log start; when the epoch is newer than all that we know; and beyond the leo where the epoch
    does not say where the logs part (RP-31, LG-41).
    """
    if last_fetched_epoch is not None and fetch_offset >= log.log_start_offset:
        end = log.end_offset_for_epoch(last_fetched_epoch)
        if end is None:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{log.tp}: no end is known for leader epoch {last_fetched_epoch}")
        if end.leader_epoch < last_fetched_epoch or end.end_offset < fetch_offset:
            return end
    if not log.log_start_offset <= fetch_offset <= log.leo:
        raise ApiError(
            ErrorCode.OFFSET_OUT_OF_RANGE, f"{log.tp}: offset {fetch_offset} is outside [{log.log_start_offset}, {log.leo}]"
        )
    return None


class FetchRoom:
    """The room that one fetch has left for records."""

    __slots__ = ("at_once", "empty", "left", "params")

    def __init__(self, params: FetchParams) -> None:
        self.params = params
        self.left = params.max_bytes
        self.empty = True
        self.at_once = READ_AT_ONCE_BYTES

    def take(self, size: int) -> None:
        if size:
            self.empty = False
            self.left = max(0, self.left - size)


class ConsumePath:
    """The reads of clients. `rack_aware`: whether a consumer at the leader may be sent to a replica in its rack."""

    def __init__(
        self,
        table: PartitionTable,
        deadlines: Deadlines,
        on_io_error: Callable[[OSError, TopicPartition], None],
        *,
        rack_aware: bool,
    ) -> None:
        self.table = table
        self.deadlines = deadlines
        self._on_io_error = on_io_error
        self._rack_aware = rack_aware

    # --- fetch --------------------------------------------------------------------------------------------------------

    def fetch_now(self, params: FetchParams, entries: Sequence[FetchEntry]) -> list[FetchResult]:
        """Read in the order of `entries`; `max_bytes` is for all, but the first batch found is always returned (LG-50)."""
        return self.fetch_some(FetchRoom(params), entries)

    def fetch_some(self, room: FetchRoom, entries: Sequence[FetchEntry]) -> list[FetchResult]:
        """The next entries of a fetch that is read in parts."""
        results: list[FetchResult] = []
        for entry in entries:
            try:
                result = self._read(room, entry)
            except ApiError as error:
                result = self._refused(entry.tp, error)
            except OSError as error:
                self._on_io_error(error, entry.tp)
                result = self._refused(entry.tp, ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))
            results.append(result)
        return results

    def _refused(self, tp: TopicPartition, error: ApiError) -> FetchResult:
        partition = self.table.by_tp.get(tp)
        if partition is not None:
            partition.traffic.fetch_failed(error.code)
        return FetchResult(
            tp=tp,
            error=error.code,
            hw=-1,
            last_stable_offset=-1,
            log_start_offset=-1,
            records=b"",
            leader=self.table.hint(tp) if error.code in _HINTED else None,
        )

    def _read(self, room: FetchRoom, entry: FetchEntry) -> FetchResult:
        params = room.params
        partition = self.table.find(entry.tp, entry.topic_id)
        log = partition.online_log()
        partition.check_epoch(entry.current_leader_epoch)
        if params.leader_only:
            partition.leading()
        offset, hw = entry.fetch_offset, log.hw
        diverging = find_divergence(log, offset, entry.last_fetched_epoch)
        preferred = None if diverging is not None else self._preferred_replica(params, partition, offset)
        stable = log.last_stable_offset
        bound = stable if params.read_committed else hw
        records: bytes | StoredRecords = b""
        readable = 0
        found: Found | None = None
        if diverging is None and preferred is None and offset < bound:
            found = log.find(offset, min(entry.max_bytes, room.left), up_to=bound, min_one=room.empty)
            if found is not None:
                readable = MAX_INT32 if found.more else min(found.extent.readable, entry.max_bytes)
                size = found.size
                if size and size <= room.at_once:
                    records = found.read()
                    room.at_once -= size
                elif size:
                    records = found.segment.stored(found.extent, lambda error: self._on_io_error(error, entry.tp))
                room.take(size)
                if size:
                    partition.traffic.read(size)
        return FetchResult(
            tp=entry.tp,
            error=ErrorCode.NONE,
            hw=hw,
            last_stable_offset=stable,
            log_start_offset=log.log_start_offset,
            records=records,
            aborted=_aborted(log, offset, found if records else None, bound) if params.read_committed else None,
            diverging=diverging,
            preferred_read_replica=preferred,
            readable=readable,
        )

    def _preferred_replica(self, params: FetchParams, partition: Partition, offset: int) -> NodeId | None:
        """A replica in the consumer's rack that is in the ISR and has what it wants; None: read here (RP-41)."""
        leader = partition.leader
        if not self._rack_aware or not params.rack_id or leader is None:
            return None
        brokers = self.table.image.cluster.brokers
        own = brokers.get(partition.leader_id) if partition.leader_id is not None else None
        if own is not None and own.rack == params.rack_id:
            return None
        best: tuple[int, NodeId] | None = None
        for broker_id in leader.isr.committed:
            follower, broker = leader.followers.get(broker_id), brokers.get(broker_id)
            if follower is None or broker is None or broker.rack != params.rack_id or not broker.active:
                continue
            leo = follower.leo
            if leo is not None and follower.log_start_offset <= offset <= leo and (best is None or leo > best[0]):
                best = (leo, broker_id)
        return None if best is None else best[1]

    def wait(self, params: FetchParams, ready: Callable[[], None]) -> FetchWait:
        """Wait on behalf of a fetch that `may_wait`: its time begins now. It is repeated until there are `min_bytes`, there is
        something urgent to say, or `max_wait_ms` are over (CP-18)."""
        return FetchWait(self, params, ready)

    # --- offsets ------------------------------------------------------------------------------------------------------

    def list_offset(
        self,
        tp: TopicPartition,
        topic_id: UUID | None,
        timestamp: int,
        *,
        current_leader_epoch: int | None,
        read_committed: bool,
        debug: bool,
        version5_plus: bool,
        seeker: Seeker | None,
    ) -> OffsetResult:
        seeker = seeker or Seeker()
        try:
            partition = self.table.find(tp, topic_id)
            log = partition.online_log()
            partition.check_epoch(current_leader_epoch)
            if debug:
                return _offset_at(partition, log, timestamp, log.leo, None, seeker)
            leader, _ = partition.leading()
            bound = log.last_stable_offset if read_committed else log.hw
            unsettled = None
            if log.hw < leader.epoch_start_offset:
                code = ErrorCode.OFFSET_NOT_AVAILABLE if version5_plus else ErrorCode.LEADER_NOT_AVAILABLE
                unsettled = ApiError(code, f"{tp}: the HW has not reached the start of leader epoch {partition.leader_epoch}")
            return _offset_at(partition, log, timestamp, bound, unsettled, seeker)
        except ApiError as error:
            return OffsetResult(error=error.code)
        except OSError as error:
            self._on_io_error(error, tp)
            return OffsetResult(error=ErrorCode.KAFKA_STORAGE_ERROR)

    def offset_for_leader_epoch(
        self, tp: TopicPartition, *, current_leader_epoch: int | None, leader_epoch: int
    ) -> tuple[ErrorCode, int, int]:
        try:
            _, log = self.table.find(tp, None).leading(current_leader_epoch)
        except ApiError as error:
            return error.code, -1, -1
        end = log.end_offset_for_epoch(leader_epoch)
        return (ErrorCode.NONE, -1, -1) if end is None else (ErrorCode.NONE, end.leader_epoch, end.end_offset)


def may_wait(params: FetchParams, results: Sequence[FetchResult]) -> bool:
    """Return whether an answer has too few bytes and nothing urgent to say.

    What counts is what could be read if only the partition's own maximum cut it, and everything when more segments follow: an
    answer that a maximum has cut to less than `min_bytes` gets no fuller by waiting. Source: CP-18, Kafka's DelayedFetch.
    """
    if params.max_wait_ms <= 0:
        return False
    size = 0
    for result in results:
        if result.error is not ErrorCode.NONE or result.diverging is not None or result.preferred_read_replica is not None:
            return False
        size += max(len(result.records), result.readable)
    return bool(results) and size < params.min_bytes


def _aborted(log: Log, offset: int, found: Found | None, bound: int) -> tuple[tuple[int, int], ...]:
    """Aborted transactions that overlap what was read, below `bound`. More of them do no harm: clients look at the offsets."""
    if found is None or not log.has_aborted_from(offset):
        return ()
    try:
        end = found.next_offset()
    except ApiError:
        end = bound  # a damaged batch is for whoever reads it
    return log.aborted_transactions(offset, end)


def _offset_at(
    partition: Partition, log: Log, timestamp: int, bound: int, unsettled: ApiError | None, seeker: Seeker
) -> OffsetResult:
    """`unsettled`: why offsets above `bound` cannot be told apart from offsets that do not exist (RP-14)."""
    if timestamp == LATEST:
        if unsettled is not None:
            raise unsettled
        return OffsetResult(error=ErrorCode.NONE, offset=bound, leader_epoch=partition.leader_epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        epoch = log.epoch_at(log.log_start_offset)
        return OffsetResult(error=ErrorCode.NONE, offset=log.log_start_offset, leader_epoch=-1 if epoch is None else epoch)
    if timestamp == MAX_TIMESTAMP:
        found = log.offset_of_max_timestamp(seeker=seeker)
        if found is not None and found.offset >= bound:  # whoever cannot read it is not told of a smaller one
            found = None
    else:
        found = log.offset_for_timestamp(timestamp, up_to=bound, seeker=seeker)
    if found is None:
        if unsettled is not None:
            raise unsettled
        return OffsetResult(error=ErrorCode.NONE)
    epoch = found.leader_epoch
    return OffsetResult(
        error=ErrorCode.NONE, offset=found.offset, timestamp=found.timestamp, leader_epoch=-1 if epoch is None else epoch
    )
