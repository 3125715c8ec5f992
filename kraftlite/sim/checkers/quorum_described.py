"""DescribeQuorum tells where the replicas of the metadata log are, as their fetches say (RF-57)."""

from __future__ import annotations

from dataclasses import dataclass, field

from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.methods import DESCRIBE_QUORUM, FETCH_SNAPSHOT, RAFT_FETCH
from kraftlite.model.messages.raft import DescribeQuorumResponse, QuorumReplica, RaftFetchResponse
from kraftlite.raft.core import RaftCore
from kraftlite.raft.voters import ReplicaKey
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.simhost.network import AnyExchange


@dataclass(slots=True)
class _Fetched:
    """A fetch that has come to a leader."""

    exchange: AnyExchange
    offset: int
    wall_ms: int


@dataclass(slots=True)
class _Replica:
    """The fetches of a replica in one epoch, from the last one on that was answered with what it had asked for."""

    fetches: list[_Fetched] = field(default_factory=list)
    answered_us: int | None = None


@dataclass(slots=True)
class _Moment:
    """The state of a leader when it is asked."""

    epoch: int
    leo: int
    hw: int
    voters: tuple[NodeId, ...]
    fetches: dict[ReplicaKey, list[_Fetched]]


class QuorumDescribed(MetadataChecker):
    """A leader that is asked tells its voters and its observers, each once; of itself the end of its log, and of each other one
    the offset of its last fetch in this epoch, which nobody else's is, with times at which there were fetches. One that has
    everything has caught up then."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._known: dict[NodeId, tuple[int, dict[ReplicaKey, _Replica]]] = {}
        """The epoch in which a node leads, and who has fetched in it."""
        self._asked: dict[AnyExchange, _Moment] = {}
        self._jumped = False
        """A fetch came while some clock was wrong: times are not compared any more, since it may be put right again."""
        self.judged = 0
        self.facts.watch_arrival(RAFT_FETCH, self._fetches)
        self.facts.watch_arrival(FETCH_SNAPSHOT, self._fetches_snapshot)
        self.facts.watch_served(RAFT_FETCH, self._fetched)
        self.facts.watch_arrival(DESCRIBE_QUORUM, self._ask)
        self.facts.watch_served(DESCRIBE_QUORUM, self._told)

    def _fetches(self, exchange: AnyExchange) -> None:
        request, core = exchange.request, self.facts.views[exchange.target].core
        self._jumped = self._jumped or any(self.world.cluster.wall_offset_ms.values())
        if core is not None and request.current_leader_epoch == core.epoch:
            key = ReplicaKey(request.replica_id, request.replica_directory_id)
            fetched = _Fetched(exchange, request.fetch_offset, self._wall_ms(exchange.target))
            self._of(exchange.target, core.epoch).setdefault(key, _Replica()).fetches.append(fetched)

    def _fetches_snapshot(self, exchange: AnyExchange) -> None:
        """It goes on with what it has begun; its offset is not said."""
        request, core = exchange.request, self.facts.views[exchange.target].core
        if core is not None and request.current_leader_epoch == core.epoch:
            key = ReplicaKey(request.replica_id, request.replica_directory_id)
            self._of(exchange.target, core.epoch).setdefault(key, _Replica())

    def _fetched(self, exchange: AnyExchange, response: RaftFetchResponse) -> None:
        if response.error is not ErrorCode.NONE or response.diverging_epoch is not None or response.snapshot_id is not None:
            return
        request = exchange.request
        key = ReplicaKey(request.replica_id, request.replica_directory_id)
        found = self._of(exchange.target, request.current_leader_epoch).get(key)
        at = -1 if found is None else next((i for i, it in enumerate(found.fetches) if it.exchange is exchange), -1)
        if found is not None and at >= 0:
            del found.fetches[:at]
            found.answered_us = self.world.cluster.loop.now_us()

    def _ask(self, exchange: AnyExchange) -> None:
        core = self.facts.views[exchange.target].core
        if core is not None:
            fetches = {key: list(it.fetches) for key, it in self._of(exchange.target, core.epoch).items()}
            moment = _Moment(core.epoch, core.leo, core.high_watermark or 0, core.voters.ids, fetches)
            self._asked.setdefault(exchange, moment)

    def _told(self, exchange: AnyExchange, response: DescribeQuorumResponse) -> None:
        asked, core = self._asked.pop(exchange, None), self.facts.views[exchange.target].core
        if asked is not None and core is not None and asked.epoch == core.epoch:
            self.judged += 1
            self._judge(exchange.target, core, asked, response)

    def _wall_ms(self, node_id: NodeId) -> int:
        now = self.world.nodes[node_id].now
        assert now is not None, f"node {node_id} answers and does not run"
        return now.clock.wall_ms()

    def _of(self, node_id: NodeId, epoch: int) -> dict[ReplicaKey, _Replica]:
        known = self._known.get(node_id)
        if known is None or known[0] != epoch:
            known = self._known[node_id] = (epoch, {})
        return known[1]

    # --- what is told

    def _judge(self, node_id: NodeId, core: RaftCore, asked: _Moment, told: DescribeQuorumResponse) -> None:
        where = f"node {node_id} describes the quorum in epoch {asked.epoch}"
        if (told.leader_id, told.leader_epoch) != (node_id, asked.epoch):
            self.fail(f"{where} as led by {told.leader_id} in {told.leader_epoch}")
        if told.high_watermark is not None and not asked.hw <= told.high_watermark <= (core.high_watermark or 0):
            self.fail(f"{where} with the high watermark {told.high_watermark}; it was {asked.hw}, and is {core.high_watermark}")
        voters = tuple(it.replica_id for it in told.voters)
        if voters not in (asked.voters, core.voters.ids):
            self.fail(f"{where} with the voters {voters}; they were {asked.voters}, and are {core.voters.ids}")
        keys = [ReplicaKey(it.replica_id, it.directory_id) for it in told.observers]
        known = self._of(node_id, asked.epoch)
        for it in told.voters:
            self._judge_replica(where, core, asked, it, node_id, is_voter=True)
        for key, it in zip(keys, told.observers, strict=True):
            if keys.count(key) > 1 or (it.replica_id != node_id and key not in known):
                self.fail(f"{where} with the observer {it.replica_id}, {'twice' if key in known else 'which has not fetched'}")
            self._judge_replica(where, core, asked, it, node_id, is_voter=False)
        recently_us = self.world.cluster.loop.now_us() - core.config.tuning.raft_observer_expiry_ms * 500
        for key, replica in known.items():
            fetches = replica.answered_us is not None and replica.answered_us > recently_us and key in asked.fetches
            if fetches and key.id not in voters and key not in keys:
                self.fail(f"{where} without {key.id}, which fetches")

    def _judge_replica(
        self, where: str, core: RaftCore, asked: _Moment, it: QuorumReplica, node_id: NodeId, *, is_voter: bool
    ) -> None:
        end, fetched_ms, caught_up_ms = it.log_end_offset, it.last_fetch_timestamp_ms, it.last_caught_up_timestamp_ms
        if it.replica_id == node_id and (is_voter or it.directory_id == core.config.key.directory_id):
            if end is None or not asked.leo <= end <= core.leo:
                self.fail(f"{where} with the end {end} of its own log, which was {asked.leo} and is {core.leo}")
            return
        known = self._of(node_id, asked.epoch)
        mine = [key for key in known if key.id == it.replica_id and it.directory_id in (None, key.directory_id)]
        some = [fetch for key in mine for fetch in (*asked.fetches.get(key, ()), *known[key].fetches)]
        settled = is_voter and core.kraft_version == 0 and any(known[key].answered_us is not None for key in mine)
        settled = settled and all(key in asked.fetches for key in mine)
        if end not in ({fetch.offset for fetch in some} if settled else {None, *(fetch.offset for fetch in some)}):
            self.fail(f"{where} with {it.replica_id} at {end}; it has fetched from {sorted({fetch.offset for fetch in some})}")
        if caught_up_ms is not None and (fetched_ms is None or caught_up_ms > fetched_ms):
            self.fail(f"{where} with {it.replica_id} caught up at {caught_up_ms} ms, and its last fetch at {fetched_ms} ms")
        if end is None or self._jumped or any(self.world.cluster.wall_offset_ms.values()):
            return
        first_ms = min(fetch.wall_ms for fetch in some if fetch.offset == end)
        if fetched_ms is None or not first_ms <= fetched_ms <= self._wall_ms(node_id):
            self.fail(f"{where} with a last fetch of {it.replica_id} at {fetched_ms} ms; that from {end} came at {first_ms} ms")
        if end >= core.leo and (caught_up_ms is None or caught_up_ms < first_ms):
            self.fail(f"{where} with {it.replica_id} caught up at {caught_up_ms} ms; a fetch from the end came at {first_ms} ms")
