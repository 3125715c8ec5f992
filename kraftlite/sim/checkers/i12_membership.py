"""Invariant 12, as far as a static quorum goes: everybody counts the same voters, from boot to end."""

from __future__ import annotations

from typing import ClassVar

from kraftlite.raft.states import Leader
from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.sim.checkers.views import LogMemory, NodeView


class Membership(MetadataChecker):
    """The voters are the nodes with the controller role, and a leader keeps count of exactly those."""

    numbers: ClassVar[tuple[int, ...]] = (12,)

    def on_opened(self, view: NodeView, before: LogMemory, durable: int) -> None:
        self._check(view)

    def on_role(self, view: NodeView) -> None:
        self._check(view)
        state = view.state
        if isinstance(state, Leader) and tuple(sorted(state.voters)) != self.facts.voters:
            self.fail(f"leader {view.node_id} keeps count of {sorted(state.voters)}; the voters are {self.facts.voters}")

    def _check(self, view: NodeView) -> None:
        if view.raft.voters.ids != self.facts.voters:
            self.fail(f"node {view.node_id} takes {view.raft.voters.ids} for the voters; they are {self.facts.voters}")
