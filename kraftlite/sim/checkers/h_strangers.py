"""Malformed, impossible and late requests are refused (LG-09 to LG-18, RP-07, RP-13)."""

from __future__ import annotations

import re

from kraftlite.sim.checkers.history_checker import HistoryChecker
from kraftlite.sim.history import Strange
from kraftlite.sim.workloads.stranger import MAYBE

NONE = "NONE"
_AGAIN = re.compile(r"sent again, first at (-?\d+)")


class StrangersRefused(HistoryChecker):
    """Nothing that a stranger may not do succeeds, and what it sends again is answered with where it was the first time. (That
    nothing of it is in a log or was read, the other checks of the history see: nobody has produced it.)"""

    def at_end(self) -> None:
        for it in self.history.strange:
            if it.error != NONE or it.kind == "fetch in another epoch":
                continue
            again = _AGAIN.match(it.kind)
            if again is not None:
                self._check_again(it, int(again[1]))
            elif it.kind not in MAYBE or not self.may_be_welcome(it):
                self.fail(f"{it.tp}: {it.client} at {it.invoked_us // 1000} ms to node {it.broker}: {it.kind} succeeded")

    def _check_again(self, it: Strange, first: int) -> None:
        if it.offset not in (first, -1) and first >= 0 and not self.may_be_welcome(it):
            self.fail(f"{it.tp}: what was acknowledged at offset {first} was sent again and acknowledged at offset {it.offset}")
