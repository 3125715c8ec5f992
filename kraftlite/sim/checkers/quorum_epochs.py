"""The leader of the quorum answers only who is in its epoch (RF-32): a voter that has gone on to a later one, in which its vote
may have elected somebody else, would count for what the former leader commits."""

from __future__ import annotations

from typing import ClassVar

from kraftlite.model.errors import ErrorCode
from kraftlite.model.messages.methods import FETCH_SNAPSHOT, RAFT_FETCH
from kraftlite.model.messages.raft import FetchSnapshotResponse, RaftFetchResponse
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.simhost.network import AnyExchange


class QuorumEpochs(MetadataChecker):
    """A fetch of the metadata log, or of a snapshot of it, that succeeds is of the epoch that its answer says."""

    numbers: ClassVar[tuple[int, ...]] = (9,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        for method in (RAFT_FETCH, FETCH_SNAPSHOT):
            self.facts.watch_served(method, self._on_served)

    def _on_served(self, exchange: AnyExchange, response: RaftFetchResponse | FetchSnapshotResponse) -> None:
        asked = exchange.request.current_leader_epoch
        if response.error is ErrorCode.NONE and response.leader_epoch != asked:
            self.fail(
                f"node {exchange.target}, in epoch {response.leader_epoch}, answers a {exchange.method.name} of node "
                f"{exchange.request.replica_id}, which is in epoch {asked}"
            )
