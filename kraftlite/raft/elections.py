"""Elections: votes asked for and given, epochs begun and ended.

Source: KIP-595 (Vote, BeginQuorumEpoch, EndQuorumEpoch), KIP-996 (pre-vote); RF-01 to RF-11, RF-16, RF-19 to RF-24, RF-38, RF-61.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from kraftlite.model.errors import ErrorCode, Fault
from kraftlite.model.ids import NodeId
from kraftlite.model.limits import RAFT_MAX_EPOCH
from kraftlite.model.messages.methods import END_QUORUM_EPOCH, VOTE
from kraftlite.model.messages.raft import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    VoteRequest,
    VoteResponse,
)
from kraftlite.raft.context import RaftContext
from kraftlite.raft.quorum_state import EPOCHS_USED_UP
from kraftlite.raft.states import Candidate, Follower, Prospective, Resigned, Unattached
from kraftlite.raft.voters import ReplicaKey
from kraftlite.runtime.trace import raft as trace

BACKOFF_UNIT_MS = 100
DEFERENCE_DIVISOR = 8
"""The part of the election timeout that a prospective node leaves to another one with a lower id."""


class Elections:
    """The part of the core that plays unattached, prospective, candidate and resigned. Raises Fault (RF-23), OSError."""

    def __init__(self, ctx: RaftContext, become_leader: Callable[[Candidate], None]) -> None:
        self._ctx = ctx
        self._become_leader = become_leader

    # asked by peers

    def on_vote_request(self, request: VoteRequest) -> VoteResponse:
        ctx = self._ctx
        error = self._cluster_error(request.cluster_id)
        if error is ErrorCode.NONE:
            error = _vote_error(request)
        if error is ErrorCode.NONE and request.candidate_epoch < ctx.epoch:
            error = ErrorCode.FENCED_LEADER_EPOCH
        if error is ErrorCode.NONE:
            error = self._candidate_error(request)
        if error is not ErrorCode.NONE:
            return self._vote_response(error, False)
        candidate = ReplicaKey(request.candidate_id, request.candidate_directory_id)
        is_for_us = self._is_for_us(request.voter_id, request.voter_directory_id)
        up_to_date = ctx.log_is_up_to_date(request.last_epoch, request.last_epoch_end_offset)
        if request.candidate_epoch > ctx.epoch:
            # In a new epoch nothing but the log stands against the candidate: take epoch and vote in one write.
            grants = is_for_us and up_to_date and not request.pre_vote
            ctx.become_unattached(request.candidate_epoch, voted=candidate if grants else None)
        if not is_for_us:
            return self._vote_response(ErrorCode.INVALID_VOTER_KEY, False)
        granted = ctx.state.can_grant(candidate, log_is_up_to_date=up_to_date, pre_vote=request.pre_vote)
        if granted and not request.pre_vote and ctx.state.election().voted is None:
            ctx.become_unattached(request.candidate_epoch, voted=candidate)
        if granted and request.pre_vote:
            self._defer_to(candidate)
        ctx.tracer.emit(
            trace.VoteAnswered(
                candidate_id=candidate.id, raft_epoch=request.candidate_epoch, pre_vote=request.pre_vote, granted=granted
            )
        )
        return self._vote_response(ErrorCode.NONE, granted)

    def _candidate_error(self, request: VoteRequest) -> ErrorCode:
        """A quorum with a static set of voters knows who may stand, as Kafka's did before KIP-853. Where voters are in the log,
        epoch and log alone decide: candidate or this node may have been added by a record that is not here yet (DQ-12)."""
        ctx, candidate_id = self._ctx, request.candidate_id
        if ctx.membership.is_static and candidate_id not in ctx.voters.ids:
            error, reason = ErrorCode.INCONSISTENT_VOTER_SET, f"it is not one of the voters {ctx.voters.ids}"
        elif candidate_id == ctx.node_id:
            error, reason = ErrorCode.INVALID_REQUEST, "it claims to be this node"
        else:
            incredible = ctx.incredible(request.candidate_epoch, None)
            if incredible is None:
                return ErrorCode.NONE
            error, reason = ErrorCode.INVALID_REQUEST, incredible
        ctx.refuse(candidate_id, "Vote", reason)
        return error

    def _leader_error(self, message: str, cluster_id: str | None, leader_id: NodeId, epoch: int) -> ErrorCode:
        """Say what is wrong with a request in which a leader speaks of its own epoch."""
        ctx = self._ctx
        error = self._cluster_error(cluster_id)
        if error is ErrorCode.NONE and (leader_id < 0 or epoch < 0):
            error = ErrorCode.INVALID_REQUEST
        if error is ErrorCode.NONE and epoch < ctx.epoch:
            error = ErrorCode.FENCED_LEADER_EPOCH
        if error is ErrorCode.NONE:
            reason = "it claims to be this node" if leader_id == ctx.node_id else ctx.incredible(epoch, leader_id)
            if reason is not None:
                ctx.refuse(leader_id, message, reason)
                known = leader_id in ctx.voters.ids or not ctx.membership.is_static
                return ErrorCode.INVALID_REQUEST if known else ErrorCode.INCONSISTENT_VOTER_SET
        return error

    def _defer_to(self, candidate: ReplicaKey) -> None:
        """Two voters that miss their leader do so at the same moment, and grant each other's pre-vote: the lower id goes first.

        Departs: Kafka lets both become candidates; where the third voter is the dead leader, the votes split and a whole
        election timeout is lost (RF-09).
        """
        ctx, state = self._ctx, self._ctx.state
        if isinstance(state, Prospective) and state.defers_until_ms is None and candidate.id < ctx.node_id:
            state.defers_until_ms = ctx.now_ms + ctx.config.election_timeout_ms // DEFERENCE_DIVISOR

    def on_begin_request(self, request: BeginQuorumEpochRequest) -> BeginQuorumEpochResponse:
        ctx = self._ctx
        error = self._leader_error("BeginQuorumEpoch", request.cluster_id, request.leader_id, request.leader_epoch)
        if error is ErrorCode.NONE:
            ctx.observe(request.leader_epoch, request.leader_id, request.leader_endpoint, from_leader=True)
            if not self._is_for_us(request.voter_id, request.voter_directory_id):
                error = ErrorCode.INVALID_VOTER_KEY
        return BeginQuorumEpochResponse(error=error, leader_id=ctx.state.leader_id, leader_epoch=ctx.epoch)

    def on_end_request(self, request: EndQuorumEpochRequest) -> EndQuorumEpochResponse:
        ctx = self._ctx
        error = self._leader_error("EndQuorumEpoch", request.cluster_id, request.leader_id, request.leader_epoch)
        if error is ErrorCode.NONE:
            ctx.observe(request.leader_epoch, request.leader_id, from_leader=True)
            state = ctx.state
            if isinstance(state, Follower) and state.leader_id == request.leader_id and ctx.is_voter:
                state.leader_is_live, state.leader_has_resigned = False, True
                state.fetch_deadline_ms = ctx.now_ms + self._successor_delay_ms(request.preferred_successors)
        return EndQuorumEpochResponse(error=error, leader_id=ctx.state.leader_id, leader_epoch=ctx.epoch)

    def _successor_delay_ms(self, successors: tuple[NodeId, ...]) -> int:
        """Return how long to wait before standing for election: nothing for the first successor, doubling for those after it
        (RF-19)."""
        maximum = self._ctx.config.election_backoff_max_ms
        if self._ctx.node_id not in successors:
            return maximum
        position = successors.index(self._ctx.node_id)
        if position == 0:
            return 0
        return min(maximum, (maximum >> (len(successors) - 1)) << (position - 1))

    def _cluster_error(self, cluster_id: str | None) -> ErrorCode:
        """Departs: Kafka takes a request without a cluster id for one of its own cluster."""
        ok = cluster_id == self._ctx.config.cluster_id
        return ErrorCode.NONE if ok else ErrorCode.INCONSISTENT_CLUSTER_ID

    def _is_for_us(self, voter_id: NodeId, directory_id: UUID | None) -> bool:
        return self._ctx.key.matches(ReplicaKey(voter_id, directory_id))

    def _vote_response(self, error: ErrorCode, granted: bool) -> VoteResponse:
        ctx = self._ctx
        return VoteResponse(
            error=error,
            leader_id=ctx.state.leader_id,
            leader_epoch=ctx.epoch,
            leader_endpoint=ctx.leader_endpoint,
            vote_granted=granted,
        )

    # asked of peers

    def on_vote_response(self, peer_id: NodeId, request: VoteRequest, response: VoteResponse) -> None:
        ctx = self._ctx
        before = ctx.state
        if not ctx.heard(peer_id, "Vote answer", response.leader_epoch, response.leader_id, response.leader_endpoint):
            ctx.requests.back_off(peer_id, VOTE, ctx.now_ms)
            return
        state = ctx.state
        if state is not before or not isinstance(state, Prospective | Candidate):
            return
        if response.error is not ErrorCode.NONE:
            ctx.requests.back_off(peer_id, VOTE, ctx.now_ms)
            return
        if request.pre_vote != isinstance(state, Prospective) or response.leader_epoch != state.epoch:
            return
        (state.granted if response.vote_granted else state.rejected).add(peer_id)
        if self._has_won(state.granted):
            if isinstance(state, Candidate):  # a prospective node stands in `poll`, when it need not defer
                self._become_leader(state)
        elif self._has_lost(state.rejected):
            self._lose(state, "refused")

    def on_end_response(self, peer_id: NodeId, response: EndQuorumEpochResponse) -> None:
        ctx = self._ctx
        before = ctx.state
        believed = ctx.heard(peer_id, "EndQuorumEpoch answer", response.leader_epoch, response.leader_id)
        if ctx.state is before and isinstance(before, Resigned):
            if believed and response.error is ErrorCode.NONE:
                before.unacknowledged.discard(peer_id)
            else:
                ctx.requests.back_off(peer_id, END_QUORUM_EPOCH, ctx.now_ms)

    def _has_won(self, granted: set[NodeId]) -> bool:
        ctx = self._ctx
        counted = granted.intersection(ctx.voters.ids)
        if not ctx.is_voter:
            counted.discard(ctx.node_id)  # the entry with this id is another disk's
        return len(counted) >= ctx.voters.majority

    def _has_lost(self, rejected: set[NodeId]) -> bool:
        """Return whether a majority can no longer be reached."""
        voters = self._ctx.voters
        return len(voters) - len(rejected.intersection(voters.ids)) < voters.majority

    # changes of role

    def become_prospective(self, cause: str, retries: int = 0) -> None:
        """`cause`: why this node stands for election, as the trace's events say it."""
        ctx = self._ctx
        ctx.stands_because = cause
        assert ctx.may_stand, "an observer does not stand for election"
        election = ctx.state.election()
        resigned = isinstance(ctx.state, Resigned)
        ctx.become(
            Prospective(
                epoch=ctx.epoch,
                leader_id=None if resigned else election.leader_id,
                leader_endpoint=None if resigned else ctx.leader_endpoint,
                voted=election.voted,
                election_deadline_ms=ctx.now_ms + ctx.random_election_timeout_ms(),
                retries=retries,
                granted={ctx.node_id},
            ),
            cause,
        )
        if ctx.voters.is_only_voter(ctx.key):
            self.become_candidate(1)

    def become_candidate(self, retries: int) -> None:
        """A new epoch, and the vote of this node for itself in it."""
        ctx = self._ctx
        assert ctx.may_stand, "an observer does not stand for election"
        if ctx.epoch >= RAFT_MAX_EPOCH:
            raise Fault(f"{ctx.store.path}: {EPOCHS_USED_UP}")
        candidate = Candidate(
            epoch=ctx.epoch + 1,
            voted=ctx.key,
            election_deadline_ms=ctx.now_ms + ctx.random_election_timeout_ms(),
            retries=retries,
            granted={ctx.node_id},
        )
        ctx.become(candidate, ctx.stands_because)
        if self._has_won(candidate.granted):
            self._become_leader(candidate)

    def _lose(self, state: Prospective | Candidate, reason: str) -> None:
        ctx = self._ctx
        if isinstance(state, Candidate):
            if state.backoff_deadline_ms is None:
                # Binary exponential, random: two candidates that split the votes must not meet again (RF-09).
                bound = 2 << min(20, state.retries - 1)
                backoff = min(BACKOFF_UNIT_MS * ctx.entropy.randrange(bound), ctx.config.election_backoff_max_ms)
                state.backoff_deadline_ms = ctx.now_ms + backoff
                ctx.tracer.emit(trace.ElectionLost(raft_epoch=state.epoch, pre_vote=False, reason=reason, backoff_ms=backoff))
            return
        ctx.tracer.emit(trace.ElectionLost(raft_epoch=state.epoch, pre_vote=True, reason=reason))
        if state.leader_id is not None and state.leader_endpoint is not None:
            ctx.become_follower(state.epoch, state.leader_id, state.leader_endpoint)
        else:
            ctx.become_unattached(state.epoch)

    # time

    def poll(self) -> None:
        state = self._ctx.state
        if isinstance(state, Unattached):
            self._poll_unattached(state)
        elif isinstance(state, Prospective):
            self._poll_prospective(state)
        elif isinstance(state, Candidate):
            self._poll_candidate(state)
        elif isinstance(state, Resigned):
            self._poll_resigned(state)

    def _poll_unattached(self, state: Unattached) -> None:
        ctx = self._ctx
        if ctx.may_stand and not ctx.shutting_down:
            alone = ctx.voters.is_only_voter(ctx.key)
            if alone or (state.election_deadline_ms is not None and state.election_deadline_ms <= ctx.now_ms):
                self.become_prospective("timer:election")

    def _poll_prospective(self, state: Prospective) -> None:
        ctx = self._ctx
        if ctx.shutting_down:
            return
        if self._has_won(state.granted):
            if state.defers_until_ms is None or state.defers_until_ms <= ctx.now_ms:
                self.become_candidate(state.retries + 1)
        elif state.election_deadline_ms <= ctx.now_ms:
            self._lose(state, "timed out")
        else:
            self._ask_for_votes(state, pre_vote=True)

    def _poll_candidate(self, state: Candidate) -> None:
        ctx = self._ctx
        if ctx.shutting_down:
            return
        if self._has_won(state.granted):  # a restarted candidate that is the only voter
            self._become_leader(state)
        elif state.backoff_deadline_ms is not None:
            if state.backoff_deadline_ms <= ctx.now_ms:
                self.become_prospective(ctx.stands_because or "timer:election", state.retries)
        elif state.election_deadline_ms <= ctx.now_ms:
            self._lose(state, "timed out")
        else:
            self._ask_for_votes(state, pre_vote=False)

    def _ask_for_votes(self, state: Prospective | Candidate, *, pre_vote: bool) -> None:
        ctx = self._ctx
        end = ctx.metalog.end
        for voter_id in ctx.voters.others(ctx.node_id):
            answered = voter_id in state.granted or voter_id in state.rejected
            if answered or not ctx.requests.may_send(voter_id, VOTE, ctx.now_ms):
                continue
            voter = ctx.voters.get(voter_id)
            request = VoteRequest(
                cluster_id=ctx.config.cluster_id,
                voter_id=voter_id,
                voter_directory_id=voter.directory_id if voter is not None else None,
                candidate_id=ctx.node_id,
                candidate_directory_id=ctx.key.directory_id,
                candidate_epoch=state.epoch,
                last_epoch=end.epoch,
                last_epoch_end_offset=end.offset,
                pre_vote=pre_vote,
            )
            ctx.send(voter_id, VOTE, request)

    def _poll_resigned(self, state: Resigned) -> None:
        ctx = self._ctx
        if not ctx.shutting_down and state.election_deadline_ms <= ctx.now_ms:
            if ctx.may_stand:
                ctx.stands_because = f"timer:resigned leader={state.former_leader_id}"
                self.become_candidate(1)
            else:
                ctx.become_unattached(state.epoch + 1)
            return
        for voter_id in ctx.voters.others(ctx.node_id):
            if voter_id in state.unacknowledged and ctx.requests.may_send(voter_id, END_QUORUM_EPOCH, ctx.now_ms):
                request = EndQuorumEpochRequest(
                    cluster_id=ctx.config.cluster_id,
                    leader_id=state.former_leader_id,
                    leader_epoch=state.epoch,
                    preferred_successors=state.preferred_successors,
                )
                ctx.send(voter_id, END_QUORUM_EPOCH, request)

    def deadline_ms(self) -> int | None:
        state = self._ctx.state
        if self._ctx.shutting_down:
            return None
        if isinstance(state, Prospective) and state.defers_until_ms is not None and self._has_won(state.granted):
            return state.defers_until_ms
        if isinstance(state, Unattached | Prospective | Resigned):
            return state.election_deadline_ms
        if isinstance(state, Candidate):
            return state.backoff_deadline_ms if state.backoff_deadline_ms is not None else state.election_deadline_ms
        return None


def _vote_error(request: VoteRequest) -> ErrorCode:
    """A pre-vote asks with an unchanged epoch, so there the last epoch may equal it (RF-06)."""
    newest = request.candidate_epoch if request.pre_vote else request.candidate_epoch - 1
    malformed = (
        request.last_epoch_end_offset < 0 or request.last_epoch < 0 or request.last_epoch > newest or request.candidate_id < 0
    )
    return ErrorCode.INVALID_REQUEST if malformed else ErrorCode.NONE
