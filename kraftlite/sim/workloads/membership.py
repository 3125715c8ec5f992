"""A simulated administrator of the metadata quorum: adds, removes and replaces voters, and makes a configured quorum changeable.

It looks at the quorum as `kafka-metadata-quorum describe` does, and at the files of the controllers that it adds. It has a random
stream of its own. Faults may tell it what to do at a given moment (`add-voter`, `remove-voter`, `upgrade-voters`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, Final
from uuid import UUID

from kraftlite.metadata.features import KRAFT_VERSION
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import NodeId, VoterEndpoint, random_uuid
from kraftlite.model.messages.controller import FeatureUpdate, UpdateFeaturesRequest
from kraftlite.model.messages.raft import AddVoterRequest, DescribeQuorumResponse, RemoveVoterRequest
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.node.forming import controller_endpoints
from kraftlite.runtime.ports import TransportError
from kraftlite.sim.client import SimClient
from kraftlite.sim.history import History
from kraftlite.sim.service import ADMIN, AdminAsk
from kraftlite.sim.services.membership import QUORUM, VOTERS, QuorumAsk, VotersAsk

if TYPE_CHECKING:
    from kraftlite.sim.cluster import SimCluster

NUMBER: Final = 87
TIMEOUT_MS: Final = 5_000
GAPS_US: Final = (200_000, 600_000, 1_500_000)
"""The mean times between two changes, one of which a seed takes."""
LATE_US: Final = 4_000_000
"""A removal whose answer was lost may still come to the leader for so long."""
ADD: Final = "add-voter"
REMOVE: Final = "remove-voter"
UPGRADE: Final = "upgrade-voters"
Voters = dict[NodeId, UUID | None]


def visit(
    cluster: SimCluster, history: History, partitions: Sequence[TopicPartition]
) -> Iterator[tuple[SimClient, Coroutine[None, None, None]]]:
    it = QuorumAdmin(cluster, NUMBER, "voters", history)
    yield it, it.run(it.rng.choice(GAPS_US))


class QuorumAdmin(SimClient):
    """One change after the other, at times two at once; what timed out is asked for again at once, or never."""

    def __init__(self, cluster: SimCluster, number: int, name: str, history: History) -> None:
        super().__init__(cluster, number, name, history)
        self._orders: dict[asyncio.Task[None], None] = {}
        cluster.quorum.carry_out = self.order

    async def run(self, mean_gap_us: int) -> None:
        while not self.stopping:
            await self.pause(self.rng.randint(1, 2 * mean_gap_us))
            found = await self._describe()
            if found is not None and not self.stopping:
                await self._draw(found)
        while self._orders:
            await asyncio.wait(list(self._orders))

    # --- what

    async def _draw(self, found: DescribeQuorumResponse) -> None:
        rng = self.rng
        voters = _voters(found)
        lost = [it for it, directory in voters.items() if directory not in (None, self.cluster.directory_id(it))]
        forming = self.cluster.quorum.forming
        helpless = [it for it in lost if forming is None or it not in forming.joins]
        spares = [node.node_id for node in self.cluster.controllers if node.node_id not in voters]
        what = rng.randrange(16)
        if self._is_static() and what < 12:
            await self.upgrade()
        elif helpless and what < 10:
            gone = rng.choice(helpless)
            await self.remove(gone, voters[gone])
        elif spares and what < (11 if len(voters) < 3 else 7):
            await self.add(rng.choice(spares))
        elif what < 13 and not lost and not self._some_voter_is_lost() and len(voters) > rng.choice((1, 2, 2, 3)):
            gone = found.leader_id if rng.randrange(5) < 2 and found.leader_id in voters else rng.choice(list(voters))
            if gone == found.leader_id and self.cluster.quorum.leader_stays:
                return
            if spares and rng.randrange(4) == 0:
                await asyncio.gather(self.add(rng.choice(spares)), self.remove(gone, voters[gone]))
            else:
                await self.remove(gone, voters[gone])
        else:
            await self._err(voters)

    async def _err(self, voters: Voters) -> None:
        """Ask for what must be refused: each replica is there already, or not with this directory."""
        rng = self.rng
        node_id = rng.choice([node.node_id for node in self.cluster.controllers])
        if node_id in voters and rng.randrange(2):
            await self.add(node_id)
        elif rng.randrange(2):
            await self.remove(node_id, random_uuid(rng))
        else:
            await self._change(ADD, self._addition(node_id, random_uuid(rng)))

    def _is_static(self) -> bool:
        """Return whether some broker knows no voters but the configured ones yet."""
        return any(node.node is not None and node.node.raft.kraft_version() == 0 for node in self.cluster.brokers)

    # --- how

    def order(self, kind: str, node_id: NodeId | None) -> None:
        """Do this now, whatever else is under way. A replica is removed with the directory that it has."""
        if self.stopping:
            return
        task = asyncio.get_running_loop().create_task(self._carry_out(kind, node_id), context=self.cluster.outside)
        self._orders[task] = None
        task.add_done_callback(lambda it: self._orders.pop(it, None))

    async def _carry_out(self, kind: str, node_id: NodeId | None) -> None:
        if kind == UPGRADE:
            await self.upgrade()
        elif node_id is not None and kind == ADD:
            await self.add(node_id)
        elif node_id is not None and not self._some_voter_is_lost():
            await self.remove(node_id, self.cluster.directory_id(node_id))

    def _some_voter_is_lost(self) -> bool:
        """Return whether some controller knows of a voter with another directory or port than that node has: a majority must be
        left."""
        cores = [it.node.raft.core for it in self.cluster.controllers if it.node is not None and it.started]
        voters = [voter for core in cores for voter in core.voters.voters]
        quorum = self.cluster.quorum
        return any(
            it.directory_id not in (None, self.cluster.directory_id(it.id)) or it.endpoint.port != quorum.port(it.id)
            for it in voters
        )

    async def add(self, node_id: NodeId) -> None:
        request = self._addition(node_id, self.cluster.directory_id(node_id))
        if await self._change(ADD, request) is None and self.rng.randrange(2):
            await self._change(ADD, request)

    async def remove(self, node_id: NodeId, directory_id: UUID | None) -> None:
        request = RemoveVoterRequest(cluster_id=None, voter_id=node_id, voter_directory_id=directory_id)
        quorum = self.cluster.quorum
        quorum.removals += 1
        try:
            answered = await self._change(REMOVE, request)
            if answered is None and self.rng.randrange(2):
                answered = await self._change(REMOVE, request)
        finally:
            quorum.removals -= 1
        if answered is None:
            quorum.removals_until_us = self.now_us() + LATE_US

    def _addition(self, node_id: NodeId, directory_id: UUID) -> AddVoterRequest:
        listeners: tuple[VoterEndpoint, ...] = controller_endpoints(self.cluster.nodes[node_id].config)
        return AddVoterRequest(
            cluster_id=None,
            voter_id=node_id,
            voter_directory_id=directory_id,
            listeners=listeners,
            ack_when_committed=self.rng.randrange(4) > 0,
        )

    async def _change(self, kind: str, request: AddVoterRequest | RemoveVoterRequest) -> ErrorCode | None:
        """Return the answer; None when it is not known what came of it."""
        try:
            answer = await self.call(self._broker(), VOTERS, VotersAsk(kind, request), TIMEOUT_MS)
        except TransportError:
            return None
        except ApiError as error:
            return None if error.code is ErrorCode.REQUEST_TIMED_OUT else error.code
        unknown = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return None if answer.error in unknown else answer.error

    async def upgrade(self) -> None:
        """Make the quorum of configured voters one that can be changed (DQ-40)."""
        update = FeatureUpdate(name=KRAFT_VERSION, level=1, upgrade_type=1)
        request = UpdateFeaturesRequest(updates=(update,), validate_only=self.rng.randrange(8) == 0, timeout_ms=TIMEOUT_MS)
        try:
            await self.call(self._broker(), ADMIN, AdminAsk("update_features", request), TIMEOUT_MS)
        except (TransportError, ApiError):
            await self.backoff()

    async def _describe(self) -> DescribeQuorumResponse | None:
        try:
            return await self.call(self._broker(), QUORUM, QuorumAsk(), TIMEOUT_MS)
        except (TransportError, ApiError):
            return None

    def _broker(self) -> NodeId:
        return self.rng.choice([node.node_id for node in self.cluster.brokers])


def _voters(found: DescribeQuorumResponse) -> Voters:
    return {it.replica_id: it.directory_id for it in found.voters}
