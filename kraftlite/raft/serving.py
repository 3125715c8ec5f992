"""Answering fetches: records, divergence, snapshots; and the fetches that wait for something to answer.

Source: KIP-595 (Fetch), KIP-630 (FetchSnapshot); RF-25, RF-30, RF-32, RF-33, RF-39, RF-43, RF-44, RF-48.
"""

from __future__ import annotations

from dataclasses import dataclass

from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.raft import (
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    OffsetAndEpoch,
    RaftFetchRequest,
    RaftFetchResponse,
)
from kraftlite.raft.context import RaftContext
from kraftlite.raft.leadership import Leadership, clamp_wait_ms
from kraftlite.raft.states import Leader
from kraftlite.raft.voters import ReplicaKey


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkedFetch:
    """A long poll. One per replica: a newer fetch of the same replica completes the older one."""

    request_id: int
    request: RaftFetchRequest
    deadline_ms: int


class Serving:
    """The part of the core that answers Fetch and FetchSnapshot, to voters and observers alike."""

    def __init__(self, ctx: RaftContext, leadership: Leadership) -> None:
        self._ctx = ctx
        self._leadership = leadership
        self._parked: dict[ReplicaKey, ParkedFetch] = {}
        self._seen_leo = 0

    # fetch

    def on_fetch_request(self, request_id: int, request: RaftFetchRequest) -> None:
        ctx = self._ctx
        error = self._fetch_error(request)
        leader = ctx.state
        if error is not ErrorCode.NONE or not isinstance(leader, Leader):
            ctx.reply(request_id, self._fetch_response(error))
            return
        diverging, snapshot_id = ctx.metalog.check_position(request.fetch_offset, request.last_fetched_epoch)
        key = ReplicaKey(request.replica_id, request.replica_directory_id)
        if diverging is not None or snapshot_id is not None:
            self._leadership.note_fetch(leader, key, None)
            ctx.reply(request_id, self._fetch_response(error, diverging=diverging, snapshot_id=snapshot_id))
            return
        if not ctx.metalog.begins_batch(request.fetch_offset):
            # Were it believed, the high watermark could come to lie where no state machine can stop.
            ctx.refuse(key.id, "Fetch", f"no log that is a part of this one ends at offset {request.fetch_offset}, in a batch")
            ctx.reply(request_id, self._fetch_response(ErrorCode.INVALID_REQUEST))
            return
        progress = self._leadership.note_fetch(leader, key, request.fetch_offset)
        if self._leadership.update_hw(leader):
            self._complete_parked(leader)
        news = request.fetch_offset < ctx.metalog.leo or progress.sent_hw != leader.hw
        if news or request.max_wait_ms == 0:
            self._answer(leader, key, request_id, request)
            return
        older = self._parked.pop(key, None)
        if older is not None:
            ctx.reply(older.request_id, self._fetch_response(ErrorCode.NONE))
        deadline = ctx.now_ms + clamp_wait_ms(request.max_wait_ms)
        self._parked[key] = ParkedFetch(request_id=request_id, request=request, deadline_ms=deadline)

    def _fetch_error(self, request: RaftFetchRequest) -> ErrorCode:
        malformed = (
            request.fetch_offset < 0
            or request.max_wait_ms < 0
            or request.last_fetched_epoch < 0
            or request.current_leader_epoch < 0
            or request.last_fetched_epoch > request.current_leader_epoch
            or self._cannot_be(request.replica_id)
        )
        return self._leader_error(request.cluster_id, request.current_leader_epoch, malformed)

    def _cannot_be(self, replica_id: NodeId) -> bool:
        """Nobody has this id, or only this node, which does not fetch from itself: its own log is counted when it is durable."""
        return replica_id < 0 or replica_id == self._ctx.node_id

    def _leader_error(self, cluster_id: str | None, epoch: int, malformed: bool) -> ErrorCode:
        """Say what is wrong with a request that only the leader of `epoch` can answer (RF-32)."""
        ctx = self._ctx
        if cluster_id != ctx.config.cluster_id:
            return ErrorCode.INCONSISTENT_CLUSTER_ID
        if malformed:
            return ErrorCode.INVALID_REQUEST
        if ctx.shutting_down:
            return ErrorCode.BROKER_NOT_AVAILABLE
        if epoch < ctx.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch > ctx.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NONE if isinstance(ctx.state, Leader) else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _answer(self, leader: Leader, key: ReplicaKey, request_id: int, request: RaftFetchRequest) -> None:
        ctx = self._ctx
        limit = min(request.max_bytes, self._ctx.config.tuning.raft_fetch_bytes)
        payload = ctx.metalog.log.read(request.fetch_offset, limit, up_to=ctx.metalog.leo)
        progress = leader.voters.get(key.id) if ctx.voters.contains(key) else leader.observers.get(key)
        if progress is not None:
            progress.sent_hw = leader.hw
        ctx.reply(request_id, self._fetch_response(ErrorCode.NONE, payload=payload))

    def _fetch_response(
        self,
        error: ErrorCode,
        *,
        payload: bytes = b"",
        diverging: OffsetAndEpoch | None = None,
        snapshot_id: OffsetAndEpoch | None = None,
    ) -> RaftFetchResponse:
        ctx = self._ctx
        leader = ctx.state
        return RaftFetchResponse(
            error=error,
            leader_id=leader.leader_id,
            leader_epoch=ctx.epoch,
            leader_endpoint=ctx.leader_endpoint,
            high_watermark=leader.hw if isinstance(leader, Leader) else None,
            log_start_offset=ctx.metalog.log_start_offset,
            diverging_epoch=diverging,
            snapshot_id=snapshot_id,
            payload=payload,
        )

    # waiting fetches

    def poll(self) -> None:
        ctx, leader = self._ctx, self._ctx.state
        if not isinstance(leader, Leader):
            return
        if ctx.metalog.leo != self._seen_leo:
            self._seen_leo = ctx.metalog.leo
            self._complete_parked(leader)
        for key in [key for key, parked in self._parked.items() if parked.deadline_ms <= ctx.now_ms]:
            parked = self._parked.pop(key)
            self._answer(leader, key, parked.request_id, parked.request)

    def on_flushed(self) -> None:
        """The leader's own log is durable further than before: count it."""
        leader = self._ctx.state
        if isinstance(leader, Leader) and self._leadership.update_hw(leader):
            self._complete_parked(leader)

    def _complete_parked(self, leader: Leader) -> None:
        """Answer those for whom there is news: records, or a high watermark they have not been told."""
        ctx = self._ctx
        for key, parked in list(self._parked.items()):
            progress = leader.voters.get(key.id) if ctx.voters.contains(key) else leader.observers.get(key)
            sent_hw = progress.sent_hw if progress is not None else None
            if parked.request.fetch_offset < ctx.metalog.leo or sent_hw != leader.hw:
                del self._parked[key]
                self._answer(leader, key, parked.request_id, parked.request)

    def left_office(self) -> None:
        """Answer the fetches that wait: this node no longer leads, and they must look elsewhere (RF-33)."""
        parked, self._parked = self._parked, {}
        for waiting in parked.values():
            self._ctx.reply(waiting.request_id, self._fetch_response(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    def deadline_ms(self) -> int | None:
        return min([parked.deadline_ms for parked in self._parked.values()]) if self._parked else None

    # fetch snapshot

    def on_fetch_snapshot_request(self, request: FetchSnapshotRequest) -> FetchSnapshotResponse:
        ctx = self._ctx
        malformed = self._cannot_be(request.replica_id) or request.current_leader_epoch < 0
        error = self._leader_error(request.cluster_id, request.current_leader_epoch, malformed)
        size, payload = 0, b""
        leader = ctx.state
        if error is ErrorCode.NONE and isinstance(leader, Leader):
            self._leadership.note_fetch(leader, ReplicaKey(request.replica_id, request.replica_directory_id), None)
            if not ctx.metalog.snapshots.contains(request.snapshot_id):
                error = ErrorCode.SNAPSHOT_NOT_FOUND
            else:
                size = ctx.metalog.snapshots.size(request.snapshot_id)
                if size and not 0 <= request.position < size:
                    error = ErrorCode.POSITION_OUT_OF_RANGE
        if error is ErrorCode.NONE:
            limit = max(1, min(request.max_bytes, self._ctx.config.tuning.snapshot_chunk_bytes))
            chunk = ctx.metalog.read_snapshot_chunk(request.snapshot_id, request.position, limit)
            if chunk is None:
                error, size = ErrorCode.SNAPSHOT_NOT_FOUND, 0
            else:
                payload = chunk
        return FetchSnapshotResponse(
            error=error,
            leader_id=leader.leader_id,
            leader_epoch=ctx.epoch,
            snapshot_id=request.snapshot_id,
            size=size,
            position=request.position,
            payload=payload,
        )
