"""The time for which a connection is not served, because its client has used more than its quota (KIP-219)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kraftlite.runtime.ports import TimerHandle


class Times(Protocol):
    """A clock with timers, in milliseconds."""

    def now_ms(self) -> int: ...

    def call_later(self, delay_ms: int, callback: Callable[[], None], /) -> TimerHandle: ...


class Mute:
    """`active` from `extend` to `end`."""

    __slots__ = ("_timer", "_until_ms", "active")

    def __init__(self) -> None:
        self._timer: TimerHandle | None = None
        self._until_ms = 0
        self.active = False

    def extend(self, times: Times, delay_ms: int, over: Callable[[], None]) -> bool:
        """Be active for so long from now on, and call `over` then. False: it is for longer already."""
        until_ms = times.now_ms() + delay_ms
        if self.active and until_ms <= self._until_ms:
            return False
        self.end()
        self._timer, self._until_ms, self.active = times.call_later(delay_ms, over), until_ms, True
        return True

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self.active = None, False
