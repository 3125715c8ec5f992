"""The one event vocabulary (typed events, grouped by component in the modules beside this one).

The same events become log lines, metrics, the causal timeline, golden scenario text and the simulator's checker input.
An event is a frozen dataclass with facts as fields and a dotted `event` name, `component.noun_verbed`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar, Final

_NAMES: Final[dict[type[TraceEvent], tuple[str, ...]]] = {}
"""The fields of each class of events but `cause`: an event is written down far more often than a class is made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceEvent:
    """Base of all events. `cause` says what made it happen: a record (`record@1841`), a request, or a timer."""

    event: ClassVar[str] = ""
    level: ClassVar[str] = "info"
    """debug | info | warning | error: what the log does with it."""
    cause: str | None = None

    def facts(self) -> dict[str, Any]:
        """The event's fields that are not None, in definition order, `cause` last."""
        kind = type(self)
        names = _NAMES.get(kind)
        if names is None:
            names = _NAMES[kind] = tuple(it.name for it in fields(kind) if it.name != "cause")
        found = {name: value for name in names if (value := getattr(self, name)) is not None}
        if self.cause is not None:
            found["cause"] = self.cause
        return found


def is_heard(tracer: object, kind: type[TraceEvent]) -> bool:
    """Return whether somebody hears events of a kind; they need not be made else. A tracer that does not say (`hears`) hears
    all."""
    hears = getattr(tracer, "hears", None)
    return hears is None or bool(hears(kind))


class NullTracer:
    """Swallows every event; for tools and unit tests that do not look at the trace."""

    def emit(self, event: TraceEvent) -> None:
        return None


class ListTracer:
    """Keeps every event in a list; for tests."""

    def __init__(self) -> None:
        self.events: list[TraceEvent] = []

    def emit(self, event: TraceEvent) -> None:
        self.events.append(event)
