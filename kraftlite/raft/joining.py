"""The requests by which a controller keeps its own place among the voters: its entry right, and a place where it has none.

A voter whose listeners, or whose range of kraft.version, are not those of its entry tells the leader so. While kraft.version is 0
nobody has an entry, and each voter tells each leader once, so that the quorum can be upgraded. A controller that joins
by itself asks to be added, and before that removes an entry of its own id with another directory: that of a disk that it lost.

Source: KIP-853 (UpdateRaftVoter), KIP-1186 (auto-join); DQ-37, DQ-38.
"""

from __future__ import annotations

from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.methods import ADD_VOTER, REMOVE_VOTER, UPDATE_VOTER
from kraftlite.model.messages.raft import (
    AddVoterRequest,
    AddVoterResponse,
    RemoveVoterRequest,
    RemoveVoterResponse,
    UpdateVoterRequest,
    UpdateVoterResponse,
)
from kraftlite.raft.context import RaftContext
from kraftlite.raft.membership import KRAFT_VERSION_DYNAMIC
from kraftlite.raft.states import Follower
from kraftlite.raft.voters import Voter


class Joining:
    """The part of the core that a follower asks the leader with, once every fetch timeout."""

    def __init__(self, ctx: RaftContext) -> None:
        self._ctx = ctx
        self._follows: Follower | None = None
        self._due_ms: int | None = None

    def poll(self) -> None:
        ctx, state = self._ctx, self._ctx.state
        if not isinstance(state, Follower) or not self._has_to_ask(state):
            self._follows = self._due_ms = None
            return
        if self._follows is not state or self._due_ms is None:
            self._follows, self._due_ms = state, ctx.now_ms + ctx.config.fetch_timeout_ms
        if self._due_ms <= ctx.now_ms:
            self._due_ms = ctx.now_ms + ctx.config.fetch_timeout_ms
            self._ask(state)

    def deadline_ms(self) -> int | None:
        return self._due_ms

    def _has_to_ask(self, state: Follower) -> bool:
        ctx = self._ctx
        if ctx.shutting_down or not ctx.config.listeners:
            return False
        if ctx.is_voter:
            return self._update(state) is not None
        return ctx.config.auto_join and ctx.membership.kraft_version >= KRAFT_VERSION_DYNAMIC

    def _update(self, state: Follower) -> Voter | None:
        """Return what this voter has to tell the leader of itself, if anything."""
        ctx = self._ctx
        own = ctx.voters.get(ctx.node_id)
        assert own is not None, "a voter has an entry"
        if ctx.membership.kraft_version < KRAFT_VERSION_DYNAMIC:
            unknown = not state.told_leader and ctx.key.directory_id is not None
            return ctx.own_voter(ctx.key.directory_id) if unknown else None
        now = ctx.own_voter(own.directory_id)
        return now if now != own else None

    def _ask(self, state: Follower) -> None:
        ctx = self._ctx
        leader_id, endpoint = state.leader_id, state.leader_endpoint
        own, cluster_id = ctx.voters.get(ctx.node_id), ctx.config.cluster_id
        if ctx.is_voter:
            voter = self._update(state)
            if voter is not None and ctx.requests.may_send(leader_id, UPDATE_VOTER, ctx.now_ms):
                low, high = voter.versions
                update = UpdateVoterRequest(
                    cluster_id=cluster_id,
                    current_leader_epoch=state.epoch,
                    voter_id=voter.id,
                    voter_directory_id=ctx.key.directory_id,
                    listeners=voter.listeners,
                    min_kraft_version=low,
                    max_kraft_version=high,
                )
                ctx.send(leader_id, UPDATE_VOTER, update, endpoint)
        elif own is not None:
            if ctx.requests.may_send(leader_id, REMOVE_VOTER, ctx.now_ms):
                removal = RemoveVoterRequest(cluster_id=cluster_id, voter_id=own.id, voter_directory_id=own.directory_id)
                ctx.send(leader_id, REMOVE_VOTER, removal, endpoint)
        elif ctx.requests.may_send(leader_id, ADD_VOTER, ctx.now_ms):
            addition = AddVoterRequest(
                cluster_id=cluster_id,
                voter_id=ctx.node_id,
                voter_directory_id=ctx.key.directory_id,
                listeners=ctx.config.listeners,
                ack_when_committed=False,
            )
            ctx.send(leader_id, ADD_VOTER, addition, endpoint)

    def on_response(self, peer_id: NodeId, response: AddVoterResponse | RemoveVoterResponse | UpdateVoterResponse) -> None:
        """Whatever the answer says, the next request waits its time. An update that was taken is a sign of a living leader."""
        ctx, before = self._ctx, self._ctx.state
        updated = isinstance(response, UpdateVoterResponse)
        endpoint = response.leader_endpoint if isinstance(response, UpdateVoterResponse) else None
        if not ctx.heard(peer_id, "answer about voters", response.leader_epoch, response.leader_id, endpoint):
            return
        state = ctx.state
        if updated and response.error is ErrorCode.NONE and state is before and isinstance(state, Follower):
            state.told_leader = True
            state.fetch_deadline_ms = ctx.now_ms + ctx.config.fetch_timeout_ms
