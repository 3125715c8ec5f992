"""Part of invariant 31: what a fetch session leaves out, both of its ends know (KIP-227)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from kraftlite.model.ids import NodeId
from kraftlite.model.messages.methods import REPLICA_FETCH
from kraftlite.model.messages.replica import ReplicaFetchRequest, ReplicaFetchResponse
from kraftlite.model.topic_partition import TopicIdPartition
from kraftlite.replication.fetcher_core import FetcherCore, Followed
from kraftlite.replication.follower_progress import FollowerProgress
from kraftlite.replication.sessions import FollowerSession, SessionEntry
from kraftlite.sim.checkers.base import Checker, World
from kraftlite.simhost.host import SimHost
from kraftlite.simhost.network import AnyExchange


class SessionsAgree(Checker):
    """A fetch that does not name a partition says that its follower is where it was, and an answer that does not, that its leader
    is. So when the newest fetch of a session is answered, which is the only one that is under way, then of each partition
    that neither of them names and about which neither has anything to say: the leader knows the follower to be where it is, in
    the incarnation that fetches; and the follower has the leader's HW, as far as its own log goes, and begins no earlier than
    the leader does, as far as its own HW goes.

    A leader to which a follower has spoken in one incarnation does not go by one before that: what such a one had may be lost.
    """

    numbers: ClassVar[tuple[int, ...]] = (31,)
    only_methods = (REPLICA_FETCH,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._incarnations: dict[tuple[NodeId, NodeId, TopicIdPartition], tuple[FollowerProgress, int]] = {}
        """(leader, follower, partition) → the newest incarnation that the leader went by, in one of its terms."""
        self.judged = 0

    def on_served(self, exchange: AnyExchange, response: object) -> None:
        if not isinstance(response, ReplicaFetchResponse):
            return
        node, request = self.world.nodes[exchange.target], exchange.request
        session = _session(node, response.session_id)
        if session is None:
            return
        if request.partitions:
            self._check_incarnation(node.node_id, request, session)
        if request.session_epoch == 0 or session.next_epoch != request.session_epoch + 1:
            return
        core = _fetcher(self.world.nodes.get(request.replica_id), node.node_id, request)
        if core is None:
            return
        told = {(it.topic_id, it.partition) for it in response.partitions}
        for followed, entry in _settled(core, session):
            if entry.key not in told:
                self.judged += 1
                self._check(request.replica_id, node.node_id, followed, entry)

    def _check_incarnation(self, leader_id: NodeId, request: ReplicaFetchRequest, session: FollowerSession) -> None:
        for asked in request.partitions:
            entry = session.entries.get((asked.topic_id, asked.partition))
            progress = None if entry is None else _progress(entry)
            if progress is None or progress.replica_epoch is None:
                continue
            key = (leader_id, request.replica_id, TopicIdPartition(asked.topic_id, asked.partition))
            known = self._incarnations.get(key)
            newest = known[1] if known is not None and known[0] is progress else -1
            if progress.replica_epoch < newest:
                self.fail(
                    f"node {leader_id} goes by a fetch of node {request.replica_id} in broker epoch {progress.replica_epoch}, at "
                    f"{progress.leo} of {asked}; it had heard of that node in broker epoch {newest} before"
                )
            self._incarnations[key] = progress, progress.replica_epoch

    def _check(self, follower_id: NodeId, leader_id: NodeId, followed: Followed, entry: SessionEntry) -> None:
        progress, ours = _progress(entry), followed.partition.log
        theirs = None if entry.partition is None else entry.partition.log
        if progress is None or ours is None or theirs is None:
            return
        what = f"node {leader_id} answers a fetch of node {follower_id} and has nothing to say of {followed.partition.tp}"
        if (ours.leo, progress.leo) != (entry.fetch_offset, entry.fetch_offset):
            self.fail(
                f"{what}: the replica ends at {ours.leo}, its session says {entry.fetch_offset}, and the leader goes by "
                f"{progress.leo}"
            )
        if progress.replica_epoch != entry.session.replica_epoch:
            self.fail(
                f"{what}: it fetches in broker epoch {entry.session.replica_epoch}, the leader has {progress.replica_epoch}"
            )
        if ours.hw < min(theirs.hw, ours.leo):
            self.fail(f"{what}: the replica has the HW {ours.hw} and ends at {ours.leo}, the leader's HW is {theirs.hw}")
        if ours.log_start_offset < min(theirs.log_start_offset, ours.hw):
            self.fail(
                f"{what}: the replica begins at {ours.log_start_offset}, its HW is {ours.hw}, and the leader begins at "
                f"{theirs.log_start_offset}"
            )


def _session(node: SimHost, session_id: int) -> FollowerSession | None:
    broker = None if node.node is None else node.node.broker
    return None if broker is None else broker.replicas._service.sessions._sessions.get(session_id)


def _fetcher(node: SimHost | None, leader_id: NodeId, request: ReplicaFetchRequest) -> FetcherCore | None:
    """The fetcher that has sent this request, if it has sent nothing else of which it has not the answer."""
    broker = None if node is None or node.node is None else node.node.broker
    for (leader, _), (driver, _task) in () if broker is None else broker.replicas._fetchers._drivers.items():
        core = driver.core
        if leader == leader_id and core._session_id == request.session_id:
            alone = len(driver._calls) == 1 and core._session_epoch == request.session_epoch + 1
            return core if alone else None
    return None


def _settled(core: FetcherCore, session: FollowerSession) -> Iterator[tuple[Followed, SessionEntry]]:
    """The partitions of which neither end has anything to say."""
    for key in core._in_session:
        followed, entry = core._followed.get(key), session.entries.get(key)
        if followed is None or followed.paused_until_ms is not None or key in core._changed or not followed.current:
            continue
        if entry is None or entry in session.dirty or entry in session.doubted or entry in session.ahead:
            continue
        if entry.asked_epoch == followed.leader_epoch:
            yield followed, entry


def _progress(entry: SessionEntry) -> FollowerProgress | None:
    """The leader's knowledge of the follower, if it leads in the epoch in which the follower asks."""
    partition = entry.partition
    leader = None if partition is None else partition.leader
    if leader is None or leader.leader_epoch != entry.asked_epoch:
        return None
    return leader.followers.get(entry.session.replica_id)
