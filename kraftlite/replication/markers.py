"""The ends of transactions, as coordinators and administrators write them into partitions. Source: KIP-98, KIP-664; TP-20 to
TP-26."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from kraftlite.log.control import EndTxnMarker, control_batch
from kraftlite.log.guards import TransactionTerms
from kraftlite.log.log import AppendOrigin
from kraftlite.model.errors import ErrorCode
from kraftlite.replication.api import MarkerEntry, ProduceEntry, ProduceResult
from kraftlite.replication.produce import ProducePath

LATE_TRANSACTION_BUFFER_MS: Final = 300_000
"""A transaction is late when its producer wrote nothing for so much longer than `transaction.max.timeout.ms`."""


def write_markers(
    path: ProducePath,
    markers: Sequence[MarkerEntry],
    *,
    timeout_ms: int,
    wall_ms: int,
    on_done: Callable[[list[ErrorCode]], None],
    on_late: Callable[[ErrorCode], None] | None = None,
) -> None:
    """Write each marker as a batch of its own; see `ReplicaManager.write_markers`."""

    def done(results: list[ProduceResult]) -> None:
        on_done([_told(result.error) for result in results])

    entries = [_entry(marker, wall_ms) for marker in markers]
    path.append(entries, acks=-1, timeout_ms=timeout_ms, on_done=done, origin=AppendOrigin.COORDINATOR, on_late=on_late)


def _entry(marker: MarkerEntry, wall_ms: int) -> ProduceEntry:
    batch = control_batch(
        [EndTxnMarker(commit=marker.commit, coordinator_epoch=marker.coordinator_epoch)],
        timestamp_ms=wall_ms,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
    )
    terms = TransactionTerms(version=marker.version)
    return ProduceEntry(tp=marker.tp, topic_id=marker.topic_id, records=bytearray(batch), terms=terms)


def _told(error: ErrorCode) -> ErrorCode:
    """The topic was deleted and made again under its name: the partition that was meant does not exist any more."""
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if error is ErrorCode.INCONSISTENT_TOPIC_ID else error
