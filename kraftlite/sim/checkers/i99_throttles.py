"""Invariant 99: replicas that are not in sync get what their throttles allow, and nobody else is held back (QU-10)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Final, NamedTuple, TypeAlias
from uuid import UUID

from kraftlite.broker.server import BrokerServer
from kraftlite.metadata import records as r
from kraftlite.metadata.image import MetadataImage
from kraftlite.metadata.registrations import PartitionRegistration
from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.methods import REPLICA_FETCH
from kraftlite.model.messages.replica import ReplicaFetchRequest, ReplicaFetchResponse
from kraftlite.model.method import AnyMethod
from kraftlite.replication.partition import Partition
from kraftlite.runtime.trace.partition import FetchPaused
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.sim.checkers.model import MetadataState
from kraftlite.sim.checkers.throttle_rates import FOLLOWER, LEADER, MARGIN_MS, Counted, Tally, Throttle, throttle_of
from kraftlite.sim.checkers.views import Entry, NodeView
from kraftlite.simhost.network import AnyExchange

_SAMPLES: Final = "replication.quota.window.num"
_BACKOFF: Final = "replica.fetch.backoff.ms"
_WINDOW: Final = "replication.quota.window.size.seconds"

Key: TypeAlias = tuple[UUID, int]
"""A partition by the id of its topic."""


@dataclass(eq=False)
class _Side:
    """One side of one incarnation. `version` grows with each change of what is in force; odd states between two are None."""

    tally: Tally
    throttle: Throttle | None = None
    version: int = 0
    since_ms: int = 0
    """The node's time at which it was seen to be so."""


class _Arrived(NamedTuple):
    """The state of a leader when a fetch came to it: by partition, its LEO and its partition epoch."""

    version: int
    partitions: dict[Key, tuple[int, int]]


@dataclass(eq=False)
class _Told:
    """The last two high watermarks that one leader told a follower of one partition, in one leader epoch."""

    leader_epoch: int
    hws: list[int] = field(default_factory=list)


class ThrottlesKept(MetadataChecker):
    """Nothing is looked at before the first throttle is set.

    A leader that answers a replica outside of the ISR with records of a listed partition was not over its rate; one that answers
    without records, and has some, may keep them back: the partition is listed, there is a rate, the leader may be over it, and
    the replica is not in the ISR. A follower that is over its rate names no listed partition of which it lacks what is committed;
    and what it leaves out without an error is listed, behind, and it may be over its rate. When all is well, replicas that were
    throttled come into the ISR.
    """

    numbers: ClassVar[tuple[int, ...]] = (99,)
    only_methods = (REPLICA_FETCH,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._topics: dict[str, None] = {}
        """Those that have, or had, lists."""
        self._active = False
        self._sides: dict[tuple[tuple[NodeId, int], str], _Side] = {}
        self._arrived: dict[AnyExchange, _Arrived] = {}
        self._refused: set[tuple[tuple[NodeId, int], int, Key]] = set()
        self._told: dict[tuple[tuple[NodeId, int], NodeId, Key], _Told] = {}
        self._unsure: dict[tuple[tuple[NodeId, int], Key], tuple[int, Counted]] = {}
        """The last bytes of a partition that came to a follower, and its LEO before it has appended them."""
        self._paused: set[tuple[tuple[NodeId, int], Key]] = set()
        self.held = self.bounded = self.left_out = 0
        self.facts.watch(FetchPaused, self._pauses)

    def on_record(self, entry: Entry, offset: int, record: r.MetadataRecord, before: MetadataState, after: MetadataState) -> None:
        if isinstance(record, r.ConfigRecord) and ".replication.throttled." in record.name:
            self._active = True
            if record.name.endswith("replicas"):
                self._topics[record.resource_name] = None

    def on_down(self, view: NodeView, how: str) -> None:
        for exchange in [it for it in self._arrived if it.target == view.node_id]:
            del self._arrived[exchange]

    def on_cache(self, view: NodeView, image: MetadataImage) -> None:
        if self._active:
            for side in (LEADER, FOLLOWER):
                self._side(view, side)

    # --- what is in force

    def _side(self, view: NodeView, name: str) -> _Side:
        """With the throttle that the broker has applied; None while it applies an update."""
        config, broker = view.node.config, _broker_of(view)
        side = self._sides.get((view.author, name))
        if side is None:
            tally = Tally(config.get_int(_SAMPLES), 1000 * config.get_int(_WINDOW))
            side = self._sides[view.author, name] = _Side(tally)
        throttle = None
        if broker is not None and broker.publisher._ready and broker.publisher._task is None:
            state = self.facts.history.visible(broker.cache.image.offset)
            throttle = throttle_of(state, config.values, view.node_id, name)
        if throttle != side.throttle:
            side.throttle = throttle
            side.version += 1
            side.since_ms = _now_ms(view)
        return side

    def _view(self, node_id: NodeId) -> NodeView | None:
        node = self.world.nodes.get(node_id)
        return None if node is None or node.now is None else self.facts.view(node)

    # --- leaders

    def on_arrival(self, exchange: AnyExchange) -> None:
        view = self._view(exchange.target) if self._active else None
        broker = None if view is None else _broker_of(view)
        request = exchange.request
        if view is None or broker is None or not isinstance(request, ReplicaFetchRequest):
            return
        found: dict[Key, tuple[int, int]] = {}
        asked = {(it.topic_id, it.partition) for it in request.partitions}
        self._refused -= {(view.author, request.session_id, key) for key in asked}
        session = broker.replicas._service.sessions._sessions.get(request.session_id)
        for key in asked if session is None else asked | set(session.entries):
            partition = broker.replicas._table.by_id.get(key)
            if partition is not None and partition.leader is not None and partition.log is not None:
                found[key] = (partition.log.leo, partition.partition_epoch)
        self._arrived[exchange] = _Arrived(self._side(view, LEADER).version, found)

    def on_served(self, exchange: AnyExchange, response: object) -> None:
        arrived = self._arrived.pop(exchange, None)
        view = self._view(exchange.target)
        broker = None if view is None else _broker_of(view)
        if not self._active or view is None or broker is None or not isinstance(response, ReplicaFetchResponse):
            return
        side, now_ms = self._side(view, LEADER), _now_ms(view)
        for told in response.partitions:
            if told.error is not ErrorCode.NONE or told.diverging_epoch is not None:
                self._refused.add((view.author, response.session_id, (told.topic_id, told.partition)))
        steady = arrived is not None and side.throttle is not None and side.version == arrived.version
        if arrived is not None and steady and not response.payload:
            self._check_kept_back(view, broker, exchange, response, arrived, now_ms)
        sent = [((it.topic_id, it.partition), it.records_length) for it in response.partitions if it.records_length]
        counted = 0
        for key, size in sent:
            partition = broker.replicas._table.by_id.get(key)
            if partition is None:
                continue
            listed = side.throttle is None or not steady or side.throttle.holds_for(partition.tp)
            if arrived is not None and steady and listed:
                self._check_slow(view, side, exchange.source, partition, arrived.partitions.get(key), now_ms)
            counted += size if listed else 0
        if counted:
            side.tally.note(now_ms, counted, surely=steady)

    def _check_slow(
        self, view: NodeView, side: _Side, replica: NodeId, partition: Partition, was: tuple[int, int] | None, now_ms: int
    ) -> None:
        assert side.throttle is not None and side.throttle.bound is not None
        leader = partition.leader
        if leader is None or was is None or was[1] != partition.partition_epoch or replica in leader.isr.committed:
            return
        self.bounded += 1
        rate = side.tally.at_least(now_ms)
        if rate > side.throttle.bound:
            self.fail(
                f"node {view.node_id} sends records of {partition.tp} to node {replica}, which is not in the ISR "
                f"{leader.isr.committed}, after {rate:.0f} bytes a second; its throttle is {side.throttle.bound}"
            )

    def _check_kept_back(
        self,
        view: NodeView,
        broker: BrokerServer,
        exchange: AnyExchange,
        response: ReplicaFetchResponse,
        arrived: _Arrived,
        now_ms: int,
    ) -> None:
        side, replica = self._side(view, LEADER), exchange.source
        assert side.throttle is not None
        session = broker.replicas._service.sessions._sessions.get(response.session_id)
        if session is None or session.next_epoch != exchange.request.session_epoch + 1:
            return
        for key, entry in session.entries.items():
            partition, was = entry.partition, arrived.partitions.get(key)
            if partition is None or was is None or partition.leader is None or partition.log is None:
                continue
            leo, partition_epoch = was
            if (
                leo <= entry.fetch_offset
                or partition.partition_epoch != partition_epoch
                or partition.leader_epoch != entry.asked_epoch
                or entry in session.ahead
                or (view.author, response.session_id, key) in self._refused
            ):
                continue
            self.held += 1
            isr, bound, rate = partition.leader.isr.committed, side.throttle.bound, side.tally.at_most(now_ms)
            if not side.throttle.holds_for(partition.tp) or bound is None:
                why = "no throttle is in force for it"
            elif replica in isr:
                why = f"it is in the ISR {isr}"
            elif rate <= bound:
                why = f"no more than {rate:.0f} bytes a second were sent, and the throttle is {bound}"
            else:
                continue
            self.fail(
                f"node {view.node_id} keeps the records of {partition.tp} from {entry.fetch_offset} to {leo} back from node "
                f"{replica}, and {why}"
            )

    # --- followers

    def _pauses(self, view: NodeView, event: FetchPaused) -> None:
        broker = _broker_of(view)
        partition = None if broker is None or not self._active else broker.replicas.partition(event.tp)
        if partition is not None:
            self._paused.add((view.author, (partition.topic_id, partition.tp.partition)))

    def on_call(self, source: NodeId, target: NodeId, method: AnyMethod, request: object) -> None:
        view = self._view(source) if self._active else None
        broker = None if view is None else _broker_of(view)
        if view is None or broker is None or not isinstance(request, ReplicaFetchRequest):
            return
        side, now_ms = self._side(view, FOLLOWER), _now_ms(view)
        self._look_for_appended(view, broker, now_ms)
        named = {(it.topic_id, it.partition) for it in request.partitions}
        for asked in request.partitions:
            key: Key = (asked.topic_id, asked.partition)
            self._paused.discard((view.author, key))
            told = self._told.get((view.author, target, key))
            if told is None or told.leader_epoch != asked.current_leader_epoch:
                told = self._told[view.author, target, key] = _Told(asked.current_leader_epoch)
            self._check_waits(view, broker, side, key, asked.fetch_offset, told, now_ms)
        for forgotten in request.forgotten:
            if (forgotten.topic_id, forgotten.partition) not in named:
                self._check_left_out(view, broker, side, target, (forgotten.topic_id, forgotten.partition), now_ms)

    def _check_waits(
        self, view: NodeView, broker: BrokerServer, side: _Side, key: Key, offset: int, told: _Told, now_ms: int
    ) -> None:
        partition = broker.replicas._table.by_id.get(key)
        if partition is None or side.throttle is None or not side.throttle.holds_for(partition.tp):
            return
        assert side.throttle.bound is not None
        if len(told.hws) < 2 or offset >= min(told.hws):
            return
        self.bounded += 1
        rate = side.tally.at_least(now_ms)
        if rate > side.throttle.bound:
            self.fail(
                f"node {view.node_id} fetches {partition.tp} from {offset}, behind the high watermark {min(told.hws)}, after "
                f"{rate:.0f} bytes a second; its throttle is {side.throttle.bound}"
            )

    def _check_left_out(self, view: NodeView, broker: BrokerServer, side: _Side, leader: NodeId, key: Key, now_ms: int) -> None:
        partition = broker.replicas._table.by_id.get(key)
        told = self._told.get((view.author, leader, key))
        if partition is None or partition.log is None or partition.leader is not None or side.throttle is None or told is None:
            return
        known = broker.cache.image.topics.registration(partition.tp)
        if (
            (view.author, key) in self._paused
            or told.leader_epoch != partition.leader_epoch
            or known is None
            or known.leader != leader
            or known.leader_epoch != told.leader_epoch
            or view.node_id not in known.replicas
        ):
            return
        before_ms = view.node.config.get_int(_BACKOFF) + MARGIN_MS
        if now_ms - side.since_ms <= before_ms:
            return
        self.left_out += 1
        bound, rate = side.throttle.bound, side.tally.at_most(now_ms, before_ms)
        if not side.throttle.holds_for(partition.tp) or bound is None:
            why = "no throttle is in force for it"
        elif len(told.hws) == 2 and partition.log.leo >= max(told.hws):
            why = f"it has everything below the high watermark {max(told.hws)}"
        elif rate <= bound:
            why = f"no more than {rate:.0f} bytes a second have come, and the throttle is {bound}"
        else:
            return
        self.fail(f"node {view.node_id} leaves {partition.tp} out of its fetches from node {leader}, and {why}")

    def on_answer(self, source: NodeId, target: NodeId, method: AnyMethod, request: object, response: object) -> None:
        view = self._view(source) if self._active else None
        broker = None if view is None else _broker_of(view)
        if view is None or broker is None or not isinstance(response, ReplicaFetchResponse):
            return
        side, now_ms = self._side(view, FOLLOWER), _now_ms(view)
        for result in response.partitions:
            key: Key = (result.topic_id, result.partition)
            told = self._told.get((view.author, target, key))
            if told is not None and result.error is ErrorCode.NONE and result.diverging_epoch is None:
                told.hws = [*told.hws[-1:], result.high_watermark]
            partition = broker.replicas._table.by_id.get(key)
            if not result.records_length or partition is None:
                continue
            if side.throttle is None or side.throttle.lists(partition.tp):
                counted = side.tally.note(now_ms, result.records_length, surely=False)
                leo = -1 if partition.log is None else partition.log.leo
                self._unsure.pop((view.author, key), None)  # the same again: nobody knows which of them is appended
                if leo >= 0 and side.throttle is not None:
                    self._unsure[view.author, key] = (leo, counted)

    def _look_for_appended(self, view: NodeView, broker: BrokerServer, now_ms: int) -> None:
        for (author, key), (leo, counted) in list(self._unsure.items()):
            if author != view.author:
                continue
            partition = broker.replicas._table.by_id.get(key)
            if partition is None or partition.log is None or partition.leader is not None:
                del self._unsure[author, key]
            elif partition.log.leo > leo:
                counted.sure_ms = now_ms
                del self._unsure[author, key]

    # --- at the end

    def unsettled(self) -> str | None:
        latest = self.facts.history.latest
        for name in self._topics:
            for index, it in self._partitions(latest, name):
                if set(it.isr) != set(it.replicas) or it.adding_replicas or it.removing_replicas:
                    return f"{name}-{index}, which was throttled, has replicas {it.replicas} and the ISR {it.isr}"
        return None

    @staticmethod
    def _partitions(state: MetadataState, name: str) -> Iterator[tuple[int, PartitionRegistration]]:
        found = state.topic_named(name)
        yield from () if found is None else found[1].partitions.items()


def _broker_of(view: NodeView) -> BrokerServer | None:
    return None if view.node.node is None else view.node.node.broker


def _now_ms(view: NodeView) -> int:
    assert view.node.now is not None
    return view.node.now.clock.now_ms()
