"""Invariant 31: a follower fetches from its leader, in its leader epoch, once; a leader from nobody."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import ClassVar, Final

from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.methods import REPLICA_FETCH
from kraftlite.model.messages.replica import ReplicaFetchRequest, ReplicaFetchResponse, ReplicaFetchResult
from kraftlite.model.method import AnyMethod
from kraftlite.model.topic_partition import TopicIdPartition
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.replica_facts import ReplicaChecker
from kraftlite.sim.checkers.replica_views import ReplicaView, Stamp

_REMEMBERED: Final = 8
"""Fetches between two nodes of which the answers are checked: two are under way at most, but not all are answered."""


@dataclass(frozen=True, slots=True)
class _Sent:
    request: ReplicaFetchRequest
    boots: int
    """The number of boots of the node that it goes to."""
    epochs: dict[TopicIdPartition, int]
    """The leader epochs that this node was in then."""


class FetcherValidity(ReplicaChecker):
    """A replica that follows is in exactly one fetcher, that of its leader and leader epoch; one that leads is in none.

    A fetch is answered only by the leader of the epoch that it names (RP-34): not by one that was already in another when the
    fetch was sent, and not by one that is still in an older one when the answer arrives.
    """

    numbers: ClassVar[tuple[int, ...]] = (31,)
    only_methods = (REPLICA_FETCH,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._sent: dict[tuple[NodeId, NodeId], deque[_Sent]] = {}

    def on_replica(self, view: ReplicaView, was: Stamp | None) -> None:
        if was is not None and (view.leader, view.leader_epoch, view.hw >= 0) == (was.leader, was.leader_epoch, was.hw >= 0):
            return
        node, partition = view.here.node, view.partition
        if node._stopping or node.broker is None:
            return
        expected = None
        if view.log is not None and view.leader is None and partition.leader_id != view.node_id:
            expected = partition.leader_id
        fetchers = node.broker.replicas._fetchers
        found = [
            (core.leader_id, followed.leader_epoch)
            for core in (driver.core for driver, _ in fetchers._drivers.values())
            for followed in (core._followed.get((view.key.topic_id, view.key.partition)),)
            if followed is not None
        ]
        wanted = [] if expected is None else [(expected, view.leader_epoch)]
        if found != wanted or fetchers.leader_of(view.tp) != expected:
            self.fail(
                f"{view.text} is fetched from {fetchers.leader_of(view.tp)} by the fetchers (leader, leader epoch) {found}, "
                f"should be by {wanted}"
            )

    def on_call(self, source: NodeId, target: NodeId, method: AnyMethod, request: object) -> None:
        if method is not REPLICA_FETCH:
            return
        assert isinstance(request, ReplicaFetchRequest)
        node = self.world.nodes.get(target)
        if node is None or not request.partitions:
            return
        epochs = {}
        for asked in request.partitions:
            key = TopicIdPartition(asked.topic_id, asked.partition)
            view = self.facts.views.get(key, {}).get(target)
            if view is not None:
                epochs[key] = view.partition.leader_epoch
        sent = self._sent.get((source, target))
        if sent is None:
            sent = self._sent[(source, target)] = deque(maxlen=_REMEMBERED)
        sent.append(_Sent(request, node.boots, epochs))

    def on_answer(self, source: NodeId, target: NodeId, method: AnyMethod, request: object, response: object) -> None:
        if method is not REPLICA_FETCH:
            return
        assert isinstance(response, ReplicaFetchResponse)
        node = self.world.nodes.get(target)
        sent = next((it for it in self._sent.get((source, target), ()) if it.request is request), None)
        if sent is None or node is None or node.boots != sent.boots or response.error is not ErrorCode.NONE:
            return
        asked = {TopicIdPartition(it.topic_id, it.partition): it.current_leader_epoch for it in sent.request.partitions}
        for result in response.partitions:
            key = TopicIdPartition(result.topic_id, result.partition)
            if result.error is ErrorCode.NONE and key in asked:
                self._check_answer(source, target, key, asked[key], sent.epochs.get(key), result)

    def _check_answer(
        self,
        source: NodeId,
        target: NodeId,
        key: TopicIdPartition,
        asked: int,
        before: int | None,
        result: ReplicaFetchResult,
    ) -> None:
        view = self.facts.views.get(key, {}).get(target)
        if view is None:
            return
        now = view.partition.leader_epoch
        what = f"node {source} asked node {target} for {view.tp} in leader epoch {asked} and was answered ({result})"
        if before is not None and before > asked:
            self.fail(f"{what}, but that node was in epoch {before} already")
        if now < asked:
            self.fail(f"{what}, but that node is still in epoch {now}")
        if now == asked and view.partition.leader is None and not view.here.node._stopping:  # one that stops leads nothing more
            self.fail(f"{what}, but that node does not lead in it")
