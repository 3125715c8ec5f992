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
class TransactionProducerStarted(TraceEvent):
    """A producer begins under the id, or goes on with a new epoch; those with an earlier one are fenced."""

    event: ClassVar[str] = "transaction.producer_started"
    transactional_id: str
    producer_id: int
    producer_epoch: int
    previous_producer_id: int | None = None
    previous_epoch: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionProducerRefused(TraceEvent):
    """A producer that was fenced has asked for something. `current_epoch`: the one that counts."""

    event: ClassVar[str] = "transaction.producer_refused"
    transactional_id: str
    producer_id: int
    producer_epoch: int
    current_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionEnded(TraceEvent):
    """A transaction is complete: its markers are in all its partitions. `outcome`: "committed" or "aborted"; `open_ms`: from its
    first partition to the decision, `marking_ms`: from there to now; `partitions`: the first of `count`; `untold`: the
    transactions of the id since the last that was told, for a busy coordinator does not tell them all."""

    event: ClassVar[str] = "transaction.ended"
    transactional_id: str
    producer_id: int
    producer_epoch: int
    outcome: str
    open_ms: int
    marking_ms: int
    partitions: tuple[str, ...]
    count: int
    untold: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionTakenOver(TraceEvent):
    """A new coordinator found a transaction in the log that is not complete, and goes on with it. `open_ms` and `marking_ms` as
    in TransactionEnded, until now; `marking_ms` None: its outcome is not decided."""

    event: ClassVar[str] = "transaction.taken_over"
    tp: TopicPartition
    leader_epoch: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: str
    open_ms: int
    marking_ms: int | None
    partitions: tuple[str, ...]
    count: int


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


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionMarkerWaits(TraceEvent):
    """A marker of a transaction cannot be written for now; told once for each reason. `leader` None: the partition has none that
    is alive."""

    event: ClassVar[str] = "transaction.marker_waits"
    transactional_id: str
    tp: TopicPartition
    leader: int | None
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionMarkerWritten(TraceEvent):
    """A marker that had to wait is written."""

    event: ClassVar[str] = "transaction.marker_written"
    transactional_id: str
    tp: TopicPartition
    leader: int
