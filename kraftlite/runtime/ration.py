"""Events that strangers cause are told so many times in a second; of more only the number is told."""

from __future__ import annotations

from collections.abc import Callable


class Ration:
    """The bound for one kind of event. A flood of them must not fill disks, nor hide what else happens."""

    def __init__(self, now_ms: Callable[[], int], most: int) -> None:
        """`most`: how many are told in one second."""
        self._now_ms = now_ms
        self._most = most
        self._second = -1
        self._told = 0
        self._left_out = 0

    def admits(self) -> bool:
        """Return whether the next event is to be told; if not, it is counted."""
        second = self._now_ms() // 1_000
        if second != self._second:
            self._second, self._told = second, 0
        if self._told >= self._most:
            self._left_out += 1
            return False
        self._told += 1
        return True

    def left_out(self) -> int | None:
        """Return how many were left out before the one that is told now; None: none were."""
        found, self._left_out = self._left_out, 0
        return found or None
