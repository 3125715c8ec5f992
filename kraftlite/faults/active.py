"""A fault while it lasts, and what a part of a node has to do to be hit by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kraftlite.model.faults import Injection
from kraftlite.runtime.ports import TimerHandle

Undo = Callable[[], None]


class Active:
    """One fault of this node. `hit` is called for everything that it hits."""

    __slots__ = ("ends_ms", "fault", "hits", "timer", "undo", "used_up")

    def __init__(self, fault: Injection, ends_ms: int, used_up: Callable[[], None]) -> None:
        self.fault = fault
        self.ends_ms = ends_ms
        """By the monotonic clock of the node."""
        self.hits = 0
        self.timer: TimerHandle | None = None
        self.undo: Undo | None = None
        self.used_up = used_up
        """Called when its `count` is reached; the fault hits nothing from then on."""

    @property
    def spent(self) -> bool:
        return 0 < self.fault.count <= self.hits

    def hit(self) -> None:
        self.hits += 1
        if self.hits == self.fault.count:
            self.used_up()


class Part(Protocol):
    """A part of a node that can be hit by the faults of one family."""

    def begin(self, active: Active) -> Undo:
        """Begin at once; returns what ends it. Raises UnknownFault when this node cannot be hit so; then nothing has begun."""
        ...
