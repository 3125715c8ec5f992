"""Incremental fetch sessions: a client names its partitions once and then only what changes.

Source: KIP-227, KIP-516; CP-20.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.limits import MAX_INT32

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
EVICTION_MS: Final = 120_000
SESSION_PARTITIONS: Final = 500_000
"""Partitions in all sessions of a broker together: about 200 MiB. Kafka bounds the sessions alone."""


class SessionKey(NamedTuple):
    """A partition as the client names it: by name up to v12, by id from v13 on; the other one is None."""

    name: str | None
    topic_id: UUID | None
    partition: int


class SessionPartition:
    """One partition of a session: what the client asked for last, and what it was told last."""

    __slots__ = ("current_leader_epoch", "fetch_offset", "hw", "key", "last_fetched_epoch", "log_start_offset", "max_bytes")

    def __init__(
        self, key: SessionKey, current_leader_epoch: int, fetch_offset: int, last_fetched_epoch: int, max_bytes: int
    ) -> None:
        self.key = key
        self.current_leader_epoch = current_leader_epoch
        self.fetch_offset = fetch_offset
        self.last_fetched_epoch = last_fetched_epoch
        self.max_bytes = max_bytes
        self.hw = -1
        self.log_start_offset = -1

    def ask(self, wanted: SessionPartition) -> None:
        self.current_leader_epoch = wanted.current_leader_epoch
        self.fetch_offset = wanted.fetch_offset
        self.last_fetched_epoch = wanted.last_fetched_epoch
        self.max_bytes = wanted.max_bytes


class FetchSession:
    """One client's session. `epoch` is the one that its next request must carry."""

    __slots__ = ("created_ms", "epoch", "last_used_ms", "partitions", "session_id", "uses_topic_ids")

    def __init__(self, session_id: int, uses_topic_ids: bool, now_ms: int, partitions: Iterable[SessionPartition]) -> None:
        self.session_id = session_id
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        self.epoch = 1
        self.partitions: dict[SessionKey, SessionPartition] = {partition.key: partition for partition in partitions}

    def update(self, wanted: Sequence[SessionPartition], forgotten: Iterable[SessionKey]) -> None:
        for partition in wanted:
            known = self.partitions.get(partition.key)
            if known is None:
                self.partitions[partition.key] = partition
            else:
                known.ask(partition)
        for key in forgotten:
            self.partitions.pop(key, None)

    def must_tell(self, partition: SessionPartition, *, hw: int, log_start_offset: int, size: int, error: bool) -> bool:
        """Return whether this answer goes into an incremental response; remembers what the client then knows.

        A partition with data moves to the end, so that a small byte limit does not starve those behind it. After an error, or a
        divergence (which the caller passes as one), it is told again when all is well.
        """
        tell = size > 0 or error or partition.hw != hw or partition.log_start_offset != log_start_offset
        partition.hw = -1 if error else hw
        partition.log_start_offset = log_start_offset
        if size > 0 and len(self.partitions) > 1 and partition.key in self.partitions:
            del self.partitions[partition.key]
            self.partitions[partition.key] = partition
        return tell


class FetchSessionCache:
    """A cache of at most `slots` sessions. A full cache gives a slot to a new session only in place of one unused for 2
    minutes, or of a smaller one that has existed for as long; otherwise the client gets session id 0 and goes on with full
    fetches. So it does when all sessions together would have more than `most_partitions`; one that would grow beyond is
    closed."""

    def __init__(self, slots: int, entropy: random.Random, *, most_partitions: int = SESSION_PARTITIONS) -> None:
        self._slots = slots
        self._most_partitions = most_partitions
        self._partitions = 0
        self._entropy = entropy
        self._sessions: dict[int, FetchSession] = {}
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[FetchSession]:
        return iter(self._sessions.values())

    def partition_count(self) -> int:
        return self._partitions

    def create(self, partitions: Sequence[SessionPartition], *, uses_topic_ids: bool, now_ms: int) -> FetchSession | None:
        if len(self._sessions) >= self._slots and not self._evict(len(partitions), now_ms):
            return None
        while self._partitions + len(partitions) > self._most_partitions:
            if len(partitions) > self._most_partitions or not self._evict(len(partitions), now_ms):
                return None
        session_id = self._entropy.randint(1, MAX_INT32)
        while session_id in self._sessions:
            session_id = self._entropy.randint(1, MAX_INT32)
        session = FetchSession(session_id, uses_topic_ids, now_ms, partitions)
        self._sessions[session_id] = session
        self._partitions += len(session.partitions)
        return session

    def close(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partitions -= len(session.partitions)

    def resume(
        self,
        session_id: int,
        epoch: int,
        wanted: Sequence[SessionPartition],
        forgotten: Iterable[SessionKey],
        *,
        uses_topic_ids: bool,
        now_ms: int,
    ) -> FetchSession | None:
        """The session after this incremental request; None when nothing is left in it, which closes it. Raises ApiError."""
        session = self._sessions.get(session_id)
        if session is None:
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"no fetch session {session_id}")
        if session.epoch != epoch:
            raise ApiError(ErrorCode.INVALID_FETCH_SESSION_EPOCH, f"fetch session {session_id} expects epoch {session.epoch}")
        if session.uses_topic_ids != uses_topic_ids:
            raise ApiError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, f"fetch session {session_id} mixes topic ids and names")
        before = len(session.partitions)
        session.update(wanted, forgotten)
        self._partitions += len(session.partitions) - before
        if self._partitions > self._most_partitions and len(session.partitions) > before:
            self._remove(session)
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"no room for {len(wanted)} partitions more in fetch sessions")
        if not session.partitions:
            self.close(session_id)
            return None
        session.last_used_ms = now_ms
        session.epoch = next_epoch(epoch)
        # Least recently used first: the order in which eviction looks.
        del self._sessions[session_id]
        self._sessions[session_id] = session
        return session

    def _evict(self, size: int, now_ms: int) -> bool:
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.last_used_ms > EVICTION_MS:
            return self._remove(oldest)
        settled = (session for session in self if now_ms - session.created_ms > EVICTION_MS)
        smallest = min(settled, key=lambda session: len(session.partitions), default=None)
        if smallest is not None and len(smallest.partitions) < size:
            return self._remove(smallest)
        return False

    def _remove(self, session: FetchSession) -> bool:
        self.close(session.session_id)
        self.evictions += 1
        return True


def next_epoch(epoch: int) -> int:
    """Return the next session epoch. Epochs wrap around to 1: 0 and -1 have a meaning of their own."""
    return 1 if epoch >= MAX_INT32 else epoch + 1
