"""Invariant 84: a leader whose removal from the voters is committed leaves its office, and the quorum settles."""

from __future__ import annotations

from typing import ClassVar, Final

from kraftlite.model.ids import NodeId
from kraftlite.raft.states import Follower, Leader
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.sim.checkers.views import NodeView, running
from kraftlite.sim.checkers.voter_sets import is_in
from kraftlite.sim.quorum import described

_GAP_US: Final = 1_000_000
"""A leader that shows nothing for so long stood still."""


class OfficeLeft(MetadataChecker):
    """It does so within a request timeout. When the faults are over every controller follows the leader, the last change of the
    voters is committed, every voter has the listener in its entry that it listens at, or has told its leader what it supports
    where there are no entries, and who joins by itself has joined."""

    numbers: ClassVar[tuple[int, ...]] = (84,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._out: dict[tuple[int, int], tuple[int, int]] = {}
        """Since when a leader, in an incarnation, is out of its set, and when it was last looked at."""

    def on_raft(self, view: NodeView) -> None:
        state, author = view.state, view.author
        entry = self.facts.voter_sets.newest_in(view)
        hw = state.hw if isinstance(state, Leader) else None
        if entry is None or hw is None or hw <= entry.voters_offset or is_in(entry.voters or (), view):
            self._out.pop(author, None)
            return
        now_us = self.world.cluster.loop.now_us()
        since_us, seen_us = self._out.get(author, (now_us, now_us))
        if now_us - seen_us > _GAP_US:
            since_us += now_us - seen_us
        self._out[author] = (since_us, now_us)
        patience_us = view.raft.config.request_timeout_ms * 1000
        if now_us - since_us > patience_us:
            self.fail(
                f"node {view.node_id} leads epoch {view.raft.epoch} {(now_us - since_us) // 1000} ms after its removal was "
                f"committed; the voters are {described(entry.voters or ())}"
            )

    def unsettled(self) -> str | None:
        views = [view for view in running(self.facts.views.values()) if view.node_id in self.facts.controllers]
        leader = max((it for it in views if isinstance(it.state, Leader)), key=lambda it: it.raft.epoch, default=None)
        if leader is None:
            return "nobody leads the quorum"
        if not is_in(self.facts.voter_sets.of(leader), leader):
            return f"node {leader.node_id} leads and is not among the voters"
        entry = self.facts.voter_sets.newest_in(leader)
        if entry is not None and entry.next_offset > self.facts.committed_end:
            return f"the voters {described(entry.voters or ())} of offset {entry.voters_offset} are not committed"
        for view in views:
            state = view.raft.state
            if view is not leader and not (isinstance(state, Follower) and state.leader_id == leader.node_id):
                return f"node {view.node_id} is {view.raft.state_name} in epoch {view.raft.epoch} and follows nobody"
        return self._left_out(leader)

    @staticmethod
    def _unknown_voter(leader: NodeView) -> str | None:
        state = leader.raft.state
        known = state.described.voters if isinstance(state, Leader) and state.described is not None else ()
        silent = [voter.id for voter in known if not voter.listeners]
        return f"the leader, node {leader.node_id}, does not know what voters {silent} support" if silent or not known else None

    def _left_out(self, leader: NodeView) -> str | None:
        """Say who is not in the set as it should be, where the voters are in the log, or can come there."""
        quorum = self.world.cluster.quorum
        if quorum.forming is None:
            return None
        if leader.raft.metalog.membership.is_static:
            return self._unknown_voter(leader)
        keys = self.facts.voter_sets.of(leader)
        for number in quorum.forming.joins:
            if not is_in(keys, self.facts.views[NodeId(number)]):
                return f"controller {number} joins by itself and is not among the voters {described(keys)}"
        for voter in leader.raft.voters.voters:
            view = self.facts.views[voter.id]
            if is_in(keys, view) and voter.endpoint.port != quorum.port(voter.id):
                return f"voter {voter.id} listens on port {quorum.port(voter.id)}; its entry says {voter.endpoint}"
        return None
