"""Following a leader: fetching its log or its snapshot, and looking for one when none is known.

Source: KIP-595, KIP-630; RF-17, RF-25, RF-28 to RF-31, RF-34, RF-39, RF-44, RF-45.
"""

from __future__ import annotations

from collections.abc import Callable

from kraftlite.model.errors import ApiError, ErrorCode, Fault
from kraftlite.model.ids import Endpoint, NodeId
from kraftlite.model.limits import (
    RAFT_MAX_SNAPSHOT_BYTES,
)
from kraftlite.model.messages.methods import FETCH_SNAPSHOT, RAFT_FETCH
from kraftlite.model.messages.raft import (
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    OffsetAndEpoch,
    RaftFetchRequest,
    RaftFetchResponse,
)
from kraftlite.model.method import AnyMethod
from kraftlite.raft.context import RaftContext
from kraftlite.raft.decoding import check_readable
from kraftlite.raft.snapshots import PartialSnapshot
from kraftlite.raft.states import Follower, Leader, Unattached
from kraftlite.runtime.trace import raft as trace

DISCOVERY_PATIENCE_MS = 100
"""A voter that does not say within this time who leads hangs, or is cut off: another is asked as well."""


class Following:
    """The part of the core that plays follower, and the observer that looks for a leader. Raises Fault (RF-31), OSError."""

    def __init__(self, ctx: RaftContext, become_prospective: Callable[[str], None]) -> None:
        self._ctx = ctx
        self._become_prospective = become_prospective
        self._download: PartialSnapshot | None = None
        self._download_from: NodeId | None = None
        self._ask_another_ms: int | None = None
        """The time at which the next voter is asked for the leader if the one that was asked last stays silent."""

    # time

    def poll(self) -> None:
        ctx, state = self._ctx, self._ctx.state
        self._ask_another_ms = None
        if isinstance(state, Unattached):
            self._look_for_leader()
            return
        if isinstance(state, Leader):
            self.drop_download("this node leads")
        if not isinstance(state, Follower):
            return
        if state.fetch_deadline_ms <= ctx.now_ms and not ctx.shutting_down and not state.fetch_timed_out:
            if not state.leader_has_resigned:
                silent_ms = ctx.now_ms - state.fetch_deadline_ms + ctx.config.fetch_timeout_ms
                ctx.tracer.emit(trace.FetchTimedOut(leader_id=state.leader_id, raft_epoch=state.epoch, silent_ms=silent_ms))
            if ctx.may_stand:
                cause = "request:end_quorum_epoch" if state.leader_has_resigned else "timer:fetch"
                self._become_prospective(f"{cause} leader={state.leader_id}")
                return
            state.fetch_timed_out, state.leader_is_live = True, False  # others may count its vote, and wait for it (DQ-12)
        method: AnyMethod = RAFT_FETCH
        if self._download is not None and self._download_from == state.leader_id:
            method = FETCH_SNAPSHOT
            self._fetch_snapshot(state, self._download)
        else:
            self._fetch(state.leader_id, state.leader_endpoint)
        if state.fetch_timed_out or ctx.requests.is_backing_off(state.leader_id, method, ctx.now_ms):
            self._look_for_leader(given_up=state.leader_id)

    def deadline_ms(self) -> int | None:
        state = self._ctx.state
        if not isinstance(state, Follower) or state.fetch_timed_out or self._ctx.shutting_down:
            return self._ask_another_ms
        return min(state.fetch_deadline_ms, self._ask_another_ms or state.fetch_deadline_ms)

    def _look_for_leader(self, given_up: NodeId | None = None) -> None:
        """Fetch from any voter, or any bootstrap server: whoever it is answers with what it knows about the leader.

        A follower asks others than its leader, `given_up`, while that one cannot be reached or is silent: it may have been
        replaced, and who still names it as the leader is asked again after the back-off.
        """
        ctx = self._ctx
        if ctx.shutting_down:
            return
        others = [voter_id for voter_id in ctx.voters.others(ctx.node_id) if voter_id != given_up]
        others += ctx.bootstrap
        asked_ms = ctx.requests.last_sent_ms(RAFT_FETCH, others)
        if asked_ms is not None and asked_ms + DISCOVERY_PATIENCE_MS > ctx.now_ms:
            self._ask_another_ms = asked_ms + DISCOVERY_PATIENCE_MS
            return
        ready = [voter_id for voter_id in others if ctx.requests.may_send(voter_id, RAFT_FETCH, ctx.now_ms)]
        if ready:
            peer_id = ctx.entropy.choice(ready)
            self._fetch(peer_id, ctx.bootstrap.get(peer_id), max_wait_ms=0)
            self._ask_another_ms = ctx.now_ms + DISCOVERY_PATIENCE_MS

    def _fetch(self, peer_id: NodeId, endpoint: Endpoint | None, max_wait_ms: int | None = None) -> None:
        """`max_wait_ms` None: as long as leaves room for several answers within the fetch timeout, and for this one to arrive
        before its request times out."""
        ctx = self._ctx
        if not ctx.requests.may_send(peer_id, RAFT_FETCH, ctx.now_ms):
            return
        if max_wait_ms is None:
            config = ctx.config
            max_wait_ms = min(config.tuning.raft_fetch_wait_ms, config.fetch_timeout_ms // 4, config.request_timeout_ms // 2)
        if ctx.acknowledges and not ctx.log_is_durable:
            ctx.ask_flush()  # a voter's fetch acknowledges everything below its offset: only what is durable may be (RF-29)
            return
        request = RaftFetchRequest(
            cluster_id=ctx.config.cluster_id,
            replica_id=ctx.node_id,
            replica_directory_id=ctx.key.directory_id,
            current_leader_epoch=ctx.epoch,
            fetch_offset=ctx.metalog.leo,
            last_fetched_epoch=ctx.metalog.last_epoch,
            max_wait_ms=max_wait_ms,
            max_bytes=ctx.config.tuning.raft_fetch_bytes,
        )
        ctx.send(peer_id, RAFT_FETCH, request, endpoint)

    def _fetch_snapshot(self, state: Follower, download: PartialSnapshot) -> None:
        ctx = self._ctx
        if not ctx.requests.may_send(state.leader_id, FETCH_SNAPSHOT, ctx.now_ms):
            return
        request = FetchSnapshotRequest(
            cluster_id=ctx.config.cluster_id,
            replica_id=ctx.node_id,
            replica_directory_id=ctx.key.directory_id,
            current_leader_epoch=state.epoch,
            snapshot_id=download.snapshot_id,
            position=download.position,
            max_bytes=self._ctx.config.tuning.snapshot_chunk_bytes,
        )
        ctx.send(state.leader_id, FETCH_SNAPSHOT, request, state.leader_endpoint)

    # answers

    def on_fetch_response(self, peer_id: NodeId, request: RaftFetchRequest, response: RaftFetchResponse) -> None:
        ctx = self._ctx
        before = ctx.state
        if not ctx.heard(peer_id, "Fetch answer", response.leader_epoch, response.leader_id, response.leader_endpoint):
            ctx.requests.back_off(peer_id, RAFT_FETCH, ctx.now_ms)
            return
        state = ctx.state
        if state is not before:
            return
        forgotten = self._forgotten(peer_id, request, response)
        if forgotten is not None:
            self._refuse_forgetful(peer_id, forgotten)
            ctx.requests.back_off(peer_id, RAFT_FETCH, ctx.now_ms)
            return
        ours = isinstance(state, Follower) and state.leader_id == peer_id and response.leader_epoch == state.epoch
        if response.error is not ErrorCode.NONE or not ours or request.fetch_offset != ctx.metalog.leo:
            ctx.requests.back_off(peer_id, RAFT_FETCH, ctx.now_ms)
            return
        assert isinstance(state, Follower)
        nonsense = self._nonsense(request, response)
        if nonsense is not None:
            ctx.refuse(peer_id, "Fetch answer", nonsense)
            ctx.requests.back_off(peer_id, RAFT_FETCH, ctx.now_ms)
            return
        if response.snapshot_id is None:
            self.drop_download("the log reaches back far enough")
        if response.diverging_epoch is not None:
            if ctx.metalog.truncate_to_diverging(response.diverging_epoch) == request.fetch_offset:
                ctx.requests.back_off(peer_id, RAFT_FETCH, ctx.now_ms)
                return  # nothing was given up: the same question would have the same answer
        elif response.snapshot_id is not None:
            self._start_download(state, response.snapshot_id)
        elif not self._append(state, response.payload):
            ctx.requests.back_off(peer_id, RAFT_FETCH, ctx.now_ms)
            return
        self._succeeded(state)
        if response.high_watermark is not None and response.diverging_epoch is None and response.snapshot_id is None:
            self._learn_hw(peer_id, min(response.high_watermark, ctx.metalog.leo))

    def _learn_hw(self, peer_id: NodeId, hw: int) -> None:
        ctx = self._ctx
        if ctx.metalog.begins_batch(hw):
            ctx.advance_hw(max(0, hw))
        else:
            ctx.refuse(peer_id, "Fetch answer", f"a high watermark of {hw}, inside a batch")

    def _forgotten(self, peer_id: NodeId, request: RaftFetchRequest, response: RaftFetchResponse) -> str | None:
        """Say what the leader of this node's epoch has forgotten; None when nothing shows that it has. It writes its epoch to its
        disk before it leads, and gives up nothing that it has appended in it: only files of an earlier time have less (RF-46)."""
        epoch, diverging = self._ctx.epoch, response.diverging_epoch
        if self._ctx.state.leader_id != peer_id or request.current_leader_epoch != epoch:
            return None
        if response.error is ErrorCode.UNKNOWN_LEADER_EPOCH and response.leader_epoch < epoch:
            return f"controller {peer_id} led epoch {epoch} and is in epoch {response.leader_epoch} now"
        ends_early = diverging is not None and diverging.epoch == epoch and diverging.offset < request.fetch_offset
        if response.error is ErrorCode.NONE and response.leader_epoch == epoch and ends_early:
            assert diverging is not None
            return f"controller {peer_id} led epoch {epoch} up to offset {request.fetch_offset}, and now up to {diverging.offset}"
        return None

    def _refuse_forgetful(self, peer_id: NodeId, forgotten: str) -> None:
        """Refuse the leader, and this node's start behind the only voter: it would wait for ever. A node that has begun serves on
        with what it has, and where others vote, they elect somebody who has everything."""
        ctx = self._ctx
        reason = f"{forgotten}, so its files are of an earlier time"
        if ctx.hw is None and ctx.voters.ids == (peer_id,):
            raise Fault(
                f"{reason}, and no other controller has the metadata that this node knows. Restore later ones there; to go on "
                f"with what it has, remove {ctx.config.metadata_dir} of every node that is only a broker"
            )
        ctx.refuse(peer_id, "Fetch answer", reason)

    def _nonsense(self, request: RaftFetchRequest, response: RaftFetchResponse) -> str | None:
        """Say what no leader answers to this request; None when the answer is sound.

        Where two logs part is before the end of the one that asks, and a snapshot is offered to who lacks records that it has.
        That a leader wants back what this node knows to be committed is more than nonsense, and a Fault (RF-31).
        """
        diverging, snapshot_id = response.diverging_epoch, response.snapshot_id
        if diverging is not None:
            asked = OffsetAndEpoch(epoch=request.last_fetched_epoch, offset=request.fetch_offset)
            if diverging >= asked:
                return f"a log that ends at {asked} cannot part from the leader's at {diverging}"
        elif snapshot_id is not None:
            has = snapshot_id.epoch == request.last_fetched_epoch and snapshot_id.offset <= request.fetch_offset
            if has or snapshot_id.offset < (self._ctx.hw or 1) or snapshot_id.epoch > response.leader_epoch:
                known = f"everything below {self._ctx.hw} is known, and the log ends at {request.fetch_offset}"
                return f"a snapshot {snapshot_id} of epoch {response.leader_epoch}, where {known}"
        return None

    def _append(self, state: Follower, payload: bytes) -> bool:
        """False when the bytes were damaged on the way, or are no records: fetch them again."""
        ctx = self._ctx
        if not payload:
            return True
        base = ctx.metalog.leo
        try:
            check_readable(payload)
            info = ctx.metalog.append_as_follower(payload, leader_epoch=state.epoch, wall_ms=ctx.wall_ms)
        except ApiError as error:
            ctx.refuse(state.leader_id, "Fetch answer", str(error))
            return False
        if info is None:
            return False
        if ctx.trace_appends:
            ctx.tracer.emit(trace.BatchAppended(base_offset=base, leo=info.leo, raft_epoch=state.epoch))
        if ctx.acknowledges:
            ctx.ask_flush()
        return True

    def _succeeded(self, state: Follower) -> None:
        """Note a success: only success counts as a sign of a living leader (RF-34)."""
        state.leader_is_live, state.fetch_timed_out = True, False
        state.fetch_deadline_ms = self._ctx.now_ms + self._ctx.config.fetch_timeout_ms

    def _start_download(self, state: Follower, snapshot_id: OffsetAndEpoch) -> None:
        """Resume what was begun from the same leader, or begin anew (RF-44)."""
        download = self._download
        if download is not None and (download.snapshot_id != snapshot_id or self._download_from != state.leader_id):
            self.drop_download("another snapshot is wanted")
        if self._download is None:
            self._download = self._ctx.metalog.snapshots.create_part(snapshot_id)
            self._download_from = state.leader_id
        self._ctx.tracer.emit(
            trace.SnapshotFetchStarted(
                leader_id=state.leader_id,
                end_offset=snapshot_id.offset,
                last_epoch=snapshot_id.epoch,
                position=self._download.position,
            )
        )

    def on_fetch_snapshot_response(self, peer_id: NodeId, request: FetchSnapshotRequest, response: FetchSnapshotResponse) -> None:
        ctx = self._ctx
        before = ctx.state
        if not ctx.heard(peer_id, "FetchSnapshot answer", response.leader_epoch, response.leader_id):
            ctx.requests.back_off(peer_id, FETCH_SNAPSHOT, ctx.now_ms)
            return
        state, download = ctx.state, self._download
        if state is not before or not isinstance(state, Follower) or state.leader_id != peer_id:
            return
        if download is None or download.snapshot_id != request.snapshot_id or download.position != request.position:
            return
        if response.error in (ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE):
            self.drop_download(response.error.name)
            # A leader whose snapshot is damaged offers it until it has another one.
            ctx.requests.back_off(peer_id, RAFT_FETCH, ctx.now_ms)
            return
        if response.error is not ErrorCode.NONE or response.position != request.position or not response.payload:
            ctx.requests.back_off(peer_id, FETCH_SNAPSHOT, ctx.now_ms)
            return
        end = response.position + len(response.payload)
        if response.size > RAFT_MAX_SNAPSHOT_BYTES or end > response.size or response.size != (download.size or response.size):
            self._give_up(peer_id, f"bytes {response.position} to {end} of {response.size}, of which there were {download.size}")
            return
        download.size = response.size
        download.append(response.payload)
        whole = download.position == response.size
        try:
            if whole:
                ctx.metalog.verify(download)
            else:
                ctx.metalog.check_ahead(download)
        except (Fault, ApiError) as error:
            self._give_up(peer_id, str(error))
            return
        if whole:
            self._download = None
            ctx.metalog.install(download)
            ctx.advance_hw(download.snapshot_id.offset)
            ctx.ask_flush()
        self._succeeded(state)

    def _give_up(self, peer_id: NodeId, reason: str) -> None:
        """Give up a download that is no snapshot. It is begun anew, after a pause, and nothing counts as a sign of a living
        leader."""
        self._ctx.refuse(peer_id, "FetchSnapshot answer", reason)
        self._ctx.requests.back_off(peer_id, RAFT_FETCH, self._ctx.now_ms)
        self.drop_download(reason)

    def drop_download(self, error: str) -> None:
        download, self._download = self._download, None
        if download is not None:
            download.abandon()
            self._ctx.tracer.emit(
                trace.SnapshotFetchFailed(
                    end_offset=download.snapshot_id.offset, last_epoch=download.snapshot_id.epoch, error=error
                )
            )
