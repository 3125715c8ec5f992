"""Part of invariant 31: a leader that answers a follower's fetch without records has none for it."""

from __future__ import annotations

from typing import ClassVar

from kraftlite.model.errors import ErrorCode
from kraftlite.model.messages.methods import REPLICA_FETCH
from kraftlite.model.messages.replica import ReplicaFetchResponse
from kraftlite.model.topic_partition import TopicIdPartition
from kraftlite.sim.checkers.base import Checker, World
from kraftlite.simhost.host import SimHost
from kraftlite.simhost.network import AnyExchange


class FetchAnswers(Checker):
    """An incremental fetch names only the partitions that have changed (KIP-227), so the leader must know of all others what the
    follower has. An answer without records, to the newest fetch of its session, is a violation when a partition of the session
    has records behind the offset that the follower fetches from, unless the leader knows: what was appended behind the answer is
    for the next fetch.

    A partition that was refused, or whose log diverges, is left alone until the follower names it again. One of which the
    follower knows newer metadata than the leader is left alone until metadata has come, or the leader's patience is over.
    """

    numbers: ClassVar[tuple[int, ...]] = (31,)
    only_methods = (REPLICA_FETCH,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._refused: set[tuple[SimHost, int, int, TopicIdPartition]] = set()
        """By leader, its incarnation, and session."""

    def on_arrival(self, exchange: AnyExchange) -> None:
        if exchange.method is not REPLICA_FETCH:
            return
        node, request = self.world.nodes[exchange.target], exchange.request
        for asked in request.partitions:
            self._refused.discard((node, node.boots, request.session_id, TopicIdPartition(asked.topic_id, asked.partition)))

    def on_served(self, exchange: AnyExchange, response: object) -> None:
        if not isinstance(response, ReplicaFetchResponse):
            return
        node, request, session_id = self.world.nodes[exchange.target], exchange.request, response.session_id
        for told in response.partitions:
            if told.error is not ErrorCode.NONE or told.diverging_epoch is not None:
                self._refused.add((node, node.boots, session_id, TopicIdPartition(told.topic_id, told.partition)))
        if response.payload or node.node is None or node.node.broker is None:
            return
        session = node.node.broker.replicas._service.sessions._sessions.get(session_id)
        if session is None or request.session_epoch == 0 or session.next_epoch != request.session_epoch + 1:
            return
        for key, entry in session.entries.items():
            partition = entry.partition
            if partition is None or partition.log is None or partition.leader is None:
                continue
            if (
                partition.leader_epoch != entry.asked_epoch
                or (node, node.boots, session_id, TopicIdPartition(*key)) in self._refused
            ):
                continue
            if partition.log.leo > entry.fetch_offset and entry not in session.dirty and entry not in session.ahead:
                self.fail(
                    f"node {node.node_id} answers the fetch of replica {request.replica_id} without records, which fetches "
                    f"{partition.tp} from {entry.fetch_offset} and could have it up to {partition.log.leo}"
                )
