"""Invariant 89 (CI-03): above what is committed a log has at most one change of who votes."""

from __future__ import annotations

from typing import ClassVar

from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.sim.checkers.views import Entry, NodeView
from kraftlite.sim.quorum import described


class OneChange(MetadataChecker):
    """A record that repeats the set with another listener, as a new leader may write it behind a change that it found, is none.
    Whether something is committed, the cluster decides and not the node: a follower may not have heard of it."""

    numbers: ClassVar[tuple[int, ...]] = (89,)

    def on_append(self, view: NodeView, entry: Entry) -> None:
        if entry.voters is None:
            return
        sets, end = self.facts.voter_sets, self.facts.committed_end
        known = sets.at_start(view.node_id, view.log)
        open_changes: list[Entry] = []
        for it in view.log.controls:
            if it.voters is None:
                continue
            if it.next_offset > end and it.voters != known and known:
                open_changes.append(it)
            known = it.voters
        if len(open_changes) > 1:
            told = ", ".join(f"{described(it.voters or ())} at {it.voters_offset}" for it in open_changes)
            self.fail(
                f"node {view.node_id}: {len(open_changes)} changes of the voters are not committed, which [0,{end}) is: {told}"
            )
