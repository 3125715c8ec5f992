"""Invariant 89: above what is committed a log has at most one change of who votes, and a leader makes none before it has
committed something of its own epoch."""

from __future__ import annotations

from typing import ClassVar

from kraftlite.raft.states import Leader
from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.sim.checkers.views import Entry, NodeView
from kraftlite.sim.quorum import described


class OneChange(MetadataChecker):
    """A record that repeats the set with another listener, as a new leader may write it behind a change that it found, is none.
    Whether something is committed, the cluster decides and not the node: a follower may not have heard of it."""

    numbers: ClassVar[tuple[int, ...]] = (89,)

    def _check_author(self, view: NodeView, entry: Entry) -> None:
        """The first batch of an epoch changes listeners at most, and an upgrade only names directories."""
        state, sets = view.state, self.facts.voter_sets
        if not isinstance(state, Leader) or state.epoch != entry.epoch or state.hw is not None:
            return
        known = [it.voters for it in view.log.controls if it.voters is not None][:-1]
        before = known[-1] if known else sets.at_start(view.node_id, view.log)
        if [it for it, _ in before] != [it for it, _ in entry.voters or ()]:
            self.fail(
                f"leader {view.node_id} has committed nothing in epoch {state.epoch} and changes the voters to "
                f"{described(entry.voters or ())} at {entry.voters_offset}"
            )

    def on_append(self, view: NodeView, entry: Entry) -> None:
        if entry.voters is None:
            return
        self._check_author(view, entry)
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
