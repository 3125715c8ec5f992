"""The leader's side of replica fetches: sessions that know what each follower has not been sent yet.

Source: KIP-227 (sessions), KIP-595 (diverging epochs); RP-11, RP-15, RP-31, RP-34, RP-38, RP-39.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Final
from uuid import UUID

from kraftlite.model.errors import ApiError, ErrorCode, Fault, HalfChanged
from kraftlite.model.ids import NodeId
from kraftlite.model.limits import MAX_BATCH_BYTES, MAX_INT32
from kraftlite.model.messages.replica import ReplicaFetchPartition, ReplicaFetchRequest, ReplicaFetchResult
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.model.tuning import Tuning
from kraftlite.replication.consume import find_divergence
from kraftlite.replication.partition import Partition
from kraftlite.replication.table import PartitionTable
from kraftlite.replication.throttle import ReplicationThrottle
from kraftlite.runtime.ports import Tracer
from kraftlite.runtime.trace.partition import SessionOpened

MAX_SESSIONS: Final = Tuning().follower_sessions
SESSION_IDLE_MS: Final = Tuning().follower_session_idle_ms

AHEAD_OF_US: Final = frozenset({ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
"""The refusals of a leader that has not heard yet what its follower knows."""
AHEAD_PATIENCE_MS: Final = 5_000
"""A follower is told so late that this leader does not know what it fetches. Metadata mostly comes before, however many
partitions there are; one that is told stays away for its whole backoff, and both have it to do again."""

Key = tuple[UUID, int]


class SessionEntry:
    """One partition in one session. In the session's `dirty` while there may be something to say about it."""

    __slots__ = (
        "asked_epoch",
        "asked_ms",
        "fetch_offset",
        "key",
        "last_fetched_epoch",
        "log_start_offset",
        "partition",
        "sent_hw",
        "sent_log_start",
        "session",
        "unconfirmed",
    )

    def __init__(self, session: FollowerSession, key: Key) -> None:
        self.session = session
        self.key = key
        self.partition: Partition | None = None
        self.asked_epoch = -1
        self.asked_ms = 0
        self.fetch_offset = -1
        self.last_fetched_epoch: int | None = None
        self.log_start_offset = -1
        self.sent_hw = self.sent_log_start = -1
        self.unconfirmed = True
        """The leader has not yet taken note of `fetch_offset`."""

    def ask(self, asked: ReplicaFetchPartition, now_ms: int) -> None:
        if asked.current_leader_epoch != self.asked_epoch:
            self.note_last_fetch()
            # Answers that were under way when the follower's epoch changed are lost on it: it is told everything again.
            self.sent_hw = self.sent_log_start = -1
        self.asked_epoch = asked.current_leader_epoch
        self.asked_ms = now_ms
        self.fetch_offset = asked.fetch_offset
        self.last_fetched_epoch = asked.last_fetched_epoch
        self.log_start_offset = asked.log_start_offset
        self.unconfirmed = True
        self.session.dirty[self] = None

    def attach(self, partition: Partition | None) -> None:
        if partition is not self.partition:
            self.detach()
            self.partition = partition
            self.sent_hw = self.sent_log_start = -1
            if partition is not None:
                partition.observers.append(self)

    def detach(self) -> None:
        if self.partition is not None:
            self.partition.observers.remove(self)
            self.partition = None

    # Observer

    def on_append(self, old_leo: int) -> None:
        session = self.session
        if self.fetch_offset == old_leo:
            self._note_caught_up(old_leo)
        session.dirty[self] = None
        if session.waiter is not None:
            session.wake()

    def on_change(self) -> None:
        self.session.dirty[self] = None

    def on_doubt(self) -> None:
        self.session.doubted[self] = None

    def on_moved(self) -> None:
        self.session.dirty[self] = None
        self.session.wake()

    def note_last_fetch(self) -> None:
        """The session's last fetch, which left the partition where it was, is the last that tells of it: of a follower that has
        everything it is the time that its leader counts from, as if it had named the partition."""
        log = None if self.partition is None else self.partition.log
        if log is not None and self.fetch_offset == log.leo:
            self._note_caught_up(log.leo)

    def _note_caught_up(self, old_leo: int) -> None:
        """Until this append the follower had everything, and its session's last fetch said so without naming the partition."""
        partition = self.partition
        leader = None if partition is None else partition.leader
        if leader is None or leader.leader_epoch != self.asked_epoch:
            return
        follower = leader.followers.get(self.session.replica_id)
        if follower is not None and follower.leo == old_leo and follower.replica_epoch == self.session.replica_epoch:
            follower.was_caught_up(old_leo, self.session.last_fetch_ms)


class FollowerSession:
    """The partitions that one fetcher of one follower follows here. `dirty` is in the order in which partitions are served; a
    partition that got something goes to the end, so that all get their turn when a response is full.

    `ahead`: partitions of which the follower knows newer metadata than this leader. They are not looked at again before metadata
    has come, or the leader's patience is over: while a failover of thousands is applied here in steps, each request and each step
    would else look at all that are left.

    `doubted`: partitions of which the next fetch, and not the one that waits here, has to say where the follower is."""

    def __init__(self, session_id: int, replica_id: NodeId, replica_epoch: int) -> None:
        self.session_id = session_id
        self.replica_id = replica_id
        self.replica_epoch = replica_epoch
        self.next_epoch = 1
        self.entries: dict[Key, SessionEntry] = {}
        self.dirty: dict[SessionEntry, None] = {}
        self.ahead: dict[SessionEntry, None] = {}
        self.doubted: dict[SessionEntry, None] = {}
        self.last_fetch_ms = 0
        self.waiter: asyncio.Future[None] | None = None

    def wake(self) -> None:
        waiter, self.waiter = self.waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def drop(self, key: Key) -> None:
        entry = self.entries.pop(key, None)
        if entry is not None:
            entry.note_last_fetch()
            self.dirty.pop(entry, None)
            self.ahead.pop(entry, None)
            self.doubted.pop(entry, None)
            entry.detach()

    def look_ahead(self) -> None:
        """Look again at what the follower was ahead of this leader with."""
        self.dirty.update(self.ahead)
        self.ahead.clear()

    def look_at_overdue(self, now_ms: int) -> None:
        """Look again at what the follower has been ahead with for too long."""
        for entry in [entry for entry in self.ahead if now_ms - entry.asked_ms >= AHEAD_PATIENCE_MS]:
            del self.ahead[entry]
            self.dirty[entry] = None

    def close(self) -> None:
        for key in list(self.entries):
            self.drop(key)
        self.wake()


class SessionTable:
    """All sessions of this leader. A newer incarnation of a follower ends those of its older ones."""

    def __init__(self, entropy: random.Random, tracer: Tracer, tuning: Tuning) -> None:
        self._tuning = tuning
        self._sessions: dict[int, FollowerSession] = {}
        self._entropy = entropy
        self._tracer = tracer

    def resume(self, request: ReplicaFetchRequest, now_ms: int) -> FollowerSession:
        """The session of this request, opened if it asks for one. Raises FETCH_SESSION_ID_NOT_FOUND,
        INVALID_FETCH_SESSION_EPOCH."""
        if request.session_epoch == 0:
            return self._open(request, now_ms)
        session = self._sessions.get(request.session_id)
        if session is None or session.replica_id != request.replica_id or session.replica_epoch != request.replica_epoch:
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"session {request.session_id} is not known")
        if request.session_epoch != session.next_epoch:
            raise ApiError(ErrorCode.INVALID_FETCH_SESSION_EPOCH, f"expected {session.next_epoch}, got {request.session_epoch}")
        session.next_epoch = 1 if session.next_epoch == MAX_INT32 else session.next_epoch + 1
        session.wake()
        return session

    def _open(self, request: ReplicaFetchRequest, now_ms: int) -> FollowerSession:
        for session in list(self._sessions.values()):
            same = session.replica_id == request.replica_id
            if (session.session_id == request.session_id and same) or (same and session.replica_epoch < request.replica_epoch):
                self._close(session)
        if len(self._sessions) >= self._tuning.follower_sessions:
            self._close(min(self._sessions.values(), key=lambda session: session.last_fetch_ms))
        self._expire(now_ms)
        session_id = self._entropy.randrange(1, MAX_INT32)
        while session_id in self._sessions:
            session_id = self._entropy.randrange(1, MAX_INT32)
        session = self._sessions[session_id] = FollowerSession(session_id, request.replica_id, request.replica_epoch)
        session.last_fetch_ms = now_ms
        self._tracer.emit(SessionOpened(replica_id=request.replica_id, session_id=session_id, partitions=len(request.partitions)))
        return session

    def _expire(self, now_ms: int) -> None:
        for session in list(self._sessions.values()):
            if session.waiter is None and now_ms - session.last_fetch_ms > self._tuning.follower_session_idle_ms:
                self._close(session)

    def _close(self, session: FollowerSession) -> None:
        del self._sessions[session.session_id]
        session.close()

    def partition_added(self, partition: Partition) -> None:
        """A partition that followers may have asked for already: they are answered when it has its role."""
        for session in self._sessions.values():
            entry = session.entries.get((partition.topic_id, partition.tp.partition))
            if entry is not None:
                entry.attach(partition)

    def metadata_changed(self) -> None:
        """Followers may be waiting for what this broker did not know until now."""
        for session in self._sessions.values():
            session.look_ahead()
            if session.waiter is not None and session.dirty:
                session.wake()

    def close(self) -> None:
        for session in list(self._sessions.values()):
            self._close(session)

    def __len__(self) -> int:
        return len(self._sessions)


class FetchServer:
    """Takes a follower's request in and collects what there is to say. Synchronous; `service` does the waiting."""

    def __init__(
        self,
        table: PartitionTable,
        on_io_error: Callable[[OSError, TopicPartition], None],
        throttle: ReplicationThrottle,
    ) -> None:
        self._table = table
        self._on_io_error = on_io_error
        self._throttle = throttle

    def sent(self, session: FollowerSession, results: Sequence[ReplicaFetchResult]) -> None:
        """Count what an answer carries of the partitions that are throttled."""
        if self._throttle.bound is None:
            return
        for result in results:
            entry = session.entries.get((result.topic_id, result.partition)) if result.records_length else None
            if entry is not None and entry.partition is not None:
                self._throttle.record(entry.partition.tp, result.records_length)

    def _held_back(self, session: FollowerSession, partition: Partition) -> bool:
        """Return whether this follower gets no records of this partition now. One that is in sync always does."""
        leader = partition.leader
        if leader is None or session.replica_id in leader.isr.committed or not self._throttle.lists(partition.tp):
            return False
        return self._throttle.exceeded()

    def take(self, session: FollowerSession, request: ReplicaFetchRequest, now_ms: int) -> None:
        """Learn the follower's progress: from partitions that it names, and from those that it leaves where they were."""
        for forgotten in request.forgotten:
            session.drop((forgotten.topic_id, forgotten.partition))
        for asked in request.partitions:
            key = (asked.topic_id, asked.partition)
            entry = session.entries.get(key)
            if entry is None:
                entry = session.entries[key] = SessionEntry(session, key)
            entry.ask(asked, now_ms)
        session.last_fetch_ms = now_ms
        session.dirty.update(session.doubted)
        session.doubted.clear()
        for entry in list(session.dirty):
            try:
                self._confirm(session, entry)
            except ApiError:
                continue  # `collect` meets the same refusal and tells the follower

    def _confirm(self, session: FollowerSession, entry: SessionEntry) -> None:
        partition = self._checked(session, entry)
        log = partition.online_log()
        if find_divergence(log, entry.fetch_offset, entry.last_fetched_epoch) is not None:
            return
        entry.unconfirmed = False
        try:
            partition.follower_fetched(
                session.replica_id, session.replica_epoch, entry.fetch_offset, entry.log_start_offset, session.last_fetch_ms
            )
        except (ApiError, Fault, OSError):
            raise
        except Exception as error:  # as `changing` has it, see docs/adr/0005
            raise HalfChanged(f"progress of follower {session.replica_id} of {partition.tp}", error) from error

    def _checked(self, session: FollowerSession, entry: SessionEntry) -> Partition:
        """The partition, if this broker leads it in the epoch that the follower knows, with that follower as a replica."""
        partition = self._table.by_id.get(entry.key)
        if partition is not entry.partition:
            entry.attach(partition)
        if partition is None:
            if self._table.is_coming(*entry.key):
                raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH, "the replica has not been made here yet")
            partition = self._table.find_by_id(*entry.key)
        leader, _ = partition.leading(entry.asked_epoch)
        if self._table.is_stale(session.replica_id, session.replica_epoch):
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker epoch {session.replica_epoch} is no longer current")
        progress = leader.followers.get(session.replica_id)
        if progress is None:
            raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"{session.replica_id} is not known as a replica yet")
        if progress.replica_epoch is not None and progress.replica_epoch > session.replica_epoch:
            # A fetch that was under way when its broker restarted; the metadata that says so may come here later than both.
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker epoch {progress.replica_epoch} has fetched already")
        return partition

    def collect(
        self, session: FollowerSession, request: ReplicaFetchRequest, now_ms: int, *, final: bool
    ) -> tuple[list[ReplicaFetchResult], list[bytes], bool]:
        """(results, records, urgent) of all dirty partitions, within the request's limits. Urgent: errors, divergences, log
        starts that moved, and records that were left out for the limits: waiting would not bring them.

        A follower that knows newer metadata than this leader is told so when the wait is over (`final`) and it has asked in vain
        for `AHEAD_PATIENCE_MS`; at once if it does not wait at all.
        """
        results: list[ReplicaFetchResult] = []
        payload: list[bytes] = []
        left, urgent, more_left = min(request.max_bytes, MAX_BATCH_BYTES), False, False
        if final:
            session.look_at_overdue(now_ms)
        told_ms = now_ms if request.max_wait_ms <= 0 else now_ms - AHEAD_PATIENCE_MS
        for entry in list(session.dirty):
            told_start = entry.sent_log_start
            try:
                result, records, more = self._read(session, entry, min(left, request.partition_max_bytes), not payload)
            except ApiError as error:
                session.dirty.pop(entry, None)
                if error.code in AHEAD_OF_US and not (final and entry.asked_ms <= told_ms):
                    session.ahead[entry] = None
                    continue
                result, records, more = _error(entry, error.code), b"", False
            except OSError as error:
                session.dirty.pop(entry, None)
                if entry.partition is not None:
                    self._on_io_error(error, entry.partition.tp)
                result, records, more = _error(entry, ErrorCode.KAFKA_STORAGE_ERROR), b"", False
            more_left = more_left or more
            if result is None:
                continue
            results.append(result)
            if records:
                payload.append(records)
                left = max(0, left - len(records))
            else:
                refused = result.error is not ErrorCode.NONE or result.diverging_epoch is not None
                urgent = urgent or refused or (told_start >= 0 and result.log_start_offset != told_start)
        return results, payload, urgent or (more_left and bool(payload))

    def _read(
        self, session: FollowerSession, entry: SessionEntry, max_bytes: int, min_one: bool
    ) -> tuple[ReplicaFetchResult | None, bytes, bool]:
        """Read what there is to say of one partition, and whether there is more; None: nothing new (or no room left)."""
        if entry.unconfirmed:
            self._confirm(session, entry)
        checked = self._checked(session, entry)
        log = checked.online_log()
        offset, leo, hw, log_start = entry.fetch_offset, log.leo, log.hw, log.log_start_offset
        diverging = find_divergence(log, offset, entry.last_fetched_epoch)
        if diverging is not None:
            del session.dirty[entry]
            topic_id, partition = entry.key
            result = ReplicaFetchResult(
                topic_id=topic_id,
                partition=partition,
                error=ErrorCode.NONE,
                log_start_offset=log_start,
                diverging_epoch=diverging,
            )
            return result, b"", False
        records, more = b"", offset < leo
        if more and self._throttle.bound is not None and self._held_back(session, checked):
            if hw == entry.sent_hw:
                return None, b"", False
        elif more:
            if max_bytes > 0 or min_one:
                found = log.find(offset, max_bytes, up_to=leo, min_one=min_one)
                if found is not None:
                    records = found.read()
                    more = found.more or len(records) < found.extent.readable
            if records:  # stays dirty, behind the others, until the follower asks for more
                del session.dirty[entry]
                session.dirty[entry] = None
            if not records and hw == entry.sent_hw:
                return None, b"", more
        else:
            del session.dirty[entry]
            if hw == entry.sent_hw and log_start == entry.sent_log_start:
                return None, b"", False
        entry.sent_hw, entry.sent_log_start = hw, log_start
        topic_id, partition = entry.key
        result = ReplicaFetchResult(
            topic_id=topic_id,
            partition=partition,
            error=ErrorCode.NONE,
            high_watermark=hw,
            log_start_offset=log_start,
            records_length=len(records),
        )
        return result, records, more


def _error(entry: SessionEntry, error: ErrorCode) -> ReplicaFetchResult:
    topic_id, partition = entry.key
    return ReplicaFetchResult(topic_id=topic_id, partition=partition, error=error)
