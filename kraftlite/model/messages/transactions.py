"""The transactions service between brokers: the coordinator has markers written, and partition leaders ask the coordinator.

Source: KIP-98 (WriteTxnMarkers), KIP-890 (AddPartitionsToTxn of brokers), KIP-1228; TX-50, TP-03.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from kraftlite.model.errors import ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionMarker:
    """The end of a transaction in one partition."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    """Leader epoch of the coordinator's partition of `__transaction_state`."""
    commit: bool
    transaction_version: int
    """The `transaction.version` that the client of the transaction has shown."""
    topic: str
    topic_id: UUID
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteMarkersRequest:
    """Asks the leader of these partitions to append the markers, and to answer when all are below the high watermark."""

    cluster_id: str
    timeout_ms: int
    markers: tuple[TransactionMarker, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteMarkersResponse:
    errors: tuple[ErrorCode, ...]
    """One for each marker, in their order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnrolledPartition:
    """A partition as its leader knows it. `topic_id` None: of no topic in particular that has the name."""

    topic: str
    partition: int
    topic_id: UUID | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EnrollRequest:
    """Asks the coordinator whether partitions are in a producer's transaction, or with `add` to make them so."""

    cluster_id: str
    transactional_id: str
    producer_id: int
    producer_epoch: int
    add: bool
    partitions: tuple[EnrolledPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EnrollResponse:
    errors: tuple[ErrorCode, ...]
    """One for each partition, in their order."""
