"""The kinds of event on the controller's queue, and the one function that says what an error means.

Source: Kafka's QuorumController; CE-05 to CE-10, CE-20.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kraftlite.controller.queue import QueueClosed, QueueFull, QueueTimeout
from kraftlite.controller.results import ControllerResult
from kraftlite.controller.turns import Steps
from kraftlite.model.errors import ApiError, ErrorCode, Fault, changing

if TYPE_CHECKING:
    from kraftlite.controller.core import ControllerCore


class NothingChanged(Exception):
    """An operation broke, for `__cause__`, while its records were computed: it costs its request (ADR 5)."""


Operation = Callable[[int], ControllerResult[Any] | Steps[ControllerResult[Any]]]
"""Computes records at a time in milliseconds: at once, or element by element."""

OnDone = Callable[[ApiError | None, Any], None]
"""Called exactly once: with an error, or with the response once it is durable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What an error means: the answer to the caller, and for this controller."""

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


class WriteEvent:
    """An operation of the active controller that may write (CE-05). Answers when its records are stable (CE-06)."""

    def __init__(
        self,
        core: ControllerCore,
        name: str,
        operation: Operation,
        on_done: OnDone,
        *,
        after: Callable[[int, int], None] | None = None,
        on_timeout: Callable[[], None] | None = None,
        requested: bool = False,
    ) -> None:
        """`requested`: by a peer, who is told when it breaks. What the controller does of itself must not break: another one
        shall try it."""
        self.name = name
        self._core = core
        self._operation = operation
        self._on_done = on_done
        self._after = after
        self._on_timeout = on_timeout
        self._requested = requested
        self._response: Any = None

    def run(self, now_ms: int) -> Iterator[None]:
        return self._core.pace.through(self._steps(now_ms))

    def _steps(self, now_ms: int) -> Steps[None]:
        core = self._core
        core.check_active()
        result = yield from self._compute(now_ms)
        self._response = result.response
        last_offset = (yield from core.append(self.name, result)) if result.records else core.last_written_offset
        if self._after is not None:
            self._after(last_offset, now_ms)
        core.park(self, last_offset if result.records else None)

    def _compute(self, now_ms: int) -> Steps[ControllerResult[Any]]:
        try:
            found = self._operation(now_ms)
            return found if isinstance(found, ControllerResult) else (yield from found)
        except (ApiError, Fault):
            raise
        except Exception as error:
            if self._requested:
                raise NothingChanged from error
            raise

    def complete(self, error: BaseException | None) -> None:
        if error is None:
            self._on_done(None, self._response)
        else:
            self._on_done(classify(error).answer, None)

    def fail(self, error: BaseException, now_ms: int) -> None:
        if isinstance(error, QueueTimeout) and self._on_timeout is not None:
            self._on_timeout()
        self._on_done(classify(error).answer, None)
        self._core.handle_failure(self.name, error)


class ReadEvent:
    """A look at the stable state: `operation` gets the timeline epoch to read at (CE-08)."""

    def __init__(self, core: ControllerCore, name: str, operation: Callable[[int], Any], on_done: OnDone) -> None:
        self.name = name
        self._core = core
        self._operation = operation
        self._on_done = on_done

    def run(self, now_ms: int) -> None:
        self._on_done(None, self._operation(self._core.offsets.read_epoch))

    def fail(self, error: BaseException, now_ms: int) -> None:
        self._on_done(classify(error).answer, None)
        self._core.handle_failure(self.name, error)


class InternalEvent:
    """Work that nobody waits for: the callbacks of raft. One that breaks off leaves a controller, active or not, that knows only
    a part of what is committed, or of who leads: a fault."""

    def __init__(self, core: ControllerCore, name: str, operation: Callable[[int], Steps[None] | None]) -> None:
        self.name = name
        self._core = core
        self._operation = operation

    def run(self, now_ms: int) -> Iterator[None] | None:
        with changing(f"controller {self.name}"):
            steps = self._operation(now_ms)
        return None if steps is None else self._core.pace.through(self._guarded(steps))

    def _guarded(self, steps: Steps[None]) -> Steps[None]:
        with changing(f"controller {self.name}"):
            yield from steps

    def fail(self, error: BaseException, now_ms: int) -> None:
        self._core.handle_failure(self.name, error)
