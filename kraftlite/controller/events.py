"""The events on the controller's queue, as data, and the one function that says what an error means. The core runs them.

Source: Kafka's QuorumController; CE-05 to CE-10, CE-20.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from kraftlite.controller.queue import QueueClosed, QueueFull, QueueTimeout
from kraftlite.controller.results import ControllerResult
from kraftlite.controller.turns import Steps
from kraftlite.model.errors import ApiError, ErrorCode, Fault, changing

R = TypeVar("R")
"""The response of an operation."""


class NothingChanged(Exception):
    """An operation broke, for `__cause__`, while its records were computed: it costs its request (ADR 5)."""


Operation: TypeAlias = Callable[[int], ControllerResult[R] | Steps[ControllerResult[R]]]
"""Computes records and a response at a time in milliseconds: at once, or element by element."""
OnDone: TypeAlias = Callable[[R | ApiError], None]
"""Called exactly once: with the response once it is durable, or with an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The meaning of an error: the answer to the caller, and the consequence for this controller."""

    answer: ApiError
    renounce: bool = False
    fatal: bool = False


def classify(error: BaseException) -> Verdict:
    """The only place that tells kinds of error apart (CE-20)."""
    if isinstance(error, ApiError):
        return Verdict(answer=error, renounce=error.code is ErrorCode.NOT_CONTROLLER)
    if isinstance(error, QueueTimeout | QueueClosed | QueueFull):
        return Verdict(answer=ApiError(ErrorCode.REQUEST_TIMED_OUT, str(error)))
    cause = error.__cause__ if isinstance(error, NothingChanged) and error.__cause__ is not None else error
    internal = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{type(cause).__name__}: {cause}")
    if isinstance(error, Fault):
        return Verdict(answer=internal, fatal=True)
    return Verdict(answer=internal, renounce=not isinstance(error, NothingChanged))


@dataclass(frozen=True, slots=True)
class Write(Generic[R]):
    """An operation of the active controller that may write (CE-05). Answers when its records are stable (CE-06).

    `after(last_offset, now_ms)` runs once its records are applied, `on_timeout` if the event never runs. `requested`: by a peer,
    who is told when it breaks. What the controller does of itself must not break: another one shall try it.
    """

    name: str
    operation: Operation[R]
    on_done: OnDone[R]
    after: Callable[[int, int], None] | None = None
    on_timeout: Callable[[], None] | None = None
    requested: bool = False


@dataclass(frozen=True, slots=True)
class Read(Generic[R]):
    """A look at the stable state: `operation` gets the timeline epoch to read at (CE-08)."""

    name: str
    operation: Callable[[int], R]
    on_done: OnDone[R]


@dataclass(frozen=True, slots=True)
class Internal:
    """Work that nobody waits for: the callbacks of raft. One that breaks off leaves a controller, active or not, that knows only
    a part of what is committed, or of who leads: a fault."""

    name: str
    operation: Callable[[int], Steps[None] | None]


Event: TypeAlias = Write[Any] | Read[Any] | Internal


@dataclass(frozen=True, slots=True, eq=False)
class Answer(Generic[R]):
    """The response of a `Write` that waits for its records to become stable."""

    on_done: OnDone[R]
    response: R

    def complete(self, error: BaseException | None) -> None:
        self.on_done(self.response if error is None else classify(error).answer)


def internally(event: Internal, now_ms: int) -> Steps[None]:
    with changing(f"controller {event.name}"):
        steps = event.operation(now_ms)
        if steps is not None:
            yield from steps


def whole(found: ControllerResult[R] | Steps[ControllerResult[R]]) -> Steps[ControllerResult[R]]:
    """Return what an operation found, at once or element by element."""
    return found if isinstance(found, ControllerResult) else (yield from found)


def nobody_waits(_outcome: object) -> None:
    return None
