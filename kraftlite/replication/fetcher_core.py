"""The follower's side of replica fetches, for one fetcher and one leader broker: what to ask, what to do with the answer.

Source: KIP-227 (sessions), KIP-595 (divergence); RP-15, RP-31 to RP-39.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final
from uuid import UUID

from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.limits import MAX_INT32
from kraftlite.model.messages.replica import (
    EpochEndOffset,
    ForgottenPartition,
    ReplicaFetchPartition,
    ReplicaFetchRequest,
    ReplicaFetchResponse,
    ReplicaFetchResult,
    ReplicaOffsets,
    ReplicaOffsetsPartition,
    ReplicaOffsetsRequest,
)
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.model.tuning import Tuning
from kraftlite.replication.config import ReplicationConfig
from kraftlite.replication.follower_state import (
    adopt_leader_offsets,
    append_fetched,
    last_fetched_epoch,
    reset_to_leader_range,
    truncate_to_divergence,
)
from kraftlite.replication.partition import Partition
from kraftlite.replication.throttle import ReplicationThrottle
from kraftlite.runtime.ports import Tracer
from kraftlite.runtime.trace.partition import Diverged, FetchFailed, FetchPaused, OffsetReset

SESSION_ERRORS: Final = frozenset({ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH})

Key = tuple[UUID, int]


class Followed:
    """One partition of a fetcher. `paused_until_ms` None: in the fetch; -1: until metadata brings a new leader epoch.

    `first_asked`: number of the request that named it first; an answer to an older one speaks of another leader epoch.
    `last_asked`: number of the one that named it last, at `sent_offset`; an answer to an older one speaks of another position.
    """

    __slots__ = (
        "first_asked",
        "key",
        "last_asked",
        "leader_epoch",
        "leader_hw",
        "needs_offsets",
        "partition",
        "paused_until_ms",
        "sent_offset",
    )

    def __init__(self, partition: Partition, leader_epoch: int) -> None:
        self.partition = partition
        self.key = (partition.topic_id, partition.tp.partition)
        self.leader_epoch = leader_epoch
        self.paused_until_ms: int | None = None
        self.sent_offset = -1
        self.first_asked: int | None = None
        self.last_asked = -1
        self.needs_offsets = False
        self.leader_hw: int | None = None
        """The leader's high watermark as it said last; None: it has said nothing yet."""

    @property
    def in_sync(self) -> bool:
        """True when the replica has everything below the leader's high watermark, as far as is known here."""
        log = self.partition.log
        return log is not None and self.leader_hw is not None and log.leo >= self.leader_hw

    @property
    def lag(self) -> int:
        log = self.partition.log
        return 0 if log is None or self.leader_hw is None else max(0, self.leader_hw - log.leo)

    @property
    def current(self) -> bool:
        """True while it is still a follower in the leader epoch under which it is fetched."""
        partition = self.partition
        return partition.log is not None and partition.leader is None and partition.leader_epoch == self.leader_epoch


class FetcherCore:
    """Synchronous. `request` → send → `handle_response` or `handle_failure`, in the order of sending.

    An error concerns its own partition only (RP-37): the others go on. A partition whose leader answers with what the leader
    will soon mend is paused for the backoff; one that is fenced, until metadata arrives; one whose disk fails is given up by
    `on_io_error`.
    """

    def __init__(
        self,
        config: ReplicationConfig,
        leader_id: NodeId,
        tracer: Tracer,
        on_io_error: Callable[[OSError, TopicPartition], None],
        throttle: ReplicationThrottle,
        probed: int = Tuning().partitions_per_step,
    ) -> None:
        """`probed`: the number of partitions that are asked for while the leader does not answer."""
        self.leader_id = leader_id
        self._probed = probed
        self._config = config
        self._tracer = tracer
        self._on_io_error = on_io_error
        self._throttle = throttle
        self._followed: dict[Key, Followed] = {}
        self._paused: dict[Key, Followed] = {}
        self._next_due_ms: int | None = None
        """Before it no partition that is paused is due."""
        self._changed: dict[Key, Followed] = {}
        self._forgotten: dict[Key, None] = {}
        self._in_session: dict[Key, None] = {}
        self._session_id = 0
        self._session_epoch = 0
        self._failing = False
        self._worth_a_request = 1
        """The number of changed partitions that are not left to the request that follows the next answer."""
        self._number = 0
        self._answered = 0

    # --- what is followed ---------------------------------------------------------------------------------------------

    def max_lag(self) -> int:
        """The most offsets by which one of the replicas is behind its leader's high watermark, as far as it has told it."""
        return max((followed.lag for followed in self._followed.values()), default=0)

    def lags(self) -> Iterator[tuple[TopicPartition, int]]:
        return ((followed.partition.tp, followed.lag) for followed in self._followed.values())

    def __len__(self) -> int:
        return len(self._followed)

    def add(self, partition: Partition, leader_epoch: int) -> None:
        followed = Followed(partition, leader_epoch)
        self._paused.pop(followed.key, None)
        self._followed[followed.key] = followed
        self._changed[followed.key] = followed
        self._forgotten.pop(followed.key, None)

    @property
    def has_news(self) -> bool:
        """There is a partition to name: worth a request, even while another one waits at the leader. While more are being added
        that is worth it for many at a time."""
        return len(self._changed) >= self._worth_a_request

    def gather(self, many: int) -> None:
        """Partitions are being added, a few between each two turns of the loop: name so many at a time until `gathered`."""
        self._worth_a_request = many

    def gathered(self) -> None:
        self._worth_a_request = 1

    def remove(self, partition: Partition) -> None:
        key = (partition.topic_id, partition.tp.partition)
        if self._followed.pop(key, None) is not None:
            self._leave_session(key)
            self._paused.pop(key, None)

    def _leave_session(self, key: Key) -> None:
        self._changed.pop(key, None)
        if key in self._in_session:
            del self._in_session[key]
            self._forgotten[key] = None

    def _pause(self, followed: Followed, error: str, now_ms: int, *, delay_ms: int | None) -> None:
        self._pause_until(followed, -1 if delay_ms is None else now_ms + delay_ms)
        self._paused[followed.key] = followed
        self._leave_session(followed.key)
        self._tracer.emit(FetchPaused(tp=followed.partition.tp, leader_id=self.leader_id, error=error, delay_ms=delay_ms))

    def _pause_until(self, followed: Followed, due_ms: int) -> None:
        followed.paused_until_ms = due_ms
        if due_ms >= 0 and (self._next_due_ms is None or due_ms < self._next_due_ms):
            self._next_due_ms = due_ms

    def next_deadline_ms(self) -> int | None:
        """Return when a paused partition is due again."""
        due = [f.paused_until_ms for f in self._paused.values() if f.paused_until_ms is not None and f.paused_until_ms >= 0]
        return min(due) if due else None

    def _resume_due(self, now_ms: int) -> None:
        """Not each request looks at all that is paused, which may be thousands while brokers come and go."""
        if self._next_due_ms is None or now_ms < self._next_due_ms:
            return
        for key, followed in list(self._paused.items()):
            due = followed.paused_until_ms
            if due is not None and 0 <= due <= now_ms and not followed.needs_offsets:
                followed.paused_until_ms = None
                del self._paused[key]
                self._changed[key] = followed
        self._next_due_ms = self.next_deadline_ms()

    # --- asking -------------------------------------------------------------------------------------------------------

    def request(self, replica_epoch: int, now_ms: int) -> ReplicaFetchRequest | None:
        """The next request; None when no partition is to be fetched now."""
        self._resume_due(now_ms)
        if self._throttle.exceeded():
            self._hold_back(now_ms)
        if len(self._paused) == len(self._followed):
            return None
        if self._session_epoch == 0:
            self._changed = {key: f for key, f in self._followed.items() if f.paused_until_ms is None}
            self._forgotten.clear()
            self._in_session.clear()
        self._number += 1
        changed = list(self._changed.values())
        if self._failing:
            # Nobody may be there. The others are named as soon as somebody answers; thousands would be each second's work.
            changed = changed[: self._probed]
        partitions = tuple(asked for followed in changed if (asked := self._ask(followed)) is not None)
        forgotten = tuple(ForgottenPartition(topic_id=key[0], partition=key[1]) for key in self._forgotten)
        if len(changed) == len(self._changed):
            self._changed.clear()
        else:
            for followed in changed:
                del self._changed[followed.key]
        self._forgotten.clear()
        config = self._config
        request = ReplicaFetchRequest(
            replica_id=config.broker_id,
            replica_epoch=replica_epoch,
            cluster_id=config.cluster_id,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            max_wait_ms=config.fetch_wait_max_ms,
            min_bytes=config.fetch_min_bytes,
            max_bytes=config.fetch_response_max_bytes,
            partition_max_bytes=config.fetch_max_bytes,
            partitions=partitions,
            forgotten=forgotten,
        )
        self._session_epoch = 1 if self._session_epoch == MAX_INT32 else self._session_epoch + 1
        return request

    def _hold_back(self, now_ms: int) -> None:
        """Leave out for a while what is throttled and not in sync (KIP-73)."""
        for key, followed in self._followed.items():
            if followed.paused_until_ms is None and not followed.in_sync and self._throttle.lists(followed.partition.tp):
                self._pause_until(followed, now_ms + self._config.fetch_backoff_ms)
                self._paused[key] = followed
                self._changed.pop(key, None)
                self._leave_session(key)

    def _ask(self, followed: Followed) -> ReplicaFetchPartition | None:
        log = followed.partition.log
        if log is None:
            return None
        followed.sent_offset = log.leo
        followed.last_asked = self._number
        if followed.first_asked is None:
            followed.first_asked = self._number
        self._in_session[followed.key] = None
        return ReplicaFetchPartition(
            topic_id=followed.key[0],
            partition=followed.key[1],
            current_leader_epoch=followed.leader_epoch,
            fetch_offset=log.leo,
            last_fetched_epoch=last_fetched_epoch(log),
            log_start_offset=log.log_start_offset,
        )

    # --- the answer ---------------------------------------------------------------------------------------------------

    def handle_failure(self, error: str) -> None:
        """The request may or may not have arrived: start a new session."""
        if not self._failing:
            self._failing = True
            self._tracer.emit(FetchFailed(leader_id=self.leader_id, error=error))
        self._session_epoch = 0
        self._answered = self._number

    def handle_response(self, response: ReplicaFetchResponse, now_ms: int, wall_ms: int) -> bool:
        """Take everything in; False when the whole fetch was refused and the caller should back off."""
        self._answered += 1
        if response.error is not ErrorCode.NONE:
            self._session_epoch = 0
            if response.error in SESSION_ERRORS:
                self._session_id = 0
                return True
            self.handle_failure(response.error.name)
            return False
        self._failing = False
        self._session_id = response.session_id
        if response.session_id == 0:
            self._session_epoch = 0
        payload = memoryview(response.payload)
        position = 0
        for result in response.partitions:
            data = payload[position : position + result.records_length]
            position += result.records_length
            followed = self._followed.get((result.topic_id, result.partition))
            if followed is None or followed.paused_until_ms is not None or not followed.current:
                continue
            if followed.first_asked is None or followed.first_asked > self._answered:
                continue
            try:
                self._take(followed, result, data, now_ms, wall_ms)
            except ApiError as error:
                self._pause(followed, error.code.name, now_ms, delay_ms=self._config.fetch_backoff_ms)
            except OSError as error:
                self._on_io_error(error, followed.partition.tp)
                if followed.key in self._followed:
                    self._pause(followed, str(error), now_ms, delay_ms=None)
        return True

    def _take(self, followed: Followed, result: ReplicaFetchResult, data: memoryview, now_ms: int, wall_ms: int) -> None:
        partition = followed.partition
        error = result.error
        log = partition.online_log()
        if followed.last_asked > self._answered or (error is ErrorCode.NONE and log.leo != followed.sent_offset):
            # Said before the leader had heard where we are now; only its offsets are news.
            if error is ErrorCode.NONE and result.diverging_epoch is None:
                moved = adopt_leader_offsets(partition, log, result.high_watermark, result.log_start_offset)
                if moved:  # the leader is to know
                    self._changed[followed.key] = followed
            return
        if error is not ErrorCode.NONE:
            self._refused(followed, error, now_ms)
            return
        if result.diverging_epoch is not None:
            self._diverged(followed, result.diverging_epoch, result.log_start_offset)
            return
        followed.leader_hw = result.high_watermark
        self._throttle.record(partition.tp, len(data))
        if append_fetched(partition, data, result.high_watermark, result.log_start_offset, wall_ms):
            self._changed[followed.key] = followed

    def _diverged(self, followed: Followed, end: EpochEndOffset, leader_log_start: int) -> None:
        """The HW stays as the log leaves it: this answer says nothing about it (RP-31)."""
        partition = followed.partition
        log = partition.online_log()
        old_leo = log.leo
        leo = truncate_to_divergence(log, end, leader_log_start)
        self._tracer.emit(Diverged(tp=partition.tp, epoch=end.leader_epoch, end_offset=end.end_offset, old_leo=old_leo, leo=leo))
        self._changed[followed.key] = followed

    def _refused(self, followed: Followed, error: ErrorCode, now_ms: int) -> None:
        """Pause a partition whose fetch the leader refused (RP-37)."""
        if error is ErrorCode.OFFSET_OUT_OF_RANGE:
            followed.needs_offsets = True
            self._pause(followed, error.name, now_ms, delay_ms=0)
            return
        fenced = error is ErrorCode.FENCED_LEADER_EPOCH
        self._pause(followed, error.name, now_ms, delay_ms=None if fenced else self._config.fetch_backoff_ms)

    # --- out of range -------------------------------------------------------------------------------------------------

    def offsets_request(self) -> ReplicaOffsetsRequest | None:
        """Asks where the leader's logs start and end, for partitions whose position it refused (RP-35)."""
        wanted = [followed for followed in self._paused.values() if followed.needs_offsets]
        if not wanted:
            return None
        return ReplicaOffsetsRequest(
            replica_id=self._config.broker_id,
            partitions=tuple(
                ReplicaOffsetsPartition(topic_id=f.key[0], partition=f.key[1], current_leader_epoch=f.leader_epoch)
                for f in wanted
            ),
        )

    def handle_offsets(self, answers: Sequence[ReplicaOffsets], now_ms: int) -> None:
        """No answer for a partition (the call failed): try the fetch again after the backoff."""
        by_key = {(answer.topic_id, answer.partition): answer for answer in answers}
        for key, followed in list(self._paused.items()):
            if not followed.needs_offsets:
                continue
            followed.needs_offsets = False
            answer = by_key.get(key)
            if answer is None or answer.error is not ErrorCode.NONE:
                fenced = answer is not None and answer.error is ErrorCode.FENCED_LEADER_EPOCH
                self._pause_until(followed, -1 if fenced else now_ms + self._config.fetch_backoff_ms)
            elif followed.current:
                self._pause_until(followed, now_ms)
                self._reset(followed, answer, now_ms)

    def _reset(self, followed: Followed, answer: ReplicaOffsets, now_ms: int) -> None:
        partition = followed.partition
        log = partition.online_log()
        old_leo = log.leo
        try:
            leo = reset_to_leader_range(log, answer.log_start_offset, answer.leo)
        except OSError as error:
            self._on_io_error(error, partition.tp)
            return
        self._tracer.emit(
            OffsetReset(
                tp=partition.tp,
                leader_log_start_offset=answer.log_start_offset,
                leader_leo=answer.leo,
                old_leo=old_leo,
                leo=leo,
            )
        )
        if leo == old_leo:
            self._pause_until(followed, now_ms + self._config.fetch_backoff_ms)
