"""Invariant 79: elections are won with votes of the candidate's own set, each from the directory that is in it."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from kraftlite.model.ids import NodeId
from kraftlite.model.messages.methods import VOTE
from kraftlite.model.messages.raft import VoteRequest, VoteResponse
from kraftlite.runtime.trace.raft import LeaderElected
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.sim.checkers.views import NodeView
from kraftlite.sim.checkers.voter_sets import is_in, majority
from kraftlite.sim.quorum import described
from kraftlite.simhost.network import Exchange


class CountedVotes(MetadataChecker):
    """A node that has lost its disk has a vote of its own, and none in the name of its old directory."""

    numbers: ClassVar[tuple[int, ...]] = (79,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._given: dict[tuple[NodeId, int, NodeId], list[UUID | None]] = {}
        """(candidate, epoch, voter) → the directories that have voted under this id."""
        self.facts.watch_served(VOTE, self._on_vote)
        self._won: dict[tuple[NodeId, int], LeaderElected] = {}
        self.facts.watch(LeaderElected, self._on_elected)

    def _on_vote(self, exchange: Exchange[VoteRequest, VoteResponse], response: VoteResponse) -> None:
        request = exchange.request
        if response.vote_granted and not request.pre_vote:
            given = self._given.setdefault((request.candidate_id, request.candidate_epoch, exchange.target), [])
            directory = self.facts.views[exchange.target].directory_id
            if directory not in given:
                given.append(directory)

    def _on_elected(self, view: NodeView, event: LeaderElected) -> None:
        self._won[view.author] = event

    def on_role(self, view: NodeView) -> None:
        """Judge an election by the log with which it was won: of a node that has only just started, it is known by now."""
        event = self._won.pop(view.author, None)
        if event is None:
            return
        keys = self.facts.voter_sets.of(view)
        counted: list[NodeId] = []
        for node_id, directory in keys:
            if node_id not in event.granting_voters:
                continue
            if node_id == view.node_id:
                right = is_in(keys, view)
            else:
                given = self._given.get((view.node_id, event.raft_epoch, node_id), [])
                right = bool(given) and (directory is None or directory in given)
            if right:
                counted.append(node_id)
        if len(counted) < majority(keys):
            self.fail(
                f"node {view.node_id} wins epoch {event.raft_epoch} with the votes of {sorted(event.granting_voters)}; only "
                f"those of {counted} count among the voters {described(keys)}"
            )
