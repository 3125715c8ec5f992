"""The roles of a node in the quorum: what each one remembers, and whether it grants a vote.

A role is replaced as a whole (`transitions`), never changed into another one. Deadlines are monotonic milliseconds of this
node; None means "never".

Source: KIP-595 "Quorum State Machine", KIP-996 (Prospective); RF-02, RF-07, RF-21.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar
from uuid import UUID

from kraftlite.model.ids import Endpoint, NodeId
from kraftlite.raft.quorum_state import ElectionState
from kraftlite.raft.voters import ReplicaKey, VoterSet


@dataclass(slots=True, kw_only=True, eq=False)
class Unattached:
    """Follows nobody: knows an epoch, perhaps a vote in it, perhaps who leads it, but not as a leader it fetches from."""

    name: ClassVar[str] = "unattached"
    epoch: int
    leader_id: NodeId | None = None
    voted: ReplicaKey | None = None
    election_deadline_ms: int | None = None

    def election(self) -> ElectionState:
        return ElectionState(epoch=self.epoch, leader_id=self.leader_id, voted=self.voted)

    def can_grant(self, candidate: ReplicaKey, *, log_is_up_to_date: bool, pre_vote: bool) -> bool:
        return _can_grant_unless_decided(self.leader_id, self.voted, candidate, log_is_up_to_date, pre_vote)


@dataclass(slots=True, kw_only=True, eq=False)
class Prospective:
    """Asks whether it could win before it disturbs anybody with a new epoch (pre-vote)."""

    name: ClassVar[str] = "prospective"
    epoch: int
    leader_id: NodeId | None
    leader_endpoint: Endpoint | None
    voted: ReplicaKey | None
    election_deadline_ms: int
    retries: int
    granted: set[NodeId]
    rejected: set[NodeId] = field(default_factory=set)
    defers_until_ms: int | None = None
    """A voter with a lower id has asked for this node's pre-vote and got it: until then it may become a candidate first."""

    def election(self) -> ElectionState:
        return ElectionState(epoch=self.epoch, leader_id=self.leader_id, voted=self.voted)

    def can_grant(self, candidate: ReplicaKey, *, log_is_up_to_date: bool, pre_vote: bool) -> bool:
        return _can_grant_unless_decided(self.leader_id, self.voted, candidate, log_is_up_to_date, pre_vote)


@dataclass(slots=True, kw_only=True, eq=False)
class Candidate:
    """Has voted for itself. After a lost round it backs off until `backoff_deadline_ms`."""

    name: ClassVar[str] = "candidate"
    epoch: int
    voted: ReplicaKey
    election_deadline_ms: int
    retries: int
    granted: set[NodeId]
    rejected: set[NodeId] = field(default_factory=set)
    backoff_deadline_ms: int | None = None
    leader_id: ClassVar[None] = None

    def election(self) -> ElectionState:
        return ElectionState(epoch=self.epoch, voted=self.voted)

    def can_grant(self, candidate: ReplicaKey, *, log_is_up_to_date: bool, pre_vote: bool) -> bool:
        return pre_vote and log_is_up_to_date


@dataclass(slots=True, kw_only=True, eq=False)
class Follower:
    """Fetches from the leader of its epoch."""

    name: ClassVar[str] = "follower"
    epoch: int
    leader_id: NodeId
    leader_endpoint: Endpoint
    voted: ReplicaKey | None
    fetch_deadline_ms: int
    leader_is_live: bool = False
    """A fetch from this leader has succeeded in this epoch, and the leader has not said since that it ends the epoch."""
    leader_has_resigned: bool = False
    """It has said so: `fetch_deadline_ms` is now when this node may stand for election."""
    fetch_timed_out: bool = False
    """The fetch timeout of an observer has passed: it asks the other voters too, until one of them names another leader or this
    leader answers."""
    told_leader: bool = False
    """This voter has told the leader of this epoch where it listens and which kraft.version it supports (DQ-37)."""

    def election(self) -> ElectionState:
        return ElectionState(epoch=self.epoch, leader_id=self.leader_id, voted=self.voted)

    def can_grant(self, candidate: ReplicaKey, *, log_is_up_to_date: bool, pre_vote: bool) -> bool:
        return pre_vote and log_is_up_to_date and not self.leader_is_live


@dataclass(slots=True, kw_only=True, eq=False)
class ReplicaProgress:
    """The leader's knowledge of one replica. Wall-clock times, as `describe` shows them; None before the first fetch."""

    end_offset: int | None = None
    last_fetch_ms: int | None = None
    last_caught_up_ms: int | None = None
    last_fetch_leo: int = -1
    """The leader's LEO at the previous fetch."""
    directory_id: UUID | None = None
    """The directory that the last fetch came from."""
    last_fetch_at_ms: int | None = None
    """Monotonic time of the last fetch: for expiry and for repeating BeginQuorumEpoch."""
    sent_hw: int | None = None
    """The high watermark this replica was told last: a newer one answers its next fetch at once."""


@dataclass(slots=True, kw_only=True, eq=False)
class Leader:
    """Leads its epoch. `hw` stays None until something of this epoch is on a majority (RF-15)."""

    name: ClassVar[str] = "leader"
    epoch: int
    leader_id: NodeId
    leader_endpoint: Endpoint | None
    voted: ReplicaKey
    epoch_start_offset: int
    granting_voters: tuple[NodeId, ...]
    electorate: VoterSet
    """The voters as they were when this epoch was won."""
    voter_set: VoterSet
    """The voters that `voters` has the progress of."""
    check_quorum_deadline_ms: int | None
    begin_epoch_deadline_ms: int | None
    hw: int | None = None
    voters: dict[NodeId, ReplicaProgress] = field(default_factory=dict)
    observers: dict[ReplicaKey, ReplicaProgress] = field(default_factory=dict)
    fetched_voters: set[NodeId] = field(default_factory=set)
    begin_epoch_pending: set[NodeId] = field(default_factory=set)
    """Voters that BeginQuorumEpoch is to be sent to now."""
    described: VoterSet | None = None
    """The configured voters as they have told this leader of themselves: what the log says once kraft.version is 1 (DQ-40)."""

    def check(self, node_id: NodeId, voters: VoterSet, leo: int) -> None:
        """Raise AssertionError when an invariant of a leader does not hold on this node, whose log ends at `leo`."""
        epoch, start, others = self.epoch, self.epoch_start_offset, voters.others(node_id)
        assert self.leader_id == node_id == self.voted.id, f"epoch {epoch} is led by {self.leader_id}, voted for {self.voted}"
        granting, electorate = set(self.granting_voters), self.electorate
        majority = len(granting & set(electorate.ids)) >= electorate.majority
        assert majority, f"epoch {epoch} was won with {granting} of {electorate}"
        assert tuple(self.voters) == voters.ids, f"epoch {epoch}: the progress is of {tuple(self.voters)}, not of {voters}"
        assert not any(voters.contains(key) for key in self.observers), f"epoch {epoch}: a voter among {tuple(self.observers)}"
        assert self.fetched_voters <= set(others), f"epoch {epoch}: {self.fetched_voters} have fetched, the others are {others}"
        pending = self.begin_epoch_pending
        assert pending <= set(others), f"epoch {epoch}: {pending} are to be told of it, the others are {others}"
        assert start <= leo, f"epoch {epoch} starts at {start}, behind the log's end {leo}"
        assert self.hw is None or start < self.hw <= leo, f"epoch {epoch}: HW {self.hw} outside ({start}, LEO {leo}]"

    def follow(self, voters: VoterSet) -> None:
        """Count these voters from now on (DQ-13). A replica keeps its progress, on whichever side of the set it was and is; that
        of a configured voter counts for the directory that it came from, and for no observer."""
        known = {voter.key: self.voters[voter.id] for voter in self.voter_set.voters}
        progress: dict[NodeId, ReplicaProgress] = {}
        for voter in voters.voters:
            key, nameless = voter.key, ReplicaKey(voter.id)
            found = known.pop(key, None) or self.observers.pop(key, None)
            if found is None and nameless in known and known[nameless].directory_id == key.directory_id:
                found = known.pop(nameless)
            progress[voter.id] = found if found is not None else ReplicaProgress()
        self.observers.update((key, it) for key, it in known.items() if key.directory_id is not None)
        self.voters, self.voter_set = progress, voters
        others = set(voters.others(self.leader_id))
        self.fetched_voters &= others
        self.begin_epoch_pending &= others

    def election(self) -> ElectionState:
        return ElectionState(epoch=self.epoch, leader_id=self.leader_id, voted=self.voted)

    def can_grant(self, candidate: ReplicaKey, *, log_is_up_to_date: bool, pre_vote: bool) -> bool:
        return False


@dataclass(slots=True, kw_only=True, eq=False)
class Resigned:
    """Led this epoch and will not again. Tells the voters so until each has acknowledged it."""

    name: ClassVar[str] = "resigned"
    epoch: int
    former_leader_id: NodeId
    voted: ReplicaKey | None
    election_deadline_ms: int
    unacknowledged: set[NodeId]
    preferred_successors: tuple[NodeId, ...]
    leader_id: ClassVar[None] = None

    def election(self) -> ElectionState:
        return ElectionState(epoch=self.epoch, leader_id=self.former_leader_id, voted=self.voted)

    def can_grant(self, candidate: ReplicaKey, *, log_is_up_to_date: bool, pre_vote: bool) -> bool:
        return pre_vote and log_is_up_to_date


RoleState = Unattached | Prospective | Candidate | Follower | Leader | Resigned


def _can_grant_unless_decided(
    leader_id: NodeId | None, voted: ReplicaKey | None, candidate: ReplicaKey, log_is_up_to_date: bool, pre_vote: bool
) -> bool:
    if pre_vote:
        return log_is_up_to_date
    if voted is not None:
        return voted.matches(candidate)
    return leader_id is None and log_is_up_to_date
