"""The records that a new active controller writes first. Source: Kafka's ActivationRecordsGenerator; CE-14, CE-15."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from kraftlite.controller.results import ControllerResult
from kraftlite.metadata import features
from kraftlite.metadata.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    MetadataRecord,
)
from kraftlite.model.errors import Fault

ACTIVATION: Final = "activate"
"""The operation that writes them."""


def bootstrap_level(bootstrap: Sequence[MetadataRecord] | None) -> int:
    """The `metadata.version` of the bootstrap records. Fault when there are none, or it is not the first of them (CE-14)."""
    first = bootstrap[0] if bootstrap else None
    if not isinstance(first, FeatureLevelRecord) or first.name != features.METADATA_VERSION:
        raise Fault(
            "no bootstrap metadata that starts with a metadata.version: was the metadata directory formatted "
            "(kraftlite storage format)?"
        )
    return first.level


def activation_records(
    *,
    log_is_empty: bool,
    bootstrap: Sequence[MetadataRecord] | None,
    transaction_start: int | None,
    empty_before_transaction: bool,
    metadata_version: int | None,
    min_isr: Callable[[], MetadataRecord],
) -> ControllerResult[str]:
    """The records, and why. `min_isr`: what an empty log needs beside eligible leader replicas, whatever the state says: it may
    have half of a bootstrap that is to be aborted. Raises Fault when the log cannot be taken over."""
    if transaction_start is not None:
        if metadata_version is not None and not features.supports_transactions(metadata_version):
            raise Fault(
                f"a metadata transaction is open since offset {transaction_start}, but metadata.version {metadata_version} "
                "does not support transactions"
            )
        abort = AbortTransactionRecord(reason="left open by a controller that is gone")
        if not empty_before_transaction:
            return ControllerResult(
                records=[abort], response=f"aborted the transaction begun at {transaction_start}", atomic=True
            )
        return ControllerResult(
            records=[abort, *_bootstrap_records(bootstrap, min_isr)],
            response=f"aborted the half-written bootstrap begun at {transaction_start} and wrote it again",
        )
    if log_is_empty:
        transactional = features.supports_transactions(bootstrap_level(bootstrap))
        return ControllerResult(
            records=_bootstrap_records(bootstrap, min_isr), response="bootstrapped an empty log", atomic=not transactional
        )
    if metadata_version is None:
        raise Fault("the metadata log is not empty, but finalizes no metadata.version")
    return ControllerResult(records=[], response=f"took over at metadata.version {metadata_version}", atomic=True)


def _bootstrap_records(bootstrap: Sequence[MetadataRecord] | None, min_isr: Callable[[], MetadataRecord]) -> list[MetadataRecord]:
    level = bootstrap_level(bootstrap)
    assert bootstrap is not None
    records = list(bootstrap)
    if any(_enables_elr(record) for record in records):
        records.append(min_isr())
    if not features.supports_transactions(level):
        return records
    return [BeginTransactionRecord(name="Bootstrap records"), *records, EndTransactionRecord()]


def _enables_elr(record: MetadataRecord) -> bool:
    name = features.ELIGIBLE_LEADER_REPLICAS_VERSION
    return isinstance(record, FeatureLevelRecord) and record.name == name and record.level > 0
