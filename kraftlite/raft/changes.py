"""Changing the voters, one at a time: the leader's answers to AddVoter, RemoveVoter and UpdateVoter.

An addition is checked, then the candidate is asked who it is, then a KRaftVoters record with the latest set and the candidate is
appended, then committed by the new set. A removal needs no word of the voter. The record counts from its append on, and stays
when the caller's time is over: only a truncation takes it back.

Source: KIP-853; Kafka's AddVoterHandler, RemoveVoterHandler and UpdateVoterHandler; DQ-30 to DQ-36.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import ZERO_UUID, Endpoint, NodeId, VoterEndpoint
from kraftlite.model.limits import RAFT_MAX_LISTENER_CHARS, RAFT_MAX_LISTENERS
from kraftlite.model.messages.methods import PROBE_VERSIONS
from kraftlite.model.messages.raft import (
    AddVoterRequest,
    AddVoterResponse,
    ProbeVersionsRequest,
    ProbeVersionsResponse,
    RemoveVoterRequest,
    RemoveVoterResponse,
    UpdateVoterRequest,
    UpdateVoterResponse,
)
from kraftlite.raft.context import RaftContext
from kraftlite.raft.leadership import Leadership
from kraftlite.raft.membership import KRAFT_VERSION_DYNAMIC, KRAFT_VERSION_STATIC, membership_records
from kraftlite.raft.states import Leader
from kraftlite.raft.voters import ReplicaKey, Voter, VoterSet, listening_voter

CAUGHT_UP_WITHIN_MS: Final = 3_600_000
"""A candidate that has once reached the end of the log and has fetched since this long is caught up."""


@dataclass(slots=True, kw_only=True)
class PendingChange:
    """An addition or a removal whose caller waits. At most one at a time.

    `adds`: the new voter as the caller describes it; None for a removal. `probe`: the request to it that is under way. `offset`:
    that of the record, once it is appended.
    """

    request_id: int
    deadline_ms: int
    adds: Voter | None = None
    ack_when_committed: bool = True
    probe: int | None = None
    offset: int | None = None


class Changes:
    """The part of the core that changes the voters. Only a leader has a pending change."""

    def __init__(self, ctx: RaftContext, leadership: Leadership) -> None:
        self._ctx = ctx
        self._leadership = leadership
        self._pending: PendingChange | None = None
        self._last_offset = -1
        """The offset of the last record of voters that this leader has prepared."""
        self._upgraded_to = KRAFT_VERSION_STATIC
        """The kraft.version that this leader has prepared a record of."""

    @property
    def is_pending(self) -> bool:
        """Return whether a change of the voters is not committed yet, or not decided."""
        leader = self._ctx.state
        return isinstance(leader, Leader) and (self._pending is not None or not self._is_settled(leader))

    # asked by callers

    def on_add_request(self, request_id: int, request: AddVoterRequest) -> None:
        """Begin to add a voter; the answer may come later (DQ-30)."""
        ctx = self._ctx
        pending = PendingChange(
            request_id=request_id,
            deadline_ms=ctx.now_ms + ctx.config.request_timeout_ms,
            ack_when_committed=request.ack_when_committed,
        )
        try:
            self._check_leads(request.cluster_id)
            directory_id = _checked_key(request.voter_id, request.voter_directory_id)
            voter = self._described(request.voter_id, directory_id, request.listeners, (KRAFT_VERSION_STATIC,) * 2)
            self._check_ready("adding voter")
            if request.voter_id in ctx.voters.ids:
                raise ApiError(ErrorCode.DUPLICATE_VOTER, f"node {request.voter_id} is a voter already: {ctx.voters.ids}")
        except ApiError as refusal:
            ctx.reply(request_id, self._added(refusal.code, refusal.message))
            return
        pending.adds = voter
        ask = ProbeVersionsRequest(cluster_id=ctx.config.cluster_id)
        pending.probe = ctx.send(voter.id, PROBE_VERSIONS, ask, voter.endpoint)
        self._pending = pending

    def on_remove_request(self, request_id: int, request: RemoveVoterRequest) -> None:
        """Remove a voter; the answer comes when the set without it is committed (DQ-33)."""
        ctx = self._ctx
        try:
            leader = self._check_leads(request.cluster_id)
            directory_id = _checked_key(request.voter_id, request.voter_directory_id)
            self._check_ready("removing voter")
            key = ReplicaKey(request.voter_id, directory_id)
            if key not in ctx.voters.keys:
                raise ApiError(ErrorCode.VOTER_NOT_FOUND, f"node {key.id} with this directory id is not a voter")
            if len(ctx.voters) == 1:
                raise ApiError(ErrorCode.VOTER_NOT_FOUND, f"node {key.id} is the last voter, which cannot be removed")
        except ApiError as refusal:
            ctx.reply(request_id, self._removed(refusal.code, refusal.message))
            return
        offset = self._append(leader, ctx.voters.without(request.voter_id))
        deadline_ms = ctx.now_ms + ctx.config.request_timeout_ms
        self._pending = PendingChange(request_id=request_id, deadline_ms=deadline_ms, offset=offset)

    def on_update_request(self, request: UpdateVoterRequest) -> UpdateVoterResponse:
        """Note what a voter says of itself; the answer does not wait for the commit (DQ-36)."""
        try:
            leader = self._check_leads(request.cluster_id, request.current_leader_epoch)
            directory_id = _checked_key(request.voter_id, request.voter_directory_id)
            if request.voter_id == self._ctx.node_id:  # who leads says so in its own records, and is no contact of itself
                raise ApiError(ErrorCode.INVALID_REQUEST, f"node {request.voter_id} is the leader itself")
            versions = request.min_kraft_version, request.max_kraft_version
            voter = self._described(request.voter_id, directory_id, request.listeners, versions)
            self._check_ready(None)
            self._check_range(versions)
            if self._is_static:
                self._check_is_configured(voter.id)
            elif voter.key not in self._ctx.voters.keys:
                raise ApiError(ErrorCode.VOTER_NOT_FOUND, f"node {voter.id} with this directory id is not a voter")
        except ApiError as refusal:
            return self._updated(refusal.code)
        if self._is_static:
            leader.described = leader.described.with_voter(voter) if leader.described is not None else None
        elif voter != self._ctx.voters.get(voter.id):
            self._append(leader, self._ctx.voters.with_voter(voter))
        self._leadership.note_contact(leader, voter.key)
        return self._updated(ErrorCode.NONE)

    def on_probe_request(self, request: ProbeVersionsRequest) -> ProbeVersionsResponse:
        ctx = self._ctx
        same = request.cluster_id == ctx.config.cluster_id
        return ProbeVersionsResponse(
            error=ErrorCode.NONE if same else ErrorCode.INCONSISTENT_CLUSTER_ID,
            leader_id=ctx.state.leader_id,
            leader_epoch=ctx.epoch,
            node_id=ctx.node_id,
            directory_id=ctx.key.directory_id,
            min_kraft_version=KRAFT_VERSION_STATIC,
            max_kraft_version=KRAFT_VERSION_DYNAMIC,
        )

    def upgrade(self, epoch: int, level: int, validate_only: bool) -> None:
        """Raise the kraft.version: one control batch says it, and who the configured voters are (DQ-40).

        Raises ApiError: NOT_CONTROLLER unless this node leads `epoch`, INVALID_UPDATE_VERSION for a downgrade, and while a voter
        has not said that it supports the level.
        """
        ctx, leader = self._ctx, self._ctx.state
        if not isinstance(leader, Leader) or leader.epoch != epoch:
            raise ApiError(ErrorCode.NOT_CONTROLLER, f"node {ctx.node_id} does not lead epoch {epoch}")
        current = max(ctx.membership.kraft_version, self._upgraded_to)
        if level == current:
            return
        if level < current:
            raise ApiError(
                ErrorCode.INVALID_UPDATE_VERSION,
                f"Invalid upgrade of kraft.version from version {current} to {level} because the new version is a downgrade",
            )
        voters = leader.described
        if voters is None or not all(voter.listeners and voter.supports(level) for voter in voters.voters):
            raise ApiError(
                ErrorCode.INVALID_UPDATE_VERSION,
                f"Invalid upgrade of kraft.version to {level} because not all of the voters support it",
            )
        if not validate_only:
            self._last_offset = self._leadership.prepare_controls(membership_records(level, voters))
            self._upgraded_to = level

    # the candidate's answer

    def on_probe_response(self, correlation_id: int, response: ProbeVersionsResponse) -> None:
        """Add the candidate, if it is who it should be, supports the kraft.version and has the log (DQ-31, DQ-32)."""
        ctx, pending, leader = self._ctx, self._pending, self._ctx.state
        if pending is None or pending.probe != correlation_id or pending.adds is None or not isinstance(leader, Leader):
            return
        voter, versions = pending.adds, (response.min_kraft_version, response.max_kraft_version)
        try:
            if response.error is not ErrorCode.NONE:
                raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"{voter.endpoint} answered {response.error.name}")
            if (response.node_id, response.directory_id) != voter.key:
                raise ApiError(
                    ErrorCode.REQUEST_TIMED_OUT, f"at {voter.endpoint} is node {response.node_id}, or another directory of it"
                )
            self._check_range(versions)
            if not self._is_caught_up(leader, voter.key):
                raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"node {voter.id} with this directory id has not caught up yet")
        except ApiError as refusal:
            self._finish(refusal.code, refusal.message)
            return
        known = self._described(voter.id, voter.directory_id, voter.listeners, versions)
        pending.probe = None
        pending.offset = self._append(leader, ctx.voters.with_voter(known))
        if not pending.ack_when_committed:
            self._finish(ErrorCode.NONE, None)

    def on_probe_failed(self, correlation_id: int) -> None:
        pending = self._pending
        if pending is not None and pending.probe == correlation_id and pending.adds is not None:
            self._finish(ErrorCode.REQUEST_TIMED_OUT, f"node {pending.adds.id} cannot be reached at {pending.adds.endpoint}")

    # time

    def poll(self) -> None:
        leader, pending = self._ctx.state, self._pending
        if pending is None or not isinstance(leader, Leader):
            return
        if pending.offset is not None and leader.hw is not None and leader.hw > pending.offset:
            self._finish(ErrorCode.NONE, None)
        elif pending.deadline_ms <= self._ctx.now_ms:
            what, later = ("decided", "") if pending.offset is None else ("committed", "; it may still become so")
            text = f"the change was not {what} within controller.quorum.request.timeout.ms{later}"
            self._finish(ErrorCode.REQUEST_TIMED_OUT, text)

    def left_office(self) -> None:
        """Answer who waits: whether the change stays, the next leader decides (DQ-32)."""
        self._last_offset, self._upgraded_to = -1, KRAFT_VERSION_STATIC
        if self._pending is not None:
            self._finish(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node has ceased to lead before the change was committed")

    def deadline_ms(self) -> int | None:
        return self._pending.deadline_ms if self._pending is not None else None

    def check(self) -> None:
        """Raise AssertionError when what is prepared does not fit the role."""
        state, end = self._ctx.state, self._leadership.end_with_prepared
        if isinstance(state, Leader):
            assert self._last_offset < end, f"a change of the voters is at offset {self._last_offset}, the log ends at {end}"
        else:
            kept = (self._pending, self._last_offset, self._upgraded_to)
            assert kept == (None, -1, KRAFT_VERSION_STATIC), (
                f"{state.name} in epoch {state.epoch} has kept a leader's change: {kept}"
            )

    # checks

    def _check_leads(self, cluster_id: str | None, epoch: int | None = None) -> Leader:
        """Raises ApiError unless this node can answer; `epoch` None: whichever it leads."""
        ctx = self._ctx
        if cluster_id is not None and cluster_id != ctx.config.cluster_id:
            raise ApiError(ErrorCode.INCONSISTENT_CLUSTER_ID, f"this is cluster {ctx.config.cluster_id}")
        if ctx.shutting_down:
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, f"node {ctx.node_id} is shutting down")
        if epoch is not None and epoch != ctx.epoch:
            code = ErrorCode.FENCED_LEADER_EPOCH if epoch < ctx.epoch else ErrorCode.UNKNOWN_LEADER_EPOCH
            raise ApiError(code, f"the quorum is in epoch {ctx.epoch}")
        if not isinstance(ctx.state, Leader):
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"node {ctx.node_id} is {ctx.state.name}, not the leader")
        return ctx.state

    def _described(
        self, node_id: NodeId, directory_id: UUID | None, listeners: Sequence[VoterEndpoint], versions: tuple[int, int]
    ) -> Voter:
        """Raises ApiError(INVALID_REQUEST) for what cannot be an entry of the set."""
        name = self._ctx.config.listener_name
        characters = sum(len(listener.name) + len(listener.host) for listener in listeners)
        if len(listeners) > RAFT_MAX_LISTENERS or characters > RAFT_MAX_LISTENER_CHARS:
            what = f"{len(listeners)} listeners of {characters} characters"
            allowed = f"allowed are {RAFT_MAX_LISTENERS} of {RAFT_MAX_LISTENER_CHARS} together"
            raise ApiError(ErrorCode.INVALID_REQUEST, f"node {node_id} has {what}; {allowed}")
        if not any(listener.name.upper() == (name or listener.name).upper() for listener in listeners):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"node {node_id} has no endpoint for the listener {name}")
        for listener in listeners:
            if not listener.name or not listener.host or listener.port == 0:
                where = Endpoint(listener.host, listener.port)
                raise ApiError(ErrorCode.INVALID_REQUEST, f"the listener {listener.name} at {where} cannot be reached")
        low, high = versions
        if low < 0 or high < low:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"kraft.version from {low} to {high} is no range")
        return listening_voter(node_id, directory_id, listeners, versions, name)

    @property
    def _is_static(self) -> bool:
        return self._ctx.membership.kraft_version < KRAFT_VERSION_DYNAMIC

    def _check_ready(self, what: str | None) -> None:
        """Raises ApiError unless a change may begin now: one at a time, and behind a commit of this epoch (DQ-35). `what`: the
        change that needs voters in the log."""
        leader = self._ctx.state
        assert isinstance(leader, Leader), "checked before"
        waits = "Request timed out waiting for"
        if self._pending is not None:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"{waits} leader to handle previous voter change request")
        if leader.hw is None:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"{waits} leader to establish HWM and fence previous voter changes")
        if what is not None and self._is_static:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION, f"Cluster doesn't support {what} because the kraft.version feature is 0"
            )
        if not self._is_settled(leader):
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"{waits} voters to commit the latest voter change")

    def _check_is_configured(self, node_id: NodeId) -> None:
        if node_id not in self._ctx.voters.ids:
            raise ApiError(ErrorCode.VOTER_NOT_FOUND, f"node {node_id} is not a voter")

    def _is_settled(self, leader: Leader) -> bool:
        """Return whether the latest set is committed."""
        last = max(self._last_offset, self._ctx.membership.voters_offset or 0)
        return leader.hw is not None and leader.hw > last

    def _check_range(self, versions: tuple[int, int]) -> None:
        low, high = versions
        level = self._ctx.membership.kraft_version
        if not low <= level <= high:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"kraft.version is {level}, and the voter supports {low} to {high}")

    def _is_caught_up(self, leader: Leader, key: ReplicaKey) -> bool:
        progress = leader.observers.get(key)
        if progress is None or progress.last_caught_up_ms is None or progress.last_fetch_at_ms is None:
            return False
        return self._ctx.now_ms - progress.last_fetch_at_ms <= CAUGHT_UP_WITHIN_MS

    # answers

    def _append(self, leader: Leader, voters: VoterSet) -> int:
        self._last_offset = self._leadership.append_controls(leader, [voters.to_record()])
        return self._last_offset

    def _finish(self, error: ErrorCode, message: str | None) -> None:
        pending, self._pending = self._pending, None
        assert pending is not None, "there is a change to finish"
        answer = self._removed(error, message) if pending.adds is None else self._added(error, message)
        self._ctx.reply(pending.request_id, answer)

    def _added(self, error: ErrorCode, message: str | None) -> AddVoterResponse:
        ctx = self._ctx
        return AddVoterResponse(error=error, message=message, leader_id=ctx.state.leader_id, leader_epoch=ctx.epoch)

    def _removed(self, error: ErrorCode, message: str | None) -> RemoveVoterResponse:
        ctx = self._ctx
        return RemoveVoterResponse(error=error, message=message, leader_id=ctx.state.leader_id, leader_epoch=ctx.epoch)

    def _updated(self, error: ErrorCode) -> UpdateVoterResponse:
        ctx = self._ctx
        return UpdateVoterResponse(
            error=error, leader_id=ctx.state.leader_id, leader_epoch=ctx.epoch, leader_endpoint=ctx.leader_endpoint
        )


def _checked_key(voter_id: NodeId, directory_id: UUID | None) -> UUID:
    """Raises ApiError(INVALID_REQUEST) for what is no id of a voter with its directory."""
    if voter_id < 0 or directory_id is None or directory_id == ZERO_UUID:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"node {voter_id} needs an id of at least 0 and a directory id")
    return directory_id
