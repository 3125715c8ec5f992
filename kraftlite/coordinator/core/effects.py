"""The effects of a step of the core: answers to give and records to write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from kraftlite.coordinator.records import CoordinatorRecord
from kraftlite.log.guards import TransactionTerms
from kraftlite.model.errors import ErrorCode
from kraftlite.model.producer import Producer
from kraftlite.replication.api import MarkerEntry

Then = Callable[[ErrorCode], None]


class Answer(NamedTuple):
    """The answer to a request: its result, or the ApiError with which it is refused."""

    request_id: int
    result: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """One batch to append: records, or the marker of a transaction. The core waits for `Written(token)`, which must follow in the
    order of the appends, and may be told `Late(token)` before it. `terms`: of records in a transaction. `timeout_ms`: after how
    long it is late; None: as the driver's settings say."""

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
    """Shared by the parts of one core: the time of the step, and its output so far.

    A write has two who wait for it. `then` is what it means for the state: it learns the fate of the records, and the state
    follows the log however long that takes. `tell` answers whoever asked: it is called once, with the error of being late or,
    after `then`, with the fate. Source: Kafka's CoordinatorRuntime, where a write's event outlives its timeout.
    """

    def __init__(self) -> None:
        self.now_ms = 0
        self.wall_ms = 0
        self.more = False
        self._answers: list[Answer] = []
        self._appends: list[Append] = []
        self._then: dict[int, Then] = {}
        self._tell: dict[int, Then] = {}
        self._tokens = 0

    def answer(self, request_id: int, result: Any) -> None:
        self._answers.append(Answer(request_id, result))

    def append(
        self,
        records: Sequence[CoordinatorRecord],
        then: Then | None = None,
        tell: Then | None = None,
        *,
        producer: Producer | None = None,
        timeout_ms: int | None = None,
        terms: TransactionTerms | None = None,
    ) -> None:
        """Write `records`, which are not none."""
        assert records, "nothing to write"
        token = self._token(then, tell)
        self._appends.append(Append(token=token, records=tuple(records), producer=producer, terms=terms, timeout_ms=timeout_ms))

    def mark(self, marker: MarkerEntry, then: Then, tell: Then) -> None:
        """Write the marker of a transaction."""
        self._appends.append(Append(token=self._token(then, tell), records=(), marker=marker))

    def _token(self, then: Then | None, tell: Then | None) -> int:
        self._tokens += 1
        self._then[self._tokens] = then or nothing
        if tell is not None:
            self._tell[self._tokens] = tell
        return self._tokens

    def written(self, token: int, error: ErrorCode) -> None:
        self._then.pop(token)(error)
        self._say(token, error)

    def late(self, token: int, error: ErrorCode) -> None:
        assert token in self._then, f"the fate of append {token} was known before it was late"
        self._say(token, error)

    def _say(self, token: int, error: ErrorCode) -> None:
        tell = self._tell.pop(token, None)
        if tell is not None:
            tell(error)

    def take(self) -> Output:
        output = Output(self._answers, self._appends, self.more)
        self._answers, self._appends, self.more = [], [], False
        return output


def nothing(error: ErrorCode) -> None:
    """Nobody waits for it, or it makes no difference."""
