"""Invariant 10: roles and what they may do fit together."""

from __future__ import annotations

from typing import ClassVar

from kraftlite.raft.states import Candidate, Follower, Leader, Prospective
from kraftlite.runtime.trace.raft import BatchAppended
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.sim.checkers.views import NodeView
from kraftlite.sim.checkers.voter_sets import is_in
from kraftlite.sim.quorum import described


class RoleConsistency(MetadataChecker):
    """Only voters stand for election and lead, by the newest set of their log, and who is about to be removed; only leaders and
    followers write their logs; only an active controller has answers that wait, and it once led the epoch in which it is one."""

    numbers: ClassVar[tuple[int, ...]] = (10,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.facts.watch(BatchAppended, self._on_appended)

    def on_role(self, view: NodeView) -> None:
        state, core = view.state, view.raft
        voters = self.facts.voter_sets.of(view)
        is_voter = is_in(voters, view)
        if isinstance(state, Candidate | Leader | Prospective) and not is_voter and not self._is_on_its_way_out(view):
            self.fail(f"observer {view.node_id} is {state.name} in epoch {state.epoch}")
        if (core.state_name == "observer") == (is_voter or isinstance(state, Leader)):
            self.fail(f"node {view.node_id} calls itself {core.state_name}; the voters are {described(voters)}")
        if isinstance(state, Follower) and (state.leader_id == view.node_id or state.leader_id not in self.facts.controllers):
            self.fail(f"node {view.node_id} follows node {state.leader_id}; the controllers are {self.facts.controllers}")
        if isinstance(state, Candidate) and state.voted.id != view.node_id:
            self.fail(f"candidate {view.node_id} voted for {state.voted} in epoch {state.epoch}")

    def _is_on_its_way_out(self, view: NodeView) -> bool:
        """Return whether the last record of the log takes the node out of the voters and is not known to be committed (DQ-12)."""
        last = self.facts.voter_sets.newest_in(view)
        if last is None or last.voters_offset < view.hw:
            return False
        before = [it.voters for it in view.log.controls if it.voters is not None][:-1]
        return is_in(before[-1] if before else self.facts.voter_sets.at_start(view.node_id, view.log), view)

    def _on_appended(self, view: NodeView, event: BatchAppended) -> None:
        if view.core is None:
            return
        state = view.core.state
        if not isinstance(state, Leader | Follower):
            self.fail(f"node {view.node_id} writes [{event.base_offset},{event.leo}) as {state.name}")
        if event.raft_epoch != state.epoch:
            self.fail(f"node {view.node_id} is in epoch {state.epoch} and writes in epoch {event.raft_epoch}")

    def on_raft(self, view: NodeView) -> None:
        core = view.raft
        if core.log_end_offset != core.leo and not isinstance(core.state, Leader):
            self.fail(f"node {view.node_id} is {core.state.name} and has prepared records up to {core.log_end_offset}")

    def on_controller(self, view: NodeView) -> None:
        controller = view.active_controller
        if not controller.active:
            if len(controller.deferred):
                self.fail(f"controller {view.node_id} is not active, and {len(controller.deferred)} answers wait in it")
            if controller.activated or controller.state.cluster.heartbeats is not None or controller.offsets.active:
                self.fail(f"controller {view.node_id} is not active, and has kept what only an active one has")
            return
        assert controller.claim_epoch is not None
        if self.facts.elected.get(controller.claim_epoch) != view.author:
            won = self.facts.elected.get(controller.claim_epoch)
            self.fail(f"controller {view.author} is active in epoch {controller.claim_epoch}, which was won by {won}")
        if controller.state.cluster.heartbeats is None or not controller.offsets.active:
            self.fail(f"controller {view.node_id} is active without heartbeats or a write offset")
