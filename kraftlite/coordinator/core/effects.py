"""The effects of a step of the core: answers to give and records to write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from kraftlite.coordinator.records import CoordinatorRecord
from kraftlite.log.guards import TransactionTerms
from kraftlite.model.errors import ErrorCode
from kraftlite.model.producer import Producer
from kraftlite.replication.api import MarkerEntry

Then = Callable[[ErrorCode], None]

MAY_STILL_COMMIT: Final = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND})
"""The errors of an append behind which the record may be in the log, and become committed at any time."""


class Answer(NamedTuple):
    """The answer to a request: its result, or the ApiError with which it is refused."""

    request_id: int
    result: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """One batch to append: records, or the marker of a transaction. The core waits for `Written(token)`, which must follow in the
    order of the appends. `terms`: of records in a transaction. `timeout_ms`: how long it waits for the high watermark; None: as
    long as the driver's settings say."""

    token: int
    records: tuple[CoordinatorRecord, ...]
    producer: Producer | None = None
    timeout_ms: int | None = None
    terms: TransactionTerms | None = None
    marker: MarkerEntry | None = None


class Output(NamedTuple):
    """The answers are independent of the appends: what must be durable first is answered by a later step. `more`: there is work
    left that should not be done at once; the core goes on with it at `GoOn`."""

    answers: Sequence[Answer]
    appends: Sequence[Append]
    more: bool = False


class Effects:
    """Shared by the parts of one core: the time of the step, and its output so far."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.wall_ms = 0
        self.more = False
        self._answers: list[Answer] = []
        self._appends: list[Append] = []
        self._then: dict[int, Then] = {}
        self._tokens = 0

    def answer(self, request_id: int, result: Any) -> None:
        self._answers.append(Answer(request_id, result))

    def append(
        self,
        records: Sequence[CoordinatorRecord],
        then: Then,
        producer: Producer | None = None,
        timeout_ms: int | None = None,
        terms: TransactionTerms | None = None,
    ) -> None:
        """Write `records`, which are not none, and call `then` with what became of it once it is known."""
        assert records, "nothing to write"
        self._appends.append(
            Append(token=self._token(then), records=tuple(records), producer=producer, terms=terms, timeout_ms=timeout_ms)
        )

    def mark(self, marker: MarkerEntry, then: Then) -> None:
        """Write the marker of a transaction, and call `then` with what became of it once it is known."""
        self._appends.append(Append(token=self._token(then), records=(), marker=marker))

    def _token(self, then: Then) -> int:
        self._tokens += 1
        self._then[self._tokens] = then
        return self._tokens

    def written(self, token: int, error: ErrorCode) -> None:
        self._then.pop(token)(error)

    def take(self) -> Output:
        output = Output(self._answers, self._appends, self.more)
        self._answers, self._appends, self.more = [], [], False
        return output
