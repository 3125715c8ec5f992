"""The result of an operation of the controller: records to write, and the answer for when they are committed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, SupportsIndex, TypeVar

from kraftlite.controller.turns import Steps
from kraftlite.metadata.records import BeginTransactionRecord, EndTransactionRecord, MetadataRecord
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.limits import MAX_RECORDS_PER_BATCH, MAX_RECORDS_PER_USER_OP

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerResult(Generic[T]):
    """`atomic`: all records in one batch, or none (CE-17). `cause`: for whom or why they are written, for the trace.

    `rest`: what the operation does when these records are applied and on their way, before any other event runs; the response
    is then that of the last part. Never of an operation that a request waits for: what has been written cannot be refused.
    """

    records: list[MetadataRecord]
    response: T
    atomic: bool = False
    cause: str = ""
    rest: Callable[[], Steps[ControllerResult[T]]] | None = None

    def without_records(self) -> ControllerResult[T]:
        """Return the same answer with nothing to write, for `validate_only` (CE-19)."""
        return ControllerResult(records=[], response=self.response, atomic=False)


def all_or_nothing(name: str, records: list[MetadataRecord], response: T) -> ControllerResult[T]:
    """Return a result whose records take effect together: in one batch; in a metadata transaction called `name` where they are
    more than fit in one. For what follows from a request, not for what it asks (CE-18), from 3.6-IV1 on."""
    if len(records) <= MAX_RECORDS_PER_BATCH:
        return ControllerResult(records=records, response=response, atomic=True)
    return ControllerResult(records=[BeginTransactionRecord(name=name), *records, EndTransactionRecord()], response=response)


class BoundedRecords(list[MetadataRecord]):
    """A list of records that refuses to exceed what one user operation may write. Raises ApiError(POLICY_VIOLATION) (CE-18)."""

    def __init__(self, limit: int = MAX_RECORDS_PER_USER_OP) -> None:
        super().__init__()
        self.limit = limit

    def append(self, record: MetadataRecord) -> None:
        self._reserve(1)
        super().append(record)

    def extend(self, records: Iterable[MetadataRecord]) -> None:
        found = list(records)
        self._reserve(len(found))
        super().extend(found)

    def __iadd__(self, records: Iterable[MetadataRecord]) -> BoundedRecords:  # type: ignore[override,misc]
        self.extend(records)
        return self

    def insert(self, index: SupportsIndex, record: MetadataRecord) -> None:
        self._reserve(1)
        super().insert(index, record)

    def _reserve(self, count: int) -> None:
        if len(self) + count > self.limit:
            raise ApiError(
                ErrorCode.POLICY_VIOLATION,
                f"Unable to perform excessively large batch operation: {len(self) + count} records, "
                f"at most {self.limit} are allowed in one operation.",
            )
