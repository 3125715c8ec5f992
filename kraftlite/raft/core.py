"""The quorum's state machine: events in, output out. No waiting, no clock, no entropy of its own.

Source: KIP-595, KIP-630, KIP-996; RF-01 to RF-60.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, assert_never

from kraftlite.model.errors import ErrorCode, Fault
from kraftlite.model.ids import Endpoint
from kraftlite.model.messages.raft import (
    AddVoterRequest,
    AddVoterResponse,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    DescribeQuorumResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    OffsetAndEpoch,
    ProbeVersionsRequest,
    ProbeVersionsResponse,
    RaftFetchRequest,
    RaftFetchResponse,
    RaftRequest,
    RaftResponse,
    RemoveVoterRequest,
    RemoveVoterResponse,
    UpdateVoterRequest,
    UpdateVoterResponse,
    VoteRequest,
    VoteResponse,
)
from kraftlite.raft.changes import Changes
from kraftlite.raft.client import CommittedBatch, LeaderAndEpoch, RecordSerde
from kraftlite.raft.config import QuorumConfig
from kraftlite.raft.context import RaftContext
from kraftlite.raft.elections import Elections
from kraftlite.raft.events import (
    AppendScheduled,
    Event,
    LogFlushed,
    Output,
    RequestFailed,
    RequestReceived,
    ResignRequested,
    ResponseReceived,
    ShutdownRequested,
    Tick,
)
from kraftlite.raft.following import Following
from kraftlite.raft.joining import Joining
from kraftlite.raft.leadership import Leadership
from kraftlite.raft.metalog import MetadataLog
from kraftlite.raft.quorum_state import QuorumStateStore
from kraftlite.raft.requests import Outstanding
from kraftlite.raft.serving import Serving
from kraftlite.raft.snapshots import FileSnapshotWriter
from kraftlite.raft.states import Leader, Resigned, RoleState
from kraftlite.raft.voters import ReplicaKey, VoterSet
from kraftlite.runtime.ports import Disk, Tracer
from kraftlite.runtime.trace import raft as trace

_MAX_ROLE_CHANGES_PER_STEP = 8


class RaftCore:
    """One node of the metadata quorum, voter or observer.

    `step` with every event, and with `Tick` when `next_deadline_ms` is reached; perform each `Output` before the next step.
    Times are monotonic milliseconds of this node, `wall_ms` is milliseconds since the epoch. The constructor opens (recovers)
    the log and takes up the role that `quorum-state` says.

    Raises Fault when this node must stop (RF-12, RF-23, RF-31, RF-46), OSError when its disk fails.
    """

    def __init__(
        self,
        *,
        config: QuorumConfig,
        disk: Disk,
        serde: RecordSerde,
        entropy: random.Random,
        tracer: Tracer,
        now_ms: int,
        wall_ms: int | None = None,
        trace_appends: bool = False,
    ) -> None:
        self.config = config
        self._serde = serde
        wall_ms = now_ms if wall_ms is None else wall_ms
        if disk.stat(config.metadata_dir) is None:
            disk.makedirs(config.metadata_dir)
        store = QuorumStateStore(disk, config.metadata_dir)
        stored = store.read()
        metalog = MetadataLog(
            disk=disk,
            config=config,
            serde=serde,
            wall_ms=wall_ms,
            entropy=entropy,
            tracer=tracer,
            stored_epoch=stored.epoch if stored is not None else None,
        )
        self.metalog = metalog
        self._ctx = RaftContext(
            config=config, metalog=metalog, store=store, entropy=entropy, tracer=tracer, trace_appends=trace_appends
        )
        self._leadership = Leadership(self._ctx, serde)
        self._serving = Serving(self._ctx, self._leadership)
        self._elections = Elections(self._ctx, self._leadership.become_leader)
        self._following = Following(self._ctx, self._elections.become_prospective)
        self._changes = Changes(self._ctx, self._leadership)
        self._joining = Joining(self._ctx)
        self._clean_deadline_ms = now_ms + config.cleaning_interval_ms
        self._unlink: list[tuple[int, list[str]]] = []
        self._led = False
        self._delivered_offset = 0
        self._ctx.now_ms, self._ctx.wall_ms = now_ms, wall_ms
        self._ctx.restore(stored)
        self.check()

    # what the core knows

    @property
    def state(self) -> RoleState:
        return self._ctx.state

    @property
    def state_name(self) -> str:
        """unattached, prospective, candidate, leader, follower, resigned; `observer` for a node that is not a voter."""
        state = self._ctx.state
        return state.name if self._ctx.is_voter or isinstance(state, Leader) else "observer"

    @property
    def epoch(self) -> int:
        return self._ctx.epoch

    @property
    def voted_for(self) -> ReplicaKey | None:
        """The candidate that has this node's vote in its epoch; itself if it leads."""
        state = self._ctx.state
        return self._ctx.key if isinstance(state, Leader) else state.election().voted

    @property
    def voters(self) -> VoterSet:
        return self._ctx.voters

    @property
    def kraft_version(self) -> int:
        """The level that this node's log says last, committed or not."""
        return self._ctx.membership.kraft_version

    @property
    def observer_count(self) -> int:
        """The replicas that fetch from this node without being voters; 0 unless it leads."""
        state = self._ctx.state
        return len(state.observers) if isinstance(state, Leader) else 0

    @property
    def voters_are_changing(self) -> bool:
        """Return whether this node leads and has a change of the voters that is not committed."""
        return self._changes.is_pending

    @property
    def ignores_configured_voters(self) -> bool:
        """Return whether controller.quorum.voters is set here and has no effect (DQ-09)."""
        return self._ctx.membership.ignores_configured

    @property
    def leader(self) -> LeaderAndEpoch:
        return LeaderAndEpoch(leader_id=self._ctx.state.leader_id, epoch=self._ctx.epoch)

    @property
    def leader_endpoint(self) -> Endpoint | None:
        return self._ctx.leader_endpoint

    @property
    def epoch_start_offset(self) -> int | None:
        """The offset at which the epoch that this node leads starts; None unless it leads."""
        state = self._ctx.state
        return state.epoch_start_offset if isinstance(state, Leader) else None

    @property
    def high_watermark(self) -> int | None:
        """The high watermark as the quorum would say it now: None while this node leads and nothing of its epoch is committed
        (RF-15)."""
        state = self._ctx.state
        return state.hw if isinstance(state, Leader) else self._ctx.hw

    @property
    def committed_offset(self) -> int | None:
        """Everything below it is known to be committed, whatever the role: what state machines may consume."""
        return self._ctx.hw

    @property
    def leo(self) -> int:
        return self.metalog.leo

    @property
    def log_end_offset(self) -> int:
        """The end of the log, including what is prepared."""
        return self._leadership.end_with_prepared

    @property
    def shutdown_complete(self) -> bool:
        """Return whether nobody needs to be told any more that this node goes."""
        state = self._ctx.state
        return (
            self._ctx.shutting_down
            and not isinstance(state, Leader)
            and not (isinstance(state, Resigned) and bool(state.unacknowledged))
        )

    def describe(self, wall_ms: int) -> DescribeQuorumResponse:
        self._ctx.wall_ms = wall_ms
        return self._leadership.describe()

    def own_batch(self, offset: int) -> CommittedBatch | None:
        """The batch at `offset` if this node appended it in its current leadership and it is still kept."""
        for own in self._leadership.own_batches:
            if own.batch.base_offset >= offset:
                return own.batch if own.batch.base_offset == offset else None
        return None

    def mark_delivered(self, offset: int) -> None:
        """Every state machine of this node has consumed everything below `offset`."""
        self._delivered_offset = offset
        self._leadership.may_mark_own_delivered(offset)

    # events

    def step(self, event: Event, now_ms: int, wall_ms: int | None = None) -> Output:
        ctx = self._ctx
        ctx.now_ms, ctx.wall_ms = now_ms, now_ms if wall_ms is None else wall_ms
        ctx.out = Output()
        before = ctx.state
        self._handle(event)
        self._poll()
        if ctx.state is not before:
            self.check()
        return ctx.out

    def check(self) -> None:
        """Raise AssertionError when an invariant does not hold between two steps. `step` calls it when the role has changed."""
        self._ctx.check()
        self._leadership.check()
        self._changes.check()

    def _handle(self, event: Event) -> None:
        ctx = self._ctx
        match event:
            case RequestReceived():
                self._on_request(event.request_id, event.request)
            case ResponseReceived():
                outstanding = ctx.requests.close(event.correlation_id)
                if outstanding is not None:
                    self._on_response(outstanding, event.response)
            case RequestFailed():
                outstanding = ctx.requests.close(event.correlation_id)
                if outstanding is not None:
                    ctx.requests.back_off(outstanding.peer_id, outstanding.method, ctx.now_ms)
                    self._changes.on_probe_failed(event.correlation_id)
            case LogFlushed():
                self.metalog.note_durable()
                self._serving.on_flushed()
            case AppendScheduled():
                self._leadership.schedule()
            case ResignRequested():
                self._on_resign(event)
            case ShutdownRequested():
                ctx.shutting_down = True
            case Tick():
                pass
            case _:
                assert_never(event)

    def _on_request(self, request_id: int, request: RaftRequest) -> None:
        response: RaftResponse
        match request:
            case RaftFetchRequest():
                self._serving.on_fetch_request(request_id, request)  # may be answered later
                return
            case AddVoterRequest():
                self._changes.on_add_request(request_id, request)  # may be answered later, as a removal
                return
            case RemoveVoterRequest():
                self._changes.on_remove_request(request_id, request)
                return
            case UpdateVoterRequest():
                response = self._changes.on_update_request(request)
            case ProbeVersionsRequest():
                response = self._changes.on_probe_request(request)
            case VoteRequest():
                response = self._elections.on_vote_request(request)
            case BeginQuorumEpochRequest():
                response = self._elections.on_begin_request(request)
            case EndQuorumEpochRequest():
                response = self._elections.on_end_request(request)
            case FetchSnapshotRequest():
                response = self._serving.on_fetch_snapshot_request(request)
            case _:
                assert_never(request)
        self._ctx.reply(request_id, response)

    def _on_response(self, outstanding: Outstanding, response: RaftResponse) -> None:
        peer_id, request = outstanding.peer_id, outstanding.request
        if isinstance(response, ProbeVersionsResponse):
            self._changes.on_probe_response(outstanding.correlation_id, response)
            return
        if response.error is ErrorCode.INCONSISTENT_CLUSTER_ID:
            # Of another cluster: nothing it says about epochs and leaders concerns this one.
            if not self._ctx.is_voter and self._ctx.hw is None:
                server = self._ctx.bootstrap.get(peer_id)
                peer = f"controller {peer_id}" if server is None else f"the controller at {server}"
                key = "controller.quorum.voters" if server is None else "controller.quorum.bootstrap.servers"
                raise Fault(
                    f"{peer} belongs to another cluster than this node, whose directories were formatted for "
                    f"{self._ctx.config.cluster_id}: check {key}, and cluster.id in meta.properties"
                )
            self._ctx.requests.back_off(peer_id, outstanding.method, self._ctx.now_ms)
            return
        match request, response:
            case RaftFetchRequest(), RaftFetchResponse():
                self._following.on_fetch_response(peer_id, request, response)
            case VoteRequest(), VoteResponse():
                self._elections.on_vote_response(peer_id, request, response)
            case BeginQuorumEpochRequest(), BeginQuorumEpochResponse():
                self._leadership.on_begin_response(peer_id, response)
            case EndQuorumEpochRequest(), EndQuorumEpochResponse():
                self._elections.on_end_response(peer_id, response)
            case FetchSnapshotRequest(), FetchSnapshotResponse():
                self._following.on_fetch_snapshot_response(peer_id, request, response)
            case AddVoterRequest(), AddVoterResponse():
                self._joining.on_response(peer_id, response)
            case RemoveVoterRequest(), RemoveVoterResponse():
                self._joining.on_response(peer_id, response)
            case UpdateVoterRequest(), UpdateVoterResponse():
                self._joining.on_response(peer_id, response)
            case _:
                raise AssertionError(f"{outstanding.method} of node {peer_id} was answered with {type(response).__name__}")

    def _on_resign(self, event: ResignRequested) -> None:
        state = self._ctx.state
        self.check_resign(event.epoch)
        if event.epoch < state.epoch or not isinstance(state, Leader):
            return
        self._leadership.resign(event.reason, self._leadership.successors(state))

    def check_resign(self, epoch: int) -> None:
        """Raises ValueError when `epoch` is newer than the quorum's, or this node never led it (RF-38).

        To resign again from an epoch that this node has already resigned from is no error: both sides may have seen a reason.
        """
        state = self._ctx.state
        if epoch > state.epoch:
            raise ValueError(f"cannot resign from epoch {epoch}: the quorum is only in epoch {state.epoch}")
        if epoch == state.epoch and not isinstance(state, Leader | Resigned):
            raise ValueError(f"cannot resign from epoch {epoch}: node {self._ctx.node_id} is {state.name}, not its leader")

    # time

    def _poll(self) -> None:
        ctx = self._ctx
        for late in ctx.requests.expire(ctx.now_ms):
            ctx.requests.back_off(late.peer_id, late.method, ctx.now_ms)
        for _ in range(_MAX_ROLE_CHANGES_PER_STEP):
            state = ctx.state
            if self._led and not isinstance(state, Leader):
                self._leadership.left_office()
                self._serving.left_office()
                self._changes.left_office()
            self._led = isinstance(state, Leader)
            self._elections.poll()
            self._following.poll()
            self._changes.poll()
            self._leadership.poll()
            if ctx.state is state:
                break
        self._serving.poll()
        self._joining.poll()
        self._clean()

    def _clean(self) -> None:
        ctx = self._ctx
        if self._clean_deadline_ms <= ctx.now_ms:
            self._clean_deadline_ms = ctx.now_ms + self.config.cleaning_interval_ms
            keep_from = self._delivered_offset if isinstance(ctx.state, Leader) else None
            doomed = self.metalog.clean(ctx.wall_ms, keep_from)
            if doomed:
                self._unlink.append((ctx.now_ms + self.config.file_delete_delay_ms, doomed))
            if self.metalog.cleaning:
                self._clean_deadline_ms = ctx.now_ms + 1
        while self._unlink and self._unlink[0][0] <= ctx.now_ms:
            self.metalog.unlink(self._unlink.pop(0)[1])

    def next_deadline_ms(self) -> int:
        """Return when `Tick` is due at the latest."""
        times = (
            self._elections.deadline_ms(),
            self._following.deadline_ms(),
            self._leadership.deadline_ms(),
            self._serving.deadline_ms(),
            self._changes.deadline_ms(),
            self._joining.deadline_ms(),
            self._ctx.requests.next_deadline_ms(self._ctx.now_ms),
            self._unlink[0][0] if self._unlink else None,
            self._clean_deadline_ms,
        )
        return min([time for time in times if time is not None])

    # appends and snapshots: synchronous, because their result is an offset or a file

    def prepare_append(self, epoch: int, records: Sequence[Any], wall_ms: int, encoded: Sequence[bytes] | None = None) -> int:
        """See `RaftClient.prepare_append`."""
        return self._leadership.prepare_append(epoch, records, wall_ms, encoded)

    def upgrade_kraft_version(self, epoch: int, level: int, *, validate_only: bool, now_ms: int, wall_ms: int) -> None:
        """See `RaftClient.upgrade_kraft_version`. The records leave with the next step."""
        self._ctx.now_ms, self._ctx.wall_ms = now_ms, wall_ms
        self._changes.upgrade(epoch, level, validate_only)

    def create_snapshot(self, snapshot_id: OffsetAndEpoch, last_contained_timestamp_ms: int) -> FileSnapshotWriter | None:
        """See `RaftClient.create_snapshot`."""
        if not self.metalog.check_new_snapshot(snapshot_id, self._ctx.hw):
            return None
        controls = self.metalog.membership.snapshot_controls(snapshot_id.offset)
        part = self.metalog.snapshots.create_part(snapshot_id)
        return FileSnapshotWriter(
            part,
            self._serde,
            last_contained_timestamp_ms,
            self._on_snapshot_created,
            controls,
            lambda it: it.offset >= self.metalog.log_start_offset,
        )

    def _on_snapshot_created(self, snapshot_id: OffsetAndEpoch, size: int) -> None:
        self._ctx.tracer.emit(trace.SnapshotCreated(end_offset=snapshot_id.offset, last_epoch=snapshot_id.epoch, size_bytes=size))

    def close(self) -> None:
        """Flush and close the files. The core must not be used afterwards."""
        self._following.drop_download("shutting down")
        self.metalog.close()
