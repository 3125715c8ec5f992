"""Requests that change the voters of a `VoterCluster`, and the answers that they get in time."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from kraftlite.model.ids import NodeId
from kraftlite.model.messages.raft import AddVoterRequest, RemoveVoterRequest, UpdateVoterRequest
from tests.harness.raft_cluster import CLUSTER_ID, SimNode
from tests.harness.raft_requests import send
from tests.harness.raft_voters import VoterCluster, directory_of, endpoints_of


def add(
    node_id: int, *, directory: UUID | None = None, listeners: Any = None, cluster_id: str | None = CLUSTER_ID, wait: bool = True
) -> AddVoterRequest:
    return AddVoterRequest(
        cluster_id=cluster_id,
        voter_id=NodeId(node_id),
        voter_directory_id=directory_of(node_id) if directory is None else directory,
        listeners=endpoints_of(node_id) if listeners is None else listeners,
        ack_when_committed=wait,
    )


def remove(node_id: int, *, directory: UUID | None = None, cluster_id: str | None = CLUSTER_ID) -> RemoveVoterRequest:
    return RemoveVoterRequest(
        cluster_id=cluster_id,
        voter_id=NodeId(node_id),
        voter_directory_id=directory_of(node_id) if directory is None else directory,
    )


def update(
    epoch: int, node_id: int, *, directory: UUID | None = None, listeners: Any = None, versions: tuple[int, int] = (0, 1)
) -> UpdateVoterRequest:
    return UpdateVoterRequest(
        cluster_id=CLUSTER_ID,
        current_leader_epoch=epoch,
        voter_id=NodeId(node_id),
        voter_directory_id=directory_of(node_id) if directory is None else directory,
        listeners=endpoints_of(node_id) if listeners is None else listeners,
        min_kraft_version=versions[0],
        max_kraft_version=versions[1],
    )


ADMINISTRATOR = 99


class Call:
    """A request that an administrator has sent to `node`."""

    def __init__(self, cluster: VoterCluster, node: SimNode, request: Any) -> None:
        self._cluster = cluster
        self._token = send(node, request, source=ADMINISTRATOR)

    @property
    def answer(self) -> Any:
        """The answer; None while there is none."""
        sent = self._cluster.sent
        return next((m.body for m in sent if m.kind == "resp" and m.token == self._token), None)

    def wait(self, limit_ms: int = 10_000) -> Any:
        self._cluster.run(limit_ms, until=lambda: self.answer is not None)
        assert self.answer is not None, f"no answer within {limit_ms} ms"
        return self.answer
