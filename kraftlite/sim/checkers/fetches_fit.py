"""Part of invariant 31: a follower takes what its leader gives it."""

from __future__ import annotations

from typing import ClassVar

from kraftlite.model.errors import ErrorCode
from kraftlite.runtime.trace import TraceEvent
from kraftlite.runtime.trace.partition import FetchPaused
from kraftlite.sim.checkers.base import Checker
from kraftlite.simhost.host import SimHost


class FetchesFit(Checker):
    """A follower asks for what continues its log, and a leader in whose log that is gives it that: batches that the follower has
    to refuse (RP-36) were not what it had asked for, or were taken for the answer to another question. It would stand still for
    `replica.fetch.backoff.ms`."""

    numbers: ClassVar[tuple[int, ...]] = (31,)
    only_events = (FetchPaused,)

    def on_event(self, now_us: int, node: SimHost, event: TraceEvent) -> None:
        if type(event) is FetchPaused and event.error == ErrorCode.INVALID_RECORD.name:
            self.fail(
                f"node {node.node_id} refuses what node {event.leader_id} gave it of {event.tp}: it does not continue its log"
            )
