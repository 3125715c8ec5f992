"""Invariant 8: nothing committed is cut off, by nobody."""

from __future__ import annotations

from typing import ClassVar

from kraftlite.raft.states import Leader
from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.sim.checkers.views import NodeView


class NoTruncationBelowHw(MetadataChecker):
    """A follower may only drop batches that differ from what is committed, and replace its log only by a longer snapshot."""

    numbers: ClassVar[tuple[int, ...]] = (8,)

    def on_truncate(self, view: NodeView, leo: int) -> None:
        if leo < view.hw:
            self.fail(f"node {view.node_id} truncates to {leo}, below its high watermark {view.hw}")
        if view.core is not None and isinstance(view.core.state, Leader):
            self.fail(f"node {view.node_id} truncates to {leo} while it leads epoch {view.core.epoch}")
        for entry in view.log.beyond(leo):
            if self.facts.committed_at(entry.base_offset) is entry:
                self.fail(f"node {view.node_id} truncates to {leo} and drops the committed {entry}")

    def on_log_restart(self, view: NodeView, offset: int) -> None:
        if offset < view.hw:
            self.fail(f"node {view.node_id} restarts its log at {offset}, below its high watermark {view.hw}")
        if offset > self.facts.committed_end:
            self.fail(f"node {view.node_id} restarts its log at {offset}; only [0,{self.facts.committed_end}) is committed")

    def on_raft(self, view: NodeView) -> None:
        leo = view.raft.leo
        if leo < view.log.leo:
            self.fail(f"the log of node {view.node_id} ends at {leo}, it went to {view.log.leo} and no truncation was told")
