"""What no node of a quorum says: requests of strangers, and answers with fields that cannot be. Drawn from a seed.

A peer that tells credible lies (a vote it was not given, records that it does not have) is not among them: against it only
authentication helps.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any, Final

from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import Endpoint, NodeId
from kraftlite.model.messages.bounds import OutOfRange, checker
from kraftlite.model.messages.methods import RAFT_FETCH, VOTE
from kraftlite.model.messages.raft import (
    FetchSnapshotResponse,
    OffsetAndEpoch,
    RaftFetchRequest,
    RaftFetchResponse,
)
from tests.harness.raft_cluster import CLUSTER_ID, Message, RaftCluster, SimNode
from tests.harness.raft_requests import begin, end, fetch, fetch_snapshot, vote

EPOCHS: Final = (-1, 0, 1, 3, 2**20, 2**30, 2**30 + 2**16 + 1, 2**31 - 1 - 2**16, 2**31 - 1, 2**40)
OFFSETS: Final = (-(2**63), -1, 0, 1, 5, 100, 2**31, 2**62, 2**63 - 1)
ERRORS: Final = tuple(it for it in ErrorCode if it not in (ErrorCode.NONE, ErrorCode.INCONSISTENT_CLUSTER_ID))
"""An observer whose first answer is that it is of another cluster stops, and is meant to."""
STRANGERS: Final = (-1, 77, 2**31 - 1, 2**40)


class Hostility:
    """Sends to the nodes of a cluster, past its network. `sent` and `refused_at_the_edge` count."""

    def __init__(self, cluster: RaftCluster, rng: random.Random) -> None:
        self._cluster = cluster
        self._rng = rng
        self.sent = 0
        self.refused_at_the_edge = 0

    def act(self) -> None:
        if self._rng.random() < 0.5:
            self._ask(self._rng.choice(list(self._cluster.nodes.values())))
        else:
            self._spoil()

    def _ask(self, node: SimNode) -> None:
        request = self._request(node)
        self.sent += 1
        if not _passes(request):
            self.refused_at_the_edge += 1
        elif node.alive:
            node.receive(
                Message(NodeId(self._rng.choice(self._cluster.voter_ids)), node.id, "req", VOTE, -self.sent, request, -1)
            )

    def _request(self, node: SimNode) -> Any:
        rng = self._rng
        epoch = rng.choice((*EPOCHS, node.core.epoch if node.alive else 1))
        cluster_id = rng.choice((CLUSTER_ID, CLUSTER_ID, CLUSTER_ID, None, "", "other"))
        stranger, offset, directory = rng.choice(STRANGERS), rng.choice(OFFSETS), None
        kind = rng.randrange(6)
        if kind < 3 and node.id not in self._cluster.voter_ids:
            epoch = 2**31 - 1  # see `_spoilt`
        if kind == 0:
            candidate = rng.choice((stranger, *self._cluster.voter_ids))
            last = (rng.choice(EPOCHS), offset)
            return vote(epoch, candidate=candidate, last=last, to=node.id, pre_vote=rng.random() < 0.3, cluster_id=cluster_id)
        if kind == 1:
            leader = rng.choice((stranger, node.id))  # a voter that does not lead would be a credible lie
            return replace(begin(epoch, leader, to=node.id, endpoint=Endpoint("evil", 9666)), cluster_id=cluster_id)
        if kind == 2:
            return replace(end(epoch, rng.choice((stranger, node.id)), tuple(STRANGERS) * 50), cluster_id=cluster_id)
        if kind in (3, 4):
            asked = fetch(epoch, offset, rng.choice(EPOCHS), replica=stranger, max_wait_ms=rng.choice((-1, 0, 500, 2**40)))
            return replace(asked, cluster_id=cluster_id, replica_directory_id=directory, max_bytes=rng.choice(OFFSETS))
        snapshot_id = OffsetAndEpoch(epoch=rng.choice(EPOCHS), offset=offset)
        return fetch_snapshot(epoch, snapshot_id, rng.choice(OFFSETS), replica=stranger, max_bytes=rng.choice(OFFSETS))

    def _spoil(self) -> None:
        """An answer on its way says something else."""
        rng, network = self._rng, self._cluster.network
        answers = [message for message in network if message.kind == "resp"]
        if not answers:
            return
        message = rng.choice(answers)
        network.remove(message)
        body = self._spoilt(message)
        self.sent += 1
        kind = "resp" if _passes(body) else "fail"
        self.refused_at_the_edge += kind == "fail"
        self._cluster.nodes[message.target].receive(
            Message(message.source, message.target, kind, message.method, message.token, body, message.incarnation)
        )

    def _spoilt(self, message: Message) -> Any:
        rng, body = self._rng, message.body
        kind = rng.randrange(4)
        # A voter raises the quorum to an epoch that it was told of. An observer cannot: for it that would be a credible lie.
        epochs = EPOCHS if message.target in self._cluster.voter_ids else (-1, 2**31 - 1, 2**40)
        if kind == 0:
            return replace(body, leader_epoch=rng.choice(epochs), leader_id=rng.choice((None, *map(NodeId, STRANGERS))))
        if kind == 1:
            return replace(body, error=rng.choice(ERRORS))
        if isinstance(body, RaftFetchResponse) and message.method is RAFT_FETCH:
            return self._spoilt_fetch(message.target, body)
        if isinstance(body, FetchSnapshotResponse):
            size, position = rng.choice(OFFSETS), rng.choice((body.position, rng.choice(OFFSETS)))
            return replace(body, size=size, position=position, payload=rng.randbytes(rng.choice((0, 10, 5_000))))
        return replace(body, leader_epoch=rng.choice(epochs), leader_id=NodeId(rng.choice(STRANGERS)))

    def _spoilt_fetch(self, target: NodeId, body: RaftFetchResponse) -> RaftFetchResponse:
        rng, node = self._rng, self._cluster.nodes[target]
        if not node.alive or rng.random() < 0.4:
            return replace(body, payload=_damaged(body.payload, rng))
        end_ = node.core.metalog.end
        if rng.random() < 0.5:
            beyond = OffsetAndEpoch(epoch=end_.epoch + rng.choice((0, 1, 2**20)), offset=end_.offset + rng.choice((0, 1, 2**40)))
            return replace(body, error=ErrorCode.NONE, diverging_epoch=beyond, snapshot_id=None, payload=b"")
        snapshot_id = OffsetAndEpoch(epoch=rng.choice(EPOCHS), offset=rng.choice(OFFSETS))
        return replace(body, error=ErrorCode.NONE, diverging_epoch=None, snapshot_id=snapshot_id, payload=b"")


def _damaged(payload: bytes, rng: random.Random) -> bytes:
    if not payload or rng.random() < 0.3:
        return rng.randbytes(rng.randint(1, 300))
    changed = bytearray(payload)
    for _ in range(rng.randint(1, 8)):
        # Not the leader epoch, which no CRC covers: that a batch is of an earlier epoch of its leader is credible.
        at = rng.randrange(len(changed))
        if not 12 <= at < 16:
            changed[at] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _passes(message: Any) -> bool:
    """Whether it is within the bounds that `rpc/codec` checks; of what a stranger fetches, whether it is what a replica would."""
    check = checker(type(message))
    try:
        if check is not None:
            check(message)
    except OutOfRange:
        return False
    return not isinstance(message, RaftFetchRequest) or message.replica_id >= 0
