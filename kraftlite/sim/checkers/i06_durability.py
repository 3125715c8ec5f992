"""Invariant 6, and with it 78: what is committed is on the disks of a majority of the voters for good, and a restart
finds it there. The voters are those that count at the leader, and a disk counts that is the one in their set."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from kraftlite.model.ids import NodeId
from kraftlite.raft.states import Leader
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.sim.checkers.views import LogMemory, NodeView
from kraftlite.sim.checkers.voter_sets import is_in, majority
from kraftlite.sim.quorum import described


class Durability(MetadataChecker):
    """Looks at the simulated disks themselves: neither the recovery point nor anybody's word for it counts."""

    numbers: ClassVar[tuple[int, ...]] = (6, 78)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._failed: set[NodeId] = set()
        """Nodes that ended themselves since they last opened their log. Only asked, never iterated."""

    def on_hw(self, view: NodeView, old: int, new: int) -> None:
        if not isinstance(view.state, Leader):
            return
        last = view.log.ending_at(new)
        if last is None:
            self.fail(f"the high watermark {new} of leader {view.node_id} is not the end of a batch in its log")
        voters, views = self.facts.voter_sets.of(view), self.facts.views
        durable = {voter: views[voter].durable_end(new) if is_in(voters, views[voter]) else -1 for voter, _ in voters}
        holders = [
            voter
            for voter, directory in voters
            if (durable[voter] >= new and self._same_there(views[voter].log, new, last))
            or self._was_lost(views[voter], directory, new, last)
        ]
        if len(holders) < majority(voters):
            self.fail(
                f"leader {view.node_id} says [0,{new}) is committed in epoch {view.raft.epoch}; on disk for good it is only at "
                f"{holders} of {described(voters)}: {durable}"
            )

    @staticmethod
    def _same_there(log: LogMemory, end: int, last: object) -> bool:
        return log.start == end or log.ending_at(end) is last

    def _was_lost(self, view: NodeView, directory: UUID | None, end: int, last: object) -> bool:
        """Return whether the disk that is in the set had it: the leader may hear of that when the disk is gone already."""
        return directory in view.lost and self._same_there(view.lost[directory], end, last)

    def on_down(self, view: NodeView, how: str) -> None:
        if how == "failed":
            self._failed.add(view.node_id)

    def on_opened(self, view: NodeView, before: LogMemory, durable: int) -> None:
        # A node that a disk error ended may have been cutting its log just then: only of what is committed may nothing be gone.
        failed = view.node_id in self._failed
        self._failed.discard(view.node_id)
        if view.forgets:
            return
        for entry in before.entries:
            if view.log.start <= entry.base_offset and entry.next_offset <= durable:
                found = view.log.starting_at(entry.base_offset)
                if found is not entry and not (failed and self.facts.committed_at(entry.base_offset) is not entry):
                    self.fail(f"node {view.node_id} restarted with {found} where its disk had {entry} for good")
        for entry in view.log.entries:
            known = before.starting_at(entry.base_offset)
            if known is not entry and before.start < entry.next_offset <= before.leo:
                self.fail(f"node {view.node_id} restarted with {entry} where it had {known}")

    def on_raft(self, view: NodeView) -> None:
        log = view.raft.metalog.log
        if log.recovery_point > log.leo:
            self.fail(f"node {view.node_id} says that [0,{log.recovery_point}) is durable, its log ends at {log.leo}")
