"""Invariant 5: the leader of the highest epoch has every committed batch."""

from __future__ import annotations

from typing import ClassVar

from kraftlite.raft.states import Leader
from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.sim.checkers.model import MetadataState
from kraftlite.sim.checkers.views import Entry, NodeView


class LeaderCompleteness(MetadataChecker):
    """Looks at a leader's whole log when it takes office, and at each batch that is committed while it leads."""

    numbers: ClassVar[tuple[int, ...]] = (5,)

    def on_role(self, view: NodeView) -> None:
        state = view.state
        if not isinstance(state, Leader) or state.epoch != max(self.facts.elected):
            return
        if state.epoch_start_offset < self.facts.committed_end:
            self.fail(
                f"node {view.node_id} leads epoch {state.epoch} from offset {state.epoch_start_offset}, "
                f"[0,{self.facts.committed_end}) is committed"
            )
        for entry in reversed(self.facts.committed):
            if entry.base_offset < view.log.start:
                break
            self._check(view, entry)

    def on_commit(self, entry: Entry, before: MetadataState, after: MetadataState) -> None:
        last = self.facts.last_leader()
        if last is None:
            return
        epoch, node_id, _ = last
        view = self.facts.views[node_id]
        if view.core is not None and isinstance(view.core.state, Leader) and view.core.epoch == epoch:
            self._check(view, entry)

    def _check(self, view: NodeView, entry: Entry) -> None:
        found = view.log.starting_at(entry.base_offset)
        if found is not entry and entry.base_offset >= view.log.start:
            self.fail(f"the leader, node {view.node_id} in epoch {view.raft.epoch}, has {found} for the committed {entry}")
