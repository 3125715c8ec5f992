"""Invariant 4: below the smaller of two nodes' high watermarks their logs are identical: offsets, epochs, bytes."""

from __future__ import annotations

from typing import ClassVar

from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.sim.checkers.views import NodeView, running


class LogMatching(MetadataChecker):
    """Compares what a node's log returns with what was committed first: when its high watermark moves, and at the end."""

    numbers: ClassVar[tuple[int, ...]] = (4,)

    def on_hw_noted(self, view: NodeView, old: int, new: int) -> None:
        start = view.raft.metalog.log_start_offset
        self._compare(view, max(old, start), new)

    def at_end(self) -> None:
        for view in running(self.facts.views.values()):
            self._compare(view, view.raft.metalog.log_start_offset, view.hw)

    def _compare(self, view: NodeView, start: int, end: int) -> None:
        offset = start
        for entry in view.read_log(self.facts.pool, start, end) if start < end else ():
            committed = self.facts.committed_at(entry.base_offset)
            if entry is not committed and entry.next_offset > start:
                self.fail(f"node {view.node_id} has {entry} below its high watermark {end}, committed is {committed}")
            offset = entry.next_offset
        if offset < end:
            self.fail(f"node {view.node_id} has no batch at {offset} below its high watermark {end}")
