"""The clocks of a real node, whose wall clock can jump and jumps back when the fault ends."""

from __future__ import annotations

from kraftlite.faults.active import Active, Undo
from kraftlite.host.clock import HostClock


class FaultyClock(HostClock):
    """`HostClock`, and exactly that while its wall clock is right. Monotonic time never jumps."""

    def __init__(self) -> None:
        self._jumps: list[Active] = []

    def begin(self, active: Active) -> Undo:
        self._jumps.append(active)
        active.hit()
        self.wall_ms = self._jumped  # type: ignore[method-assign]

        def undo() -> None:
            self._jumps.remove(active)
            if not self._jumps:
                del self.wall_ms

        return undo

    def _jumped(self) -> int:
        return max(0, super().wall_ms() + sum(jump.fault.amount for jump in self._jumps))
