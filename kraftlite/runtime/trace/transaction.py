"""Events of transactional ids and their coordinators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.trace import TraceEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionsLoading(TraceEvent):
    """This broker now coordinates the transactional ids of a partition of `__transaction_state`, and begins to read it."""

    event: ClassVar[str] = "transaction.loading"
    level: ClassVar[str] = "debug"
    tp: TopicPartition
    leader_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionsLoaded(TraceEvent):
    """`decided`: the ids whose outcome was in the log and not carried out; their markers are sent now."""

    event: ClassVar[str] = "transaction.loaded"
    level: ClassVar[str] = "debug"
    tp: TopicPartition
    leader_epoch: int
    end_offset: int
    ids: int
    decided: int
    elapsed_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionsLoadFailed(TraceEvent):
    """The transactional ids of this partition have no coordinator until another broker leads it."""

    event: ClassVar[str] = "transaction.load_failed"
    level: ClassVar[str] = "error"
    tp: TopicPartition
    leader_epoch: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionsUnloaded(TraceEvent):
    event: ClassVar[str] = "transaction.unloaded"
    level: ClassVar[str] = "debug"
    tp: TopicPartition
    leader_epoch: int
    ids: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionStateChanged(TraceEvent):
    """The state of a transactional id is below the high watermark. `partitions`: how many are in the transaction."""

    event: ClassVar[str] = "transaction.state_changed"
    level: ClassVar[str] = "debug"
    transactional_id: str
    producer_id: int
    producer_epoch: int
    previous: str
    state: str
    partitions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionFenced(TraceEvent):
    """The coordinator aborts an open transaction in a newer epoch: another producer has begun under the id, or it took longer
    than its timeout. `reason`: "taken over" or "timed out"."""

    event: ClassVar[str] = "transaction.fenced"
    transactional_id: str
    producer_id: int
    producer_epoch: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionalIdsExpired(TraceEvent):
    """Ids that nobody has used for `transactional.id.expiration.ms` are forgotten."""

    event: ClassVar[str] = "transaction.ids_expired"
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionMarkersStopped(TraceEvent):
    """A partition has refused the markers of a transaction for good: a newer coordinator wrote there. The transaction stays
    decided until its partition of `__transaction_state` is loaded again."""

    event: ClassVar[str] = "transaction.markers_stopped"
    level: ClassVar[str] = "warning"
    transactional_id: str
    tp: TopicPartition
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionMarkersDelayed(TraceEvent):
    """Markers could not be written for now; they are sent again. `error`: of the first of them, or of the whole request."""

    event: ClassVar[str] = "transaction.markers_delayed"
    level: ClassVar[str] = "debug"
    leader: int
    count: int
    error: str
