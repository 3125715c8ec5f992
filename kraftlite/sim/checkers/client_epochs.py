"""A client's fetch that names a leader epoch is answered only in that epoch (KIP-320, RP-34)."""

from __future__ import annotations

from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.method import AnyMethod
from kraftlite.replication.api import FetchResult
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.replica_facts import ReplicaChecker
from kraftlite.sim.service import FETCH, FetchAsk


class ClientEpochs(ReplicaChecker):
    """Not by a broker that was already in a newer one when the fetch was sent, and not by one that is still in an older one when
    the answer arrives."""

    only_methods = (FETCH,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._sent: dict[NodeId, tuple[FetchAsk, int, int | None]] = {}
        """The one fetch that each client has under way: what it asked, the boots of the broker, the leader epoch it was in."""

    def on_call(self, source: NodeId, target: NodeId, method: AnyMethod, request: object) -> None:
        if method is FETCH:
            assert isinstance(request, FetchAsk)
            view = self.facts.view(target, request.tp)
            epoch = None if view is None else view.partition.leader_epoch
            self._sent[source] = (request, self.world.nodes[target].boots, epoch)

    def on_answer(self, source: NodeId, target: NodeId, method: AnyMethod, request: object, response: object) -> None:
        if method is not FETCH:
            return
        assert isinstance(request, FetchAsk) and isinstance(response, FetchResult)
        if request.leader_epoch is None:
            return
        sent, boots, before = self._sent[source]
        if sent is not request or boots != self.world.nodes[target].boots or response.error != ErrorCode.NONE:
            return
        view = self.facts.view(target, request.tp)
        asked, now = request.leader_epoch, None if view is None else view.partition.leader_epoch
        what = f"client {source} fetched {request.tp} at node {target} in leader epoch {asked} and was answered"
        if before is not None and before > asked:
            self.fail(f"{what}, but that node was in epoch {before} already")
        if now is not None and now < asked:
            self.fail(f"{what}, but that node is still in epoch {now}")
