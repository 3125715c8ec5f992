"""Only a replica that has the log is made a voter (DQ-32)."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from kraftlite.model.ids import NodeId
from kraftlite.model.messages.methods import RAFT_FETCH
from kraftlite.model.messages.raft import RaftFetchRequest
from kraftlite.raft.states import Leader
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.sim.checkers.views import Entry, NodeView
from kraftlite.sim.quorum import one_step
from kraftlite.simhost.network import AnyExchange

_Follows = tuple[tuple[NodeId, int], int, NodeId, UUID | None]
"""The incarnation of a leader, its epoch, and a replica that fetches from it."""


class AddedVoters(MetadataChecker):
    """A leader that writes a set with one replica more has had a fetch of that replica, in its epoch and of this very directory,
    which began at the end of its log, or where the log ended at the fetch before. One that lags would make a majority wait."""

    numbers: ClassVar[tuple[int, ...]] = (76,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._ended: dict[_Follows, int] = {}
        """The end of the leader's log at the last fetch of each replica."""
        self._caught_up: set[_Follows] = set()
        self.facts.watch_arrival(RAFT_FETCH, self._on_fetch)

    def _on_fetch(self, exchange: AnyExchange) -> None:
        request: RaftFetchRequest = exchange.request
        view = self.facts.views.get(exchange.target)
        if view is None or not isinstance(view.state, Leader):
            return
        follows = (view.author, view.state.epoch, request.replica_id, request.replica_directory_id)
        leo = view.raft.metalog.leo
        if request.fetch_offset >= self._ended.get(follows, leo):
            self._caught_up.add(follows)
        self._ended[follows] = leo

    def on_append(self, view: NodeView, entry: Entry) -> None:
        state, was = view.state, self.facts.voter_sets.newest
        if entry.voters is None or not isinstance(state, Leader) or entry.epoch != state.epoch:
            return
        if any(directory is None for _, directory in was):
            return  # the configured voters come into the log
        for node_id, directory in one_step(was, entry.voters)[0].items():
            if (view.author, state.epoch, node_id, directory) not in self._caught_up:
                self.fail(
                    f"node {view.node_id}, which leads epoch {state.epoch}, makes node {node_id} with directory {directory} a "
                    f"voter by offset {entry.voters_offset}, and no fetch of it has come to the end of the log"
                )
