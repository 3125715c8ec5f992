"""Invariant 1: never two leaders of one epoch, in anyone's memory, on anyone's disk, in anyone's answer."""

from __future__ import annotations

from typing import ClassVar

from kraftlite.model.ids import NodeId
from kraftlite.model.messages.methods import BEGIN_QUORUM_EPOCH, END_QUORUM_EPOCH, FETCH_SNAPSHOT, RAFT_FETCH, VOTE
from kraftlite.model.messages.raft import RaftRequest, RaftResponse
from kraftlite.model.method import AnyMethod
from kraftlite.raft.states import Leader
from kraftlite.runtime.trace.raft import LeaderElected
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.sim.checkers.views import NodeView


class ElectionSafety(MetadataChecker):
    """Whoever is named as the leader of an epoch has won it, and nobody else has."""

    numbers: ClassVar[tuple[int, ...]] = (1,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.facts.watch(LeaderElected, self._on_elected)
        methods: tuple[AnyMethod, ...] = (VOTE, BEGIN_QUORUM_EPOCH, END_QUORUM_EPOCH, RAFT_FETCH, FETCH_SNAPSHOT)
        for method in methods:
            self.facts.watch_answer(method, self._on_raft_answer)

    def _on_elected(self, view: NodeView, event: LeaderElected) -> None:
        winner = self.facts.elected[event.raft_epoch][0]
        if winner != view.node_id:
            self.fail(f"node {view.node_id} wins epoch {event.raft_epoch}, which node {winner} has won")

    def on_role(self, view: NodeView) -> None:
        state = view.state
        assert state is not None
        self._named(state.epoch, state.election().leader_id, f"node {view.node_id} in its memory")
        if isinstance(state, Leader) and self.facts.elected[state.epoch][0] != view.node_id:
            self.fail(f"node {view.node_id} leads epoch {state.epoch}, which node {self.facts.elected[state.epoch][0]} has won")
        stored = view.stored_election()
        if stored is not None:
            self._named(stored.epoch, stored.leader_id, f"node {view.node_id} on its disk")

    def _on_raft_answer(self, source: NodeId, target: NodeId, request: RaftRequest, response: RaftResponse) -> None:
        self._named(response.leader_epoch, response.leader_id, f"node {target} to node {source}")

    def _named(self, epoch: int, leader_id: NodeId | None, where: str) -> None:
        if leader_id is None:
            return
        won = self.facts.elected.get(epoch)
        if won is None:
            self.fail(f"{where}: node {leader_id} leads epoch {epoch}, which nobody has won")
        elif won[0] != leader_id:
            self.fail(f"{where}: node {leader_id} leads epoch {epoch}, which node {won[0]} has won")
