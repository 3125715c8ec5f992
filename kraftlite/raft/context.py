"""The state that the parts of the raft core share: the log, the role, the output under construction, and the changes of role.

Source: KIP-595 "Quorum State Machine"; RF-01, RF-04, RF-11, RF-13, RF-23.
"""

from __future__ import annotations

import random
from typing import Final, TypeVar
from uuid import UUID

from kraftlite.model.ids import Endpoint, NodeId
from kraftlite.model.limits import RAFT_EPOCH_ANSWERED, RAFT_EPOCH_STEP, RAFT_EPOCH_TRUSTED
from kraftlite.model.messages.raft import OffsetAndEpoch, RaftRequest, RaftResponse
from kraftlite.model.method import Method
from kraftlite.raft.config import QuorumConfig
from kraftlite.raft.events import OutboundRequest, Output, Reply
from kraftlite.raft.membership import KRAFT_VERSION_DYNAMIC, KRAFT_VERSION_STATIC
from kraftlite.raft.metalog import MetadataLog
from kraftlite.raft.quorum_state import ElectionState, QuorumStateStore
from kraftlite.raft.requests import RequestTracker
from kraftlite.raft.states import Candidate, Follower, Leader, Prospective, Resigned, RoleState, Unattached
from kraftlite.raft.voters import ReplicaKey, Voter, VoterSet, listening_voter
from kraftlite.runtime.ports import Tracer
from kraftlite.runtime.trace import raft as trace

REFUSAL_TOLD_MS: Final = 10_000
"""The same refusal of the same peer is told once in this time: a peer that cannot be followed is asked several times a second."""

Asked = TypeVar("Asked", bound=RaftRequest)
Answered = TypeVar("Answered", bound=RaftResponse)


class RaftContext:
    """Mutable state of one RaftCore; only its parts touch it.

    `state.epoch` and `hw` never decrease; what must hold at any time, `check` asserts.
    """

    def __init__(
        self,
        *,
        config: QuorumConfig,
        metalog: MetadataLog,
        store: QuorumStateStore,
        entropy: random.Random,
        tracer: Tracer,
        trace_appends: bool,
    ) -> None:
        self.config = config
        self.metalog = metalog
        self.store = store
        self.entropy = entropy
        self.tracer = tracer
        self.trace_appends = trace_appends
        self.membership = metalog.membership
        self.key: ReplicaKey = config.key
        own = config.own_endpoint
        servers = [server for server in config.bootstrap_servers if server != own]
        self.bootstrap: dict[NodeId, Endpoint] = {NodeId(-2 - index): server for index, server in enumerate(servers)}
        """The other bootstrap servers, under ids that no node has."""
        self.requests = RequestTracker(timeout_ms=config.request_timeout_ms, backoff_ms=config.retry_backoff_ms)
        self.state: RoleState = Unattached(epoch=0)
        self.hw: int | None = None
        """The highest high watermark this node has learnt, in any epoch: what state machines may consume up to."""
        self.stands_because: str | None = None
        """The reason for which this node stood for election last; the trace tells it with what came of it."""
        self.shutting_down = False
        self.now_ms = 0
        self.wall_ms = 0
        self.out = Output()
        self._refused: tuple[tuple[NodeId, str, str], int] | None = None
        """The last refusal, and when it was told."""

    # who we are

    @property
    def node_id(self) -> NodeId:
        return self.config.node_id

    @property
    def epoch(self) -> int:
        return self.state.epoch

    @property
    def voters(self) -> VoterSet:
        """The latest set of voters in this node's log, committed or not; the configured one while the log has none (DQ-02)."""
        return self.membership.voters

    @property
    def is_voter(self) -> bool:
        return self.voters.contains(self.key)

    @property
    def may_stand(self) -> bool:
        """Return whether this node stands for election: as a voter; or as one whose removal is in its log and perhaps nowhere
        else, so that no voter's log reaches as far. It then counts no vote of its own.

        Departs: Kafka's removed leader never stands again, and of two voters the other one cannot win without it (DQ-12).
        """
        return self.is_voter or self.membership.removes(self.key, self.hw or 0)

    @property
    def leader_endpoint(self) -> Endpoint | None:
        """The address at which the leader of this epoch listens, as far as this node knows."""
        state = self.state
        if isinstance(state, Follower | Prospective | Leader) and state.leader_endpoint is not None:
            return state.leader_endpoint
        return self.voters.endpoint(state.leader_id) if state.leader_id is not None else None

    @property
    def own_endpoint(self) -> Endpoint | None:
        """The address at which this node leads: that of its listener where voters can change, as its entry may be an old one."""
        own = None if self.membership.is_static else self.config.own_endpoint
        return own if own is not None else self.voters.endpoint(self.node_id)

    def own_voter(self, directory_id: UUID | None) -> Voter:
        """The entry that this controller has, or would have, among the voters."""
        versions = (KRAFT_VERSION_STATIC, KRAFT_VERSION_DYNAMIC)
        return listening_voter(self.node_id, directory_id, self.config.listeners, versions, self.config.listener_name)

    @property
    def acknowledges(self) -> bool:
        """Return whether a fetch of this node may count: as that of a voter, or of a controller that may be one already without
        having read it yet. What it says to have must be durable (RF-29)."""
        return self.is_voter or (self.config.may_become_voter and not self.membership.is_static)

    @property
    def log_is_durable(self) -> bool:
        return self.metalog.log.recovery_point >= self.metalog.leo

    # output

    def send(self, peer_id: NodeId, method: Method[Asked, Answered], request: Asked, endpoint: Endpoint | None = None) -> int:
        """Ask a peer, at `endpoint` or where its entry says; returns the correlation id."""
        peer = endpoint if endpoint is not None else self.voters.endpoint(peer_id)
        assert peer is not None, f"no endpoint of node {peer_id} is known"
        entry = self.requests.open(peer_id, method, request, self.now_ms, self.state)
        self.out.requests.append(
            OutboundRequest(
                correlation_id=entry.correlation_id,
                peer_id=peer_id,
                peer=peer,
                method=method,
                request=request,
                timeout_ms=self.requests.timeout_ms,
            )
        )
        return entry.correlation_id

    def reply(self, request_id: int, response: RaftResponse) -> None:
        self.out.replies.append(Reply(request_id=request_id, response=response))

    def ask_flush(self) -> None:
        if not self.log_is_durable:
            self.out.flush = True

    def advance_hw(self, hw: int) -> bool:
        """Raise what this node knows to be committed; never lowers it (RF-27, RF-28)."""
        if self.hw is not None and hw <= self.hw:
            return False
        self.tracer.emit(trace.HighWatermarkAdvanced(old=self.hw, new=hw))
        self.hw = hw
        self.metalog.log.update_hw(hw)
        self.out.deliver = True
        return True

    def log_is_up_to_date(self, last_epoch: int, end_offset: int) -> bool:
        """Return whether a candidate's log reaches at least as far as ours: by epoch, then by offset (RF-02)."""
        return OffsetAndEpoch(epoch=last_epoch, offset=end_offset) >= self.metalog.end

    def random_election_timeout_ms(self) -> int:
        base = self.config.election_timeout_ms
        return self.entropy.randrange(base, 2 * base)

    # changes of role

    def check(self) -> None:
        """Raise AssertionError when an invariant does not hold. To be called when nothing of a step is left to be done."""
        state, node_id = self.state, self.node_id
        assert self.store.written == state.election(), f"the disk says {self.store.written}, the node is {state.election()}"
        log = self.metalog.log
        log.check()
        latest = log.latest_epoch
        assert latest is None or latest <= state.epoch, f"the log has epoch {latest}, the node is in {state.epoch}"
        if isinstance(state, Candidate | Prospective) or (isinstance(state, Leader) and self.membership.is_static):
            assert self.may_stand, f"node {node_id} is {state.name}, the voters are {self.voters}"
        if isinstance(state, Candidate):
            assert state.voted == self.key, f"candidate {self.key} voted for {state.voted} in epoch {state.epoch}"
        if isinstance(state, Candidate | Prospective):
            granted, rejected = state.granted, state.rejected
            assert node_id in granted, f"{state.name} {node_id} has the votes of {granted}, not its own"
            assert not granted & rejected, f"{state.name} {node_id}: {granted} have granted, {rejected} have rejected"
            assert granted | rejected <= {node_id, *self.voters.ids}, (
                f"votes of {granted | rejected}, the voters are {self.voters}"
            )
        elif isinstance(state, Follower):
            assert state.leader_id != node_id, f"node {node_id} follows itself in epoch {state.epoch}"
        elif isinstance(state, Resigned):
            assert state.former_leader_id == node_id, f"node {node_id} resigned for {state.former_leader_id}"
        elif isinstance(state, Leader):
            state.check(node_id, self.voters, self.metalog.leo)
            assert state.hw is None or state.hw == self.hw, f"the leader's HW is {state.hw}, the node's {self.hw}"
        self.requests.check(state)

    def become(self, state: RoleState, cause: str | None = None) -> None:
        """Take a role: first on disk, then in memory. Whatever was asked in the old role no longer matters.

        `cause`: why, for the trace.
        """
        assert state.epoch >= self.state.epoch, f"epoch {self.state.epoch} would go back to {state.epoch}"
        self.store.write(state.election())
        self.state = state
        self.requests.clear()
        self.out.deliver = True
        voted = state.election().voted
        self.tracer.emit(
            trace.StateChanged(
                state=state.name,
                raft_epoch=state.epoch,
                leader_id=state.leader_id,
                voted_id=voted.id if voted is not None else None,
                cause=cause,
            )
        )

    def become_unattached(self, epoch: int, *, voted: ReplicaKey | None = None, leader_id: NodeId | None = None) -> None:
        """Leader and vote of the same epoch are kept: they must not be forgotten (RF-02)."""
        if epoch == self.epoch:
            election = self.state.election()
            voted = voted if voted is not None else election.voted
            leader_id = leader_id if leader_id is not None else election.leader_id
        deadline = self.now_ms + self.random_election_timeout_ms() if self.may_stand else None
        self.become(Unattached(epoch=epoch, leader_id=leader_id, voted=voted, election_deadline_ms=deadline))

    def become_follower(self, epoch: int, leader_id: NodeId, endpoint: Endpoint) -> None:
        assert leader_id != self.node_id, "a node does not follow itself"
        election = self.state.election()
        voted = election.voted if epoch == election.epoch else None
        self.become(
            Follower(
                epoch=epoch,
                leader_id=leader_id,
                leader_endpoint=endpoint,
                voted=voted,
                fetch_deadline_ms=self.now_ms + self.config.fetch_timeout_ms,
            )
        )

    def incredible(self, epoch: int, named_id: NodeId | None, told: Endpoint | None = None, *, asked: bool = False) -> str | None:
        """Say why no voter can truthfully name this epoch, and this node as its leader or candidate. None when one can.

        The epoch would be persisted, so a nonsensical one would be for ever. A node that was away, or is new, has to believe any
        that elections can have reached; above that only a step at a time. `asked`: it is an answer to this node's own request.
        Where voters are in the log, this node may not have read yet who they are (DQ-12, DQ-16); and a node that has only a
        configuration may have to read that there are others by now. Whom it asked knows who leads, and tells where: `told`. Then
        it follows that leader, whose other answers (of snapshots) do not tell it again.
        Departs: Kafka believes every epoch up to 2^31 - 1.
        """
        known = self.state.election().leader_id
        unknown = named_id is not None and self.membership.is_static and named_id not in self.voters.ids
        unknown = unknown and (epoch != self.epoch or named_id != known)
        if unknown and (not asked or told is None or told in map(self.voters.endpoint, self.voters.ids)):
            return f"node {named_id} is not one of the voters {self.voters.ids}"
        trusted = RAFT_EPOCH_ANSWERED if asked else RAFT_EPOCH_TRUSTED
        if epoch > max(self.epoch, trusted) + RAFT_EPOCH_STEP:
            return f"no quorum gets from epoch {self.epoch} to {epoch}"
        if epoch == self.epoch and named_id is not None and known is not None and known != named_id:
            return f"epoch {epoch} is led by {known}, not by {named_id}"
        return None

    def refuse(self, peer_id: NodeId, message: str, reason: str) -> None:
        """Trace that nothing was done about what this peer said; once in ten seconds where it says the same again and again."""
        said = (peer_id, message, reason)
        if self._refused is not None and self._refused[0] == said and self.now_ms < self._refused[1] + REFUSAL_TOLD_MS:
            return
        self._refused = (said, self.now_ms)
        self.tracer.emit(trace.PeerRefused(message=message, peer_id=peer_id, raft_epoch=self.epoch, reason=reason))

    def heard(
        self, peer_id: NodeId, message: str, epoch: int, leader_id: NodeId | None, endpoint: Endpoint | None = None
    ) -> bool:
        """`observe` of an answer; False when it is not believed, and must not be looked at further (RF-23)."""
        reason = None if epoch < self.epoch else self.incredible(epoch, leader_id, endpoint, asked=True)
        if reason is not None:
            self.refuse(peer_id, message, reason)
            return False
        self.observe(epoch, leader_id, endpoint)
        return True

    def observe(self, epoch: int, leader_id: NodeId | None, told: Endpoint | None = None, *, from_leader: bool = False) -> None:
        """A peer says that `leader_id` (None: it does not know who) leads `epoch`; `from_leader`: it is that leader. It is to be
        believed. `told`: where the peer says that leader listens; that counts only of a leader that is not in this node's own
        configuration, or where the voters are in the log (DQ-15, DQ-16).
        """
        if epoch < self.epoch:
            return
        if leader_id == self.node_id and not isinstance(self.state, Leader | Resigned):
            # Only a node that lost its disk can have forgotten that it led: it starts over, and follows nobody yet.
            leader_id = None
        if epoch == self.epoch:
            if leader_id is None:
                return
            known = self.state.election().leader_id
            if isinstance(self.state, Follower) and from_leader and told is not None and not self.membership.is_static:
                self.state.leader_endpoint = told
            if isinstance(self.state, Follower | Leader | Resigned):
                return
            if isinstance(self.state, Prospective) and known is not None and not from_leader:
                return  # hearsay about the very leader that this node has given up on
        endpoint = self.voters.endpoint(leader_id) if leader_id is not None else None
        if told is not None and (endpoint is None or not self.membership.is_static):
            endpoint = told
        if leader_id is None:
            self.become_unattached(epoch)
        elif endpoint is None:
            if epoch > self.epoch or self.state.leader_id is None:
                self.become_unattached(epoch, leader_id=leader_id)
        else:
            self.become_follower(epoch, leader_id, endpoint)

    def restore(self, stored: ElectionState | None) -> None:
        """Take up the role that the disk says, with the epoch of the log if that is newer (RF-11, RF-12)."""
        election = stored if stored is not None else ElectionState(epoch=0)
        if self.metalog.last_epoch > election.epoch:
            election = ElectionState(epoch=self.metalog.last_epoch)
        self.become(self._restored_role(election))

    def _restored_role(self, election: ElectionState) -> RoleState:
        epoch, leader_id, voted = election.epoch, election.leader_id, election.voted
        deadline = self.now_ms + self.random_election_timeout_ms()
        if leader_id == self.node_id:
            if self.voters.is_only_voter(self.key):
                deadline = self.now_ms  # nobody else can have been elected meanwhile
            return Resigned(
                epoch=epoch,
                former_leader_id=leader_id,
                voted=voted,
                election_deadline_ms=deadline,
                unacknowledged=set(self.voters.others(self.node_id)),
                preferred_successors=(),
            )
        endpoint = self.voters.endpoint(leader_id) if leader_id is not None else None
        if leader_id is not None and endpoint is not None:
            patience = self.now_ms + self.config.fetch_timeout_ms
            return Follower(epoch=epoch, leader_id=leader_id, leader_endpoint=endpoint, voted=voted, fetch_deadline_ms=patience)
        if self.may_stand and leader_id is None and voted is not None and voted == self.key:
            return Candidate(epoch=epoch, voted=voted, election_deadline_ms=deadline, retries=1, granted={self.node_id})
        return Unattached(
            epoch=epoch, leader_id=leader_id, voted=voted, election_deadline_ms=deadline if self.may_stand else None
        )
