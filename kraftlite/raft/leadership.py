"""Leading an epoch: appending, counting, the high watermark, serving fetches, noticing that nobody listens.

Source: KIP-595, KIP-630; RF-14 to RF-16, RF-18, RF-25 to RF-27, RF-29, RF-32, RF-33, RF-35, RF-36, RF-40, RF-43, RF-44, RF-57.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from kraftlite.log.batch import build_batch
from kraftlite.log.control import ControlRecord, LeaderChange, control_batch
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import NodeId, VoterEndpoint
from kraftlite.model.limits import RAFT_FETCH_MAX_WAIT_MS, RAFT_MAX_OBSERVERS
from kraftlite.model.messages.methods import BEGIN_QUORUM_EPOCH
from kraftlite.model.messages.raft import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    DescribeQuorumResponse,
    QuorumReplica,
)
from kraftlite.raft.accumulator import BatchAccumulator, PreparedBatch
from kraftlite.raft.client import CommittedBatch, RecordSerde
from kraftlite.raft.context import RaftContext
from kraftlite.raft.membership import BEFORE_THE_LOG, KRAFT_VERSION_DYNAMIC, membership_records
from kraftlite.raft.states import Candidate, Leader, ReplicaProgress, Resigned
from kraftlite.raft.voters import ReplicaKey, Voter, VoterSet
from kraftlite.runtime.trace import raft as trace

_MAX_OWN_BATCHES = 1_024


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnBatch:
    """A batch that this node appended as leader, with its records as they were handed in."""

    batch: CommittedBatch
    next_offset: int


class Leadership:
    """The part of the core that plays leader."""

    def __init__(self, ctx: RaftContext, serde: RecordSerde) -> None:
        self._ctx = ctx
        self._serde = serde
        self._accumulator: BatchAccumulator | None = None
        self.own_batches: deque[OwnBatch] = deque()
        """Not delivered yet, in offset order; empty unless this node leads."""

    # beginning and end

    def become_leader(self, candidate: Candidate) -> None:
        """Take office: on disk first, then the LeaderChange record as the first of the epoch (RF-14).

        Where it is not in the log yet who votes, or where this node listens, it follows in the same batch (DQ-06).
        """
        ctx = self._ctx
        start = ctx.metalog.leo
        alone = ctx.voters.is_only_voter(ctx.key)
        granting = tuple(voter_id for voter_id in ctx.voters.ids if voter_id in candidate.granted)
        others = ctx.voters.others(ctx.node_id)
        leader = Leader(
            epoch=candidate.epoch,
            leader_id=ctx.node_id,
            leader_endpoint=ctx.own_endpoint,
            voted=candidate.voted,
            epoch_start_offset=start,
            granting_voters=granting,
            electorate=ctx.voters,
            voter_set=ctx.voters,
            check_quorum_deadline_ms=None if alone else ctx.now_ms + self._check_quorum_ms,
            begin_epoch_deadline_ms=None if alone else ctx.now_ms + ctx.config.fetch_timeout_ms // 2,
            voters={voter_id: ReplicaProgress() for voter_id in ctx.voters.ids},
            begin_epoch_pending=set(others),
            described=self._describing_itself(),
        )
        ctx.become(leader)
        ctx.tracer.emit(
            trace.LeaderElected(
                leader_id=ctx.node_id,
                raft_epoch=leader.epoch,
                epoch_start_offset=start,
                granting_voters=granting,
                cause=ctx.stands_because,
            )
        )
        change = LeaderChange(leader_id=ctx.node_id, voters=ctx.voters.ids, granting_voters=granting)
        self.own_batches.clear()
        controls = [change, *self._first_controls()]
        raw = control_batch(controls, timestamp_ms=ctx.wall_ms, leader_epoch=leader.epoch, base_offset=start)
        self._write(leader, bytearray(raw), ())
        self._accumulator = BatchAccumulator(
            epoch=leader.epoch,
            next_offset=ctx.metalog.leo,
            serde=self._serde,
            linger_ms=ctx.config.append_linger_ms,
            max_batch_bytes=min(ctx.config.log_config.segment_bytes, ctx.config.tuning.raft_batch_bytes),
        )
        ctx.ask_flush()

    def _first_controls(self) -> tuple[ControlRecord, ...]:
        """Return what this leader's log does not say yet: the voters of the bootstrap snapshot, or its own listeners."""
        ctx, membership = self._ctx, self._ctx.membership
        if membership.kraft_version < KRAFT_VERSION_DYNAMIC:
            return ()
        voters = ctx.voters
        own = voters.get(ctx.node_id)
        if own is not None and voters.contains(ctx.key) and ctx.config.listeners:
            now = ctx.own_voter(own.directory_id)
            voters = voters.with_voter(now) if now != own else voters
        if membership.voters_offset == BEFORE_THE_LOG:
            return membership_records(membership.kraft_version, voters)
        return (voters.to_record(),) if voters is not ctx.voters else ()

    def _describing_itself(self) -> VoterSet | None:
        """Return the configured voters, of which this one is described; None where they are in the log."""
        ctx = self._ctx
        if ctx.membership.kraft_version >= KRAFT_VERSION_DYNAMIC or not ctx.config.listeners or ctx.key.directory_id is None:
            return None
        return ctx.voters.with_voter(ctx.own_voter(ctx.key.directory_id))

    def prepare_controls(self, controls: Sequence[ControlRecord]) -> int:
        """Let control records leave with the next step, and return the offset of the last one."""
        assert self._accumulator is not None, "a leader has an accumulator"
        return self._accumulator.prepare_control(controls, self._ctx.wall_ms, self._ctx.now_ms)

    def append_controls(self, leader: Leader, controls: Sequence[ControlRecord]) -> int:
        """Append one control batch behind everything that is prepared, and return the offset of its last record. It is in the log
        when this returns, unless records before it may not leave yet."""
        last_offset = self.prepare_controls(controls)
        self._drain(leader)
        return last_offset

    def _follow_voters(self, leader: Leader) -> None:
        """Count by the latest set from the moment in which it is in this log (DQ-10, DQ-11)."""
        ctx = self._ctx
        if leader.voter_set is ctx.voters:
            return
        leader.follow(ctx.voters)
        if self._fetchers_needed == 0:
            leader.check_quorum_deadline_ms = None
        elif leader.check_quorum_deadline_ms is None:
            leader.check_quorum_deadline_ms = ctx.now_ms + self._check_quorum_ms
        others = ctx.voters.others(ctx.node_id)
        if not others:
            leader.begin_epoch_deadline_ms = None
        elif leader.begin_epoch_deadline_ms is None:
            leader.begin_epoch_deadline_ms = ctx.now_ms

    @property
    def _fetchers_needed(self) -> int:
        """Return how many other voters must fetch for this node to go on leading."""
        return self._ctx.voters.majority - (1 if self._ctx.is_voter else 0)

    def resign(self, reason: str, successors: tuple[NodeId, ...]) -> None:
        ctx = self._ctx
        leader = ctx.state
        assert isinstance(leader, Leader), "only a leader can resign"
        ctx.tracer.emit(trace.LeaderResigned(raft_epoch=leader.epoch, reason=reason, preferred_successors=successors))
        ctx.become(
            Resigned(
                epoch=leader.epoch,
                former_leader_id=ctx.node_id,
                voted=leader.voted,
                election_deadline_ms=ctx.now_ms + ctx.random_election_timeout_ms(),
                unacknowledged=set(ctx.voters.others(ctx.node_id)),
                preferred_successors=successors,
            )
        )

    def successors(self, leader: Leader) -> tuple[NodeId, ...]:
        """The other voters, the one whose log reaches furthest first (RF-19)."""
        others = self._ctx.voters.others(self._ctx.node_id)
        ends = {voter_id: leader.voters[voter_id].end_offset for voter_id in others}
        return tuple(sorted(others, key=lambda voter_id: (-(_or(ends[voter_id], -1)), voter_id)))

    def left_office(self) -> None:
        """Called after any change of role away from leader: nothing prepared may leave any more (RF-36)."""
        if self._accumulator is not None:
            waiting = self._accumulator.waiting_records
            if waiting:
                self._ctx.tracer.emit(trace.AppendsDiscarded(records=waiting, raft_epoch=self._accumulator.epoch))
            self._accumulator = None
        self.own_batches.clear()

    def check(self) -> None:
        """Raise AssertionError when what is prepared does not fit the role."""
        state, accumulator, leo = self._ctx.state, self._accumulator, self._ctx.metalog.leo
        if not isinstance(state, Leader):
            assert accumulator is None and not self.own_batches, (
                f"{state.name} in epoch {state.epoch} has kept a leader's records"
            )
            return
        assert accumulator is not None, f"the leader of epoch {state.epoch} has nowhere to prepare records"
        assert accumulator.epoch == state.epoch, f"records are prepared in epoch {accumulator.epoch}, {state.epoch} is led"
        end = accumulator.next_offset
        assert end >= leo, f"the next record is prepared for offset {end}, the log ends at {leo}"
        last = self.own_batches[-1].next_offset if self.own_batches else leo
        assert last == leo, f"the leader's own batches end at {last}, the log at {leo}"

    # appending

    def prepare_append(self, epoch: int, records: Sequence[Any], wall_ms: int, encoded: Sequence[bytes] | None = None) -> int:
        state = self._ctx.state
        if epoch > state.epoch:
            raise ValueError(f"append in epoch {epoch}, but the quorum is only in epoch {state.epoch}")
        if not isinstance(state, Leader) or epoch < state.epoch or self._accumulator is None:
            raise ApiError(
                ErrorCode.NOT_CONTROLLER,
                f"node {self._ctx.node_id} does not lead epoch {epoch}; it is {state.name} in {state.epoch}",
            )
        return self._accumulator.prepare(records, wall_ms, encoded)

    def schedule(self) -> None:
        if self._accumulator is not None:
            self._accumulator.schedule(self._ctx.now_ms)

    @property
    def end_with_prepared(self) -> int:
        return self._accumulator.next_offset if self._accumulator is not None else self._ctx.metalog.leo

    def _drain(self, leader: Leader) -> None:
        ctx, accumulator = self._ctx, self._accumulator
        if accumulator is None or not accumulator.is_due(ctx.now_ms):
            return
        for batch in accumulator.drain():
            self._append(leader, batch)
        ctx.ask_flush()

    def _append(self, leader: Leader, prepared: PreparedBatch) -> None:
        raw = build_batch(
            prepared.encoded,
            base_offset=prepared.base_offset,
            leader_epoch=leader.epoch,
            timestamp_ms=prepared.timestamp_ms,
            control=prepared.is_control,
        )
        assert prepared.base_offset == self._ctx.metalog.leo, "prepared offsets do not continue the log"
        self._write(leader, bytearray(raw), tuple(prepared.decoded), prepared.timestamp_ms)

    def _write(self, leader: Leader, raw: bytearray, decoded: tuple[Any, ...], timestamp_ms: int | None = None) -> None:
        ctx = self._ctx
        info = ctx.metalog.append_as_leader(raw, leader_epoch=leader.epoch, wall_ms=ctx.wall_ms)
        batch = CommittedBatch(
            base_offset=info.base_offset,
            last_offset=info.last_offset,
            epoch=leader.epoch,
            append_timestamp_ms=timestamp_ms if timestamp_ms is not None else ctx.wall_ms,
            size_bytes=len(raw),
            records=decoded,
        )
        self.own_batches.append(OwnBatch(batch=batch, next_offset=info.leo))
        if len(self.own_batches) > _MAX_OWN_BATCHES:
            self.own_batches.popleft()  # will be decoded from the log
        if ctx.trace_appends:
            ctx.tracer.emit(trace.BatchAppended(base_offset=info.base_offset, leo=info.leo, raft_epoch=leader.epoch))
        self._follow_voters(leader)

    # counting

    def note_fetch(self, leader: Leader, key: ReplicaKey, offset: int | None) -> ReplicaProgress:
        """A replica asked for what lies behind `offset` (None: for a part of a snapshot). Resets check-quorum (RF-18)."""
        ctx = self._ctx
        if ctx.voters.contains(key):
            progress = leader.voters[key.id]
            self.note_contact(leader, key)
        else:
            progress = leader.observers.setdefault(key, ReplicaProgress())
            if len(leader.observers) > RAFT_MAX_OBSERVERS:
                del leader.observers[next(iter(leader.observers))]
        if offset is not None:
            leo = ctx.metalog.leo
            if offset >= leo:
                progress.last_caught_up_ms = ctx.wall_ms
            elif 0 <= progress.last_fetch_leo <= offset:
                progress.last_caught_up_ms = _later(progress.last_caught_up_ms, progress.last_fetch_ms)
            progress.end_offset = offset
            progress.last_fetch_leo = leo
        progress.directory_id = key.directory_id
        progress.last_fetch_ms = _later(progress.last_fetch_ms, ctx.wall_ms)
        progress.last_fetch_at_ms = ctx.now_ms
        return progress

    def note_contact(self, leader: Leader, key: ReplicaKey) -> None:
        """A voter has shown that it listens to this leader (RF-18, DQ-11)."""
        leader.fetched_voters.add(key.id)
        if len(leader.fetched_voters) >= self._fetchers_needed:
            leader.fetched_voters.clear()
            leader.check_quorum_deadline_ms = self._ctx.now_ms + self._check_quorum_ms

    def update_hw(self, leader: Leader) -> bool:
        """HW = what a majority of the voters has, once that lies beyond the start of this epoch (RF-15, RF-26)."""
        ctx = self._ctx
        offsets = {voter_id: _or(progress.end_offset, -1) for voter_id, progress in leader.voters.items()}
        if ctx.is_voter:  # also while it leads without being one: its removal waits for the others (DQ-34)
            offsets[ctx.node_id] = min(ctx.metalog.log.recovery_point, ctx.metalog.leo)
        hw = min(ctx.voters.majority_offset(offsets), ctx.metalog.leo)
        if hw <= leader.epoch_start_offset or (leader.hw is not None and hw <= leader.hw):
            return False
        leader.hw = hw
        ctx.advance_hw(hw)
        return True

    def may_mark_own_delivered(self, offset: int) -> None:
        """All state machines have consumed everything below `offset`: forget the records kept for them."""
        while self.own_batches and self.own_batches[0].next_offset <= offset:
            self.own_batches.popleft()

    # time

    @property
    def _check_quorum_ms(self) -> int:
        return self._ctx.config.fetch_timeout_ms * 3 // 2

    def poll(self) -> None:
        ctx, leader = self._ctx, self._ctx.state
        if not isinstance(leader, Leader):
            return
        if ctx.shutting_down:
            self.resign("shutting down", self.successors(leader))
            return
        if leader.check_quorum_deadline_ms is not None and leader.check_quorum_deadline_ms <= ctx.now_ms:
            self.resign("no fetches from a majority of the voters", ())
            return
        removed_at = ctx.membership.voters_offset
        if not ctx.is_voter and leader.hw is not None and removed_at is not None and leader.hw > removed_at:
            self.resign("its removal from the voters is committed", self.successors(leader))
            return
        self._drain(leader)
        self._begin_epoch(leader)
        since_ms = ctx.now_ms - ctx.config.tuning.raft_observer_expiry_ms
        expired = [  # and who was a voter, and has not fetched from this leader
            key
            for key, progress in leader.observers.items()
            if (progress.last_fetch_at_ms is None or progress.last_fetch_at_ms <= since_ms) and key != ctx.key
        ]
        for key in expired:
            del leader.observers[key]

    def _begin_epoch(self, leader: Leader) -> None:
        """Advertise this leader; again to those that have not fetched since the last time (RF-16)."""
        ctx = self._ctx
        period = ctx.config.fetch_timeout_ms // 2
        if leader.begin_epoch_deadline_ms is not None and leader.begin_epoch_deadline_ms <= ctx.now_ms:
            leader.begin_epoch_deadline_ms = ctx.now_ms + period
            for voter_id in ctx.voters.others(ctx.node_id):
                last = leader.voters[voter_id].last_fetch_at_ms
                if last is None or last + period <= ctx.now_ms:
                    leader.begin_epoch_pending.add(voter_id)
        for voter_id in ctx.voters.others(ctx.node_id):
            if voter_id in leader.begin_epoch_pending and ctx.requests.may_send(voter_id, BEGIN_QUORUM_EPOCH, ctx.now_ms):
                leader.begin_epoch_pending.discard(voter_id)
                voter = ctx.voters.get(voter_id)
                request = BeginQuorumEpochRequest(
                    cluster_id=ctx.config.cluster_id,
                    voter_id=voter_id,
                    voter_directory_id=voter.directory_id if voter is not None else None,
                    leader_id=ctx.node_id,
                    leader_epoch=leader.epoch,
                    leader_endpoint=leader.leader_endpoint,
                )
                ctx.send(voter_id, BEGIN_QUORUM_EPOCH, request)

    def on_begin_response(self, peer_id: NodeId, response: BeginQuorumEpochResponse) -> None:
        self._ctx.heard(peer_id, "BeginQuorumEpoch answer", response.leader_epoch, response.leader_id)

    def deadline_ms(self) -> int | None:
        leader = self._ctx.state
        if not isinstance(leader, Leader):
            return None
        drain = self._accumulator.drain_deadline_ms if self._accumulator is not None else None
        times = (leader.check_quorum_deadline_ms, leader.begin_epoch_deadline_ms, drain)
        return min([time for time in times if time is not None], default=None)

    # describing

    def describe(self) -> DescribeQuorumResponse:
        """Raises ApiError(NOT_LEADER_OR_FOLLOWER) unless this node leads (RF-57)."""
        ctx, leader = self._ctx, self._ctx.state
        if not isinstance(leader, Leader):
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"node {ctx.node_id} is {leader.name}, not the leader")
        own = leader.voters[ctx.node_id] if ctx.is_voter else leader.observers.setdefault(ctx.key, ReplicaProgress())
        own.end_offset = ctx.metalog.leo
        own.last_fetch_ms = own.last_caught_up_ms = ctx.wall_ms
        voters = tuple(_voter_line(voter, leader.voters[voter.id], ctx) for voter in ctx.voters.voters)
        observers = tuple(_line(key, leader.observers[key], ctx) for key in sorted(leader.observers, key=_key_order))
        return DescribeQuorumResponse(
            leader_id=ctx.node_id, leader_epoch=leader.epoch, high_watermark=leader.hw, voters=voters, observers=observers
        )


def clamp_wait_ms(max_wait_ms: int) -> int:
    return min(max_wait_ms, RAFT_FETCH_MAX_WAIT_MS)


def _voter_line(voter: Voter, progress: ReplicaProgress, ctx: RaftContext) -> QuorumReplica:
    """A configured voter has the one listener that the configuration says."""
    name, at = ctx.config.listener_name or "CONTROLLER", voter.endpoint
    listeners = voter.listeners or (VoterEndpoint(name=name, host=at.host, port=at.port),)
    return replace(_line(voter.key, progress, ctx), listeners=listeners)


def _line(key: ReplicaKey, progress: ReplicaProgress, ctx: RaftContext) -> QuorumReplica:
    return QuorumReplica(
        replica_id=key.id,
        directory_id=key.directory_id,
        log_end_offset=progress.end_offset,
        last_fetch_timestamp_ms=progress.last_fetch_ms,
        last_caught_up_timestamp_ms=progress.last_caught_up_ms,
        endpoint=ctx.voters.endpoint(key.id),
    )


def _key_order(key: ReplicaKey) -> tuple[int, int]:
    return key.id, key.directory_id.int if key.directory_id is not None else -1


def _or(value: int | None, default: int) -> int:
    return value if value is not None else default


def _later(one: int | None, other: int | None) -> int | None:
    return max((time for time in (one, other) if time is not None), default=None)
