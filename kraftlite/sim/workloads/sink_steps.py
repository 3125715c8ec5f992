"""The protocol of the sink that writes exactly once, step by step: production's functions block, and a simulated client must not.

A function of the protocol is one of what the cluster has answered so far. To go a step further it is called again from its
beginning with the answers that it had, and leaves at its next call, which is carried out here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from kraftlite.client.errors import ClientError
from kraftlite.exactly_once.protocol_core import Cluster, Fate
from kraftlite.exactly_once.records import Decision, Entry, Marker
from kraftlite.model.producer import Producer

T = TypeVar("T")


class Call(NamedTuple):
    """A call of the protocol's cluster."""

    method: str
    arguments: tuple[Any, ...]


class Asked(BaseException):
    """The function has made a call that has no answer yet. Nothing of the protocol catches it."""

    def __init__(self, call: Call) -> None:
        self.call = call


class Answers:
    """The protocol's cluster: the answers so far, and behind them the next call."""

    def __init__(self, answers: Sequence[Any]) -> None:
        self._left = list(reversed(answers))

    def _ask(self, method: str, *arguments: Any) -> Any:
        if not self._left:
            raise Asked(Call(method, arguments))
        return self._given(self._left.pop())

    def _given(self, answer: Any) -> Any:
        """Return an answer, or raise what it is."""
        if isinstance(answer, ClientError):
            raise answer
        return answer

    def take_over(self, transactional_id: str) -> Producer:
        found: Producer = self._ask("take_over", transactional_id)
        return found

    def mark(self, transactional_id: str, producer: Producer, marker: Marker) -> tuple[int, int]:
        found: tuple[int, int] = self._ask("mark", transactional_id, producer, marker)
        return found

    def decided(self, query: str, batch: int, since: int) -> bool:
        return bool(self._ask("decided", query, batch, since))

    def last_decision(self, query: str) -> Decision | None:
        found: Decision | None = self._ask("last_decision", query)
        return found

    def record(self, transactional_id: str, producer: Producer, decision: Decision) -> None:
        self._ask("record", transactional_id, producer, decision)

    def end(self, transactional_id: str, producer: Producer, *, commit: bool) -> bool:
        return bool(self._ask("end", transactional_id, producer, commit))

    def fate(self, query: str, batch: int, entry: Entry) -> Fate:
        found: Fate = self._ask("fate", query, batch, entry)
        return found


async def carried_out(step: Callable[[Cluster], T], ask: Callable[[Call], Awaitable[Any]], answers: Sequence[Any] = ()) -> T:
    """The result of a function of the protocol. `ask` carries a call out; its ClientError is one that the function gets.
    `answers`: of the first calls, if they were made already."""
    so_far = list(answers)
    while True:
        try:
            return step(Answers(so_far))
        except Asked as asked:
            call = asked.call
        try:
            so_far.append(await ask(call))
        except ClientError as error:
            so_far.append(error)
