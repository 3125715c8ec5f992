"""The requests of the replica manager's clients and its answers, by topic name.

The types that exist once per partition and request are plain slotted dataclasses, not frozen ones: building a frozen one costs
three times as much. Nobody changes them after they were built.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol
from uuid import UUID

from kraftlite.log.guards import TransactionTerms
from kraftlite.log.stored import StoredRecords
from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.replica import EpochEndOffset
from kraftlite.model.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderHint:
    """The leader, as far as this broker knows; goes into the answer to a client that asked the wrong broker (RP-10)."""

    leader_id: NodeId | None
    leader_epoch: int


class Lease(Protocol):
    """The memory in which a request's records lie. Without one it is nobody else's."""

    def hold(self) -> None:
        """The records are still read when the call returns."""
        ...

    def failed(self, error: Exception) -> None:
        """The request ended in this instead of an answer."""
        ...

    def release(self) -> None:
        """They are not read any more. Called once after `hold`."""
        ...


class ProduceTransaction(NamedTuple):
    """The transaction that a produce names. `version`: the transaction.version that the client's request shows: from 2 on a write
    adds its partition to the transaction. `knows_abortable`: the client understands TRANSACTION_ABORTABLE."""

    transactional_id: str
    version: int
    knows_abortable: bool


@dataclass(slots=True, kw_only=True)
class ProduceEntry:
    """One batch for one partition. `records` must be writable: the leader stamps it in place. `topic_id` None: not checked.
    `terms`: of a batch in a transaction, or of a marker."""

    tp: TopicPartition
    topic_id: UUID | None
    records: memoryview | bytearray
    terms: TransactionTerms | None = None


@dataclass(frozen=True, slots=True)
class MarkerEntry:
    """The end of a producer's transaction in one partition, as its coordinator or an administrator tells it.

    `version`: the transaction.version of the transaction (TP-22). `topic_id` None: not checked.
    """

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool
    version: int
    tp: TopicPartition
    topic_id: UUID | None = None


@dataclass(slots=True, kw_only=True)
class ProduceResult:
    """`base_offset` is meaningful when `error` is NONE; `append_time_ms` -1 means CreateTime."""

    tp: TopicPartition
    error: ErrorCode
    message: str | None = None
    base_offset: int = -1
    append_time_ms: int = -1
    log_start_offset: int = -1
    leader: LeaderHint | None = None
    record_errors: tuple[tuple[int, str], ...] = ()
    """(index in the batch, why) when single records were refused."""


@dataclass(slots=True, kw_only=True)
class FetchParams:
    """The parameters of a whole fetch. `leader_only` refuses to serve as a follower."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    read_committed: bool = False
    rack_id: str | None = None
    leader_only: bool = False


@dataclass(slots=True, kw_only=True)
class FetchEntry:
    """One partition to read. None for an epoch: not checked."""

    tp: TopicPartition
    topic_id: UUID | None
    fetch_offset: int
    current_leader_epoch: int | None
    last_fetched_epoch: int | None
    max_bytes: int


@dataclass(slots=True, kw_only=True)
class FetchResult:
    """`aborted`: (producer id, first offset) of aborted transactions in the range, None unless read_committed.

    `records` may still be in their file: `len()` tells their size, `bytes()` reads them. `readable`: how many bytes there are
    for the client, at most its maximum for the partition; what of them is in `records` other limits say.
    """

    tp: TopicPartition
    error: ErrorCode
    hw: int
    last_stable_offset: int
    log_start_offset: int
    records: bytes | StoredRecords
    aborted: tuple[tuple[int, int], ...] | None = None
    diverging: EpochEndOffset | None = None
    leader: LeaderHint | None = None
    preferred_read_replica: NodeId | None = None
    readable: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRecordsResult:
    """`low_watermark`: the smallest log start among the live replicas; -1 when nothing was deleted."""

    tp: TopicPartition
    error: ErrorCode
    low_watermark: int = -1
    message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetResult:
    """An offset found; -1 for offset, timestamp or leader epoch where there is none, as on Kafka's wire."""

    error: ErrorCode
    offset: int = -1
    timestamp: int = -1
    leader_epoch: int = -1
