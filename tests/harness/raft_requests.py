"""Requests made by hand, to ask one node of a `RaftCluster` what no peer would ask just then."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from kraftlite.model.ids import Endpoint, NodeId
from kraftlite.model.messages.methods import VOTE
from kraftlite.model.messages.raft import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchSnapshotRequest,
    OffsetAndEpoch,
    RaftFetchRequest,
    VoteRequest,
)
from tests.harness.raft_cluster import CLUSTER_ID, Message, SimNode

_tokens = iter(range(1_000_000, 2_000_000))


def send(node: SimNode, request: Any, source: int = 2) -> int:
    """Hand the request over; returns the token under which `answer` finds the response."""
    token = next(_tokens)
    node.receive(Message(NodeId(source), node.id, "req", VOTE, token, request, -1))
    return token


def answer(node: SimNode, token: int) -> Any:
    """The response that was sent, taken off the network; None while there is none."""
    for message in node.cluster.network:
        if message.kind == "resp" and message.token == token and message.source == node.id:
            node.cluster.network.remove(message)
            return message.body
    return None


def ask(node: SimNode, request: Any, source: int = 2) -> Any:
    return answer(node, send(node, request, source))


def vote(
    epoch: int,
    *,
    candidate: int = 2,
    last: tuple[int, int] = (0, 0),
    to: int = 1,
    pre_vote: bool = False,
    cluster_id: str | None = CLUSTER_ID,
    directory: UUID | None = None,
    voter_directory: UUID | None = None,
) -> VoteRequest:
    """`last` is (last epoch, end offset) of the candidate's log."""
    return VoteRequest(
        cluster_id=cluster_id,
        voter_id=NodeId(to),
        voter_directory_id=voter_directory,
        candidate_id=NodeId(candidate),
        candidate_directory_id=directory,
        candidate_epoch=epoch,
        last_epoch=last[0],
        last_epoch_end_offset=last[1],
        pre_vote=pre_vote,
    )


def begin(epoch: int, leader: int, *, to: int = 1, endpoint: Endpoint | None = None) -> BeginQuorumEpochRequest:
    return BeginQuorumEpochRequest(
        cluster_id=CLUSTER_ID,
        voter_id=NodeId(to),
        voter_directory_id=None,
        leader_id=NodeId(leader),
        leader_epoch=epoch,
        leader_endpoint=endpoint,
    )


def end(epoch: int, leader: int, successors: tuple[int, ...] = ()) -> EndQuorumEpochRequest:
    return EndQuorumEpochRequest(
        cluster_id=CLUSTER_ID,
        leader_id=NodeId(leader),
        leader_epoch=epoch,
        preferred_successors=tuple(NodeId(i) for i in successors),
    )


def fetch(
    epoch: int, offset: int, last_epoch: int, *, replica: int = 2, max_wait_ms: int = 0, cluster_id: str | None = CLUSTER_ID
) -> RaftFetchRequest:
    return RaftFetchRequest(
        cluster_id=cluster_id,
        replica_id=NodeId(replica),
        replica_directory_id=None,
        current_leader_epoch=epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch,
        max_wait_ms=max_wait_ms,
        max_bytes=1 << 20,
    )


def fetch_snapshot(
    epoch: int, snapshot_id: OffsetAndEpoch, position: int = 0, *, replica: int = 2, max_bytes: int = 1 << 20
) -> FetchSnapshotRequest:
    return FetchSnapshotRequest(
        cluster_id=CLUSTER_ID,
        replica_id=NodeId(replica),
        replica_directory_id=None,
        current_leader_epoch=epoch,
        snapshot_id=snapshot_id,
        position=position,
        max_bytes=max_bytes,
    )
