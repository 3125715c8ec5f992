"""Invariant 9: a leader commits nothing before something of its own epoch is on a majority (figure 8 of the Raft paper)."""

from __future__ import annotations

from typing import ClassVar

from kraftlite.raft.states import Leader
from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.sim.checkers.views import NodeView


class OwnEpochCommit(MetadataChecker):
    """Whenever a leader has a high watermark, the batch below it is of the epoch that it leads."""

    numbers: ClassVar[tuple[int, ...]] = (9,)

    def on_raft(self, view: NodeView) -> None:
        state = view.state
        if not isinstance(state, Leader):
            return
        hw = view.raft.high_watermark
        if hw is None:
            return
        where = f"leader {view.node_id} of epoch {state.epoch}, which starts at {state.epoch_start_offset},"
        if hw <= state.epoch_start_offset:
            self.fail(f"{where} says [0,{hw}) is committed")
        last = view.log.ending_at(hw)
        if last is None or last.epoch != state.epoch:
            self.fail(f"{where} says [0,{hw}) is committed, the last batch of which is {last}")
