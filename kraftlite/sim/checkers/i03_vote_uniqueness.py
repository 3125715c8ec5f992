"""Invariant 3: one vote per epoch and (node, directory), on disk before anybody hears of it."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from kraftlite.model.ids import NodeId
from kraftlite.model.messages.methods import VOTE
from kraftlite.model.messages.raft import VoteRequest, VoteResponse
from kraftlite.raft.states import Follower
from kraftlite.raft.voters import ReplicaKey
from kraftlite.runtime.trace.raft import LeaderElected
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.sim.checkers.views import NodeView


class VoteUniqueness(MetadataChecker):
    """A node's memory and its disk say the same of the election after every step; every vote that counts is one it cast. Who
    hears of a leader takes no vote along from the epoch before: it would be granted once more."""

    numbers: ClassVar[tuple[int, ...]] = (3,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._votes: dict[tuple[NodeId, UUID | None, int], ReplicaKey] = {}
        self._cast: dict[tuple[NodeId, int], set[NodeId]] = {}
        self.facts.watch_answer(VOTE, self._on_vote)
        self.facts.watch(LeaderElected, self._on_elected)

    def on_role(self, view: NodeView) -> None:
        state = view.state
        assert state is not None
        election = state.election()
        stored = view.stored_election()
        if stored != election:
            self.fail(f"node {view.node_id} believes {election}, its disk says {stored}")
        key = (view.node_id, view.directory_id, election.epoch)
        known = self._votes.get(key)
        if known is not None and known != election.voted:
            self.fail(
                f"node {view.node_id}, incarnation {view.incarnation}, says that it voted for {election.voted} in epoch "
                f"{election.epoch}; it voted for {known}"
            )
        if election.voted is None:
            return
        if known is None and isinstance(state, Follower):
            self.fail(
                f"node {view.node_id} follows {election.leader_id} in epoch {election.epoch} with a vote for {election.voted}, "
                "which it has not cast in that epoch"
            )
        self._votes[key] = election.voted
        self._cast.setdefault((view.node_id, election.epoch), set()).add(election.voted.id)

    def _on_vote(self, source: NodeId, target: NodeId, request: VoteRequest, response: VoteResponse) -> None:
        if response.vote_granted and not request.pre_vote:
            self._check_cast(target, request.candidate_epoch, request.candidate_id)

    def _on_elected(self, view: NodeView, event: LeaderElected) -> None:
        for voter in event.granting_voters:
            if voter != view.node_id:  # its own vote is looked at after the step
                self._check_cast(voter, event.raft_epoch, view.node_id)

    def _check_cast(self, voter: NodeId, epoch: int, candidate: NodeId) -> None:
        cast = self._cast.get((voter, epoch), set())
        if candidate not in cast:
            self.fail(f"node {voter} is said to have voted for node {candidate} in epoch {epoch}; its votes: {sorted(cast)}")
