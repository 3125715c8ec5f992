"""A follower that hears its leader does not help another node to take its place (KIP-996): who comes back would depose a leader
that is well."""

from __future__ import annotations

from kraftlite.model.ids import NodeId
from kraftlite.model.messages.methods import END_QUORUM_EPOCH
from kraftlite.model.messages.raft import EndQuorumEpochRequest, EndQuorumEpochResponse
from kraftlite.raft.states import Follower
from kraftlite.runtime.trace.raft import BatchAppended, FetchTimedOut, VoteAnswered
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.sim.checkers.views import NodeView
from kraftlite.simhost.network import Exchange


class PreVotesDeserved(MetadataChecker):
    """A follower that has taken records from the leader of its epoch grants no pre-vote before it has given up on that one: its
    fetch timeout has passed, or it may have heard that the leader resigns."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._follows: dict[NodeId, Follower] = {}
        """The role in which a node has taken records, and has not given up."""
        self._ended: set[tuple[NodeId, int]] = set()
        """(node, epoch) in which its leader has told it that it resigns: what waits at a paused node is taken up later."""
        self.facts.watch(BatchAppended, self._on_appended)
        self.facts.watch(FetchTimedOut, self._on_timed_out)
        self.facts.watch(VoteAnswered, self._on_answered)
        self.facts.watch_arrival(END_QUORUM_EPOCH, self._on_end)

    def _on_appended(self, view: NodeView, event: BatchAppended) -> None:
        state = None if view.core is None else view.core.state
        if isinstance(state, Follower) and not state.leader_has_resigned:
            self._follows[view.node_id] = state

    def _on_timed_out(self, view: NodeView, event: FetchTimedOut) -> None:
        self._follows.pop(view.node_id, None)

    def _on_end(self, exchange: Exchange[EndQuorumEpochRequest, EndQuorumEpochResponse]) -> None:
        self._ended.add((exchange.target, exchange.request.leader_epoch))

    def _on_answered(self, view: NodeView, event: VoteAnswered) -> None:
        state = None if view.core is None else view.core.state
        if not (event.pre_vote and event.granted and isinstance(state, Follower)):
            return
        if self._follows.get(view.node_id) is state and (view.node_id, state.epoch) not in self._ended:
            self.fail(
                f"node {view.node_id} tells {event.candidate_id} that it has its vote, and follows {state.leader_id}, from whom "
                f"it has records of epoch {state.epoch} and who has not been silent for too long"
            )
