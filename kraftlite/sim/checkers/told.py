"""The hooks of a run's checkers, in the order of the checkers, each with those that do not override it left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from kraftlite.model.method import AnyMethod
from kraftlite.runtime.trace import TraceEvent
from kraftlite.sim.checkers.base import Checker

K = TypeVar("K")
Hook = Callable[..., None]


class ByKind(Generic[K]):
    """The hooks of one name for a kind of event or method. Each checker is asked once for each kind, when the first comes."""

    def __init__(self, checkers: Sequence[Checker], name: str, minds: Callable[[Checker, K], bool]) -> None:
        self._checkers = overriding(checkers, name)
        self._name = name
        self._minds = minds
        self._known: dict[K, list[Hook]] = {}

    def of(self, kind: K) -> Sequence[Hook]:
        found = self._known.get(kind)
        if found is None:
            found = self._known[kind] = [getattr(it, self._name) for it in self._checkers if self._minds(it, kind)]
        return found


class Told:
    """Made once, when all checkers of a run are."""

    def __init__(self, checkers: Sequence[Checker]) -> None:
        self.steps: list[Hook] = [it.on_step for it in overriding(checkers, "on_step")]
        self.boots: list[Hook] = [it.on_boot for it in overriding(checkers, "on_boot")]
        self.deaths: list[Hook] = [it.on_death for it in overriding(checkers, "on_death")]
        self.losses: list[Hook] = [it.on_loss for it in overriding(checkers, "on_loss")]
        self.settlers = overriding(checkers, "unsettled")
        self.events: ByKind[type[TraceEvent]] = ByKind(checkers, "on_event", _minds_event)
        self.calls: ByKind[AnyMethod] = ByKind(checkers, "on_call", _minds_method)
        self.answers: ByKind[AnyMethod] = ByKind(checkers, "on_answer", _minds_method)
        self.arrivals: ByKind[AnyMethod] = ByKind(checkers, "on_arrival", _minds_method)
        self.served: ByKind[AnyMethod] = ByKind(checkers, "on_served", _minds_method)


def overriding(checkers: Sequence[Checker], name: str) -> list[Checker]:
    """Those whose class has a hook of its own."""
    hook: Any = getattr(Checker, name)
    return [it for it in checkers if getattr(type(it), name) is not hook]


def _minds_event(checker: Checker, kind: type[TraceEvent]) -> bool:
    return checker.minds_event(kind)


def _minds_method(checker: Checker, method: AnyMethod) -> bool:
    return checker.minds_method(method)
