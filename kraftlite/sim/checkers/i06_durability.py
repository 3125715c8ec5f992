"""Invariant 6: what is committed is on the disks of a majority of the voters for good, and a restart finds it there."""

from __future__ import annotations

from typing import ClassVar

from kraftlite.model.ids import NodeId
from kraftlite.raft.states import Leader
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.sim.checkers.views import LogMemory, NodeView


class Durability(MetadataChecker):
    """Looks at the simulated disks themselves: neither the recovery point nor anybody's word for it counts."""

    numbers: ClassVar[tuple[int, ...]] = (6,)

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
        voters = self.facts.voters
        durable = {voter: self.facts.views[voter].durable_end(new) for voter in voters}
        holders = [voter for voter in voters if durable[voter] >= new and self._same_there(self.facts.views[voter], new, last)]
        if len(holders) <= len(voters) // 2:
            self.fail(
                f"leader {view.node_id} says [0,{new}) is committed in epoch {view.raft.epoch}; on disk for good it is only at "
                f"{holders} of {voters}: {durable}"
            )

    @staticmethod
    def _same_there(view: NodeView, end: int, last: object) -> bool:
        return view.log.start == end or view.log.ending_at(end) is last

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
