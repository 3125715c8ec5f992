"""A follower that keeps up stays in the ISR (RP-19, RP-20): the rule of `isr_lag`, read the other way round."""

from __future__ import annotations

import inspect
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.methods import REPLICA_FETCH
from kraftlite.model.messages.replica import ReplicaFetchRequest, ReplicaFetchResponse
from kraftlite.model.topic_partition import TopicIdPartition
from kraftlite.replication.leader import LeaderState
from kraftlite.runtime.trace import TraceEvent
from kraftlite.runtime.trace.partition import IsrShrinkProposed
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.replica_facts import ReplicaChecker
from kraftlite.sim.checkers.replica_views import ReplicaView, Stamp
from kraftlite.simhost.host import SimHost
from kraftlite.simhost.network import AnyExchange

_SLACK_MS: Final = 100
"""A clock is read once in a step, and a step may take a while."""
_ANSWERED_US: Final = 100_000
"""A refusal is answered at once, unless the processor is slow. What the leader thinks of a younger fetch is not known before its
answer is."""
_TAKES: Final = 256
_ENDS: Final = 2_048


@dataclass(slots=True, eq=False)
class _Take:
    """A fetch, when its handler began. `order`: that of all takes and ends of logs."""

    order: int
    at_us: int
    request: ReplicaFetchRequest
    served: bool = False
    refused: set[TopicIdPartition] = field(default_factory=set)


@dataclass(slots=True)
class _Session:
    """One fetch session, as its requests tell. Takes that are long over are folded into `before`: partition → (leader epoch,
    offset)."""

    replica_epoch: int
    session_id: int = 0
    next_epoch: int = 1
    before: dict[TopicIdPartition, tuple[int, int]] = field(default_factory=dict)
    takes: deque[_Take] = field(default_factory=deque)

    def fold(self, older_us: int) -> None:
        while self.takes and self.takes[0].at_us < older_us:
            _apply(self.takes.popleft(), self.before)


@dataclass(slots=True)
class _Led:
    """A led partition in one state of its metadata. `ends`: (order, where the log ended from then on)."""

    leader: LeaderState
    partition_epoch: int
    since: int
    ends: deque[tuple[int, int]]

    def end_at(self, order: int) -> int | None:
        for since, end in reversed(self.ends):
            if since <= order:
                return end
        return None


class ShrinksDeserved(ReplicaChecker):
    """A leader proposes to remove a member of its ISR only when it was not caught up for `replica.lag.time.max.ms`, by the
    leader's own clock. It was caught up at a fetch that reached the LEO of then, named or not, and at the fetch before the one
    that reached the LEO of that.

    The fetches are followed as the leader takes them, session by session: those of the time in which it leads and its metadata of
    the partition stays the same, that were not refused, and in the leader's epoch.
    """

    only_events = (IsrShrinkProposed,)
    only_methods = (REPLICA_FETCH,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._now_us = world.cluster.loop.now_us
        self._order = 0
        self._arrived: dict[NodeId, list[AnyExchange]] = {}
        self._taken: dict[AnyExchange, tuple[_Session, _Take]] = {}
        self._sessions: dict[tuple[NodeId, NodeId], list[_Session]] = {}
        """(leader, follower) → those that may still be used."""
        self._led: dict[tuple[NodeId, TopicIdPartition], _Led] = {}

    def on_boot(self, node: SimHost) -> None:
        self._arrived.pop(node.node_id, None)
        for pair in [it for it in self._sessions if it[0] == node.node_id]:
            del self._sessions[pair]
        for key in [it for it in self._led if it[0] == node.node_id]:
            del self._led[key]

    # --- what the leader has been told

    def on_arrival(self, exchange: AnyExchange) -> None:
        if exchange.method is not REPLICA_FETCH:
            return
        self._arrived.setdefault(exchange.target, []).append(exchange)

    def on_step(self, node: SimHost) -> None:
        waiting = self._arrived.get(node.node_id)
        if not waiting:
            return
        for exchange in [it for it in waiting if it.handler is not None and _has_begun(it)]:
            waiting.remove(exchange)
            assert exchange.handler is not None
            if not exchange.handler.cancelled():  # else whoever asked had gone before the handler began, or was there at all
                self._take(exchange)

    def _take(self, exchange: AnyExchange) -> None:
        request = exchange.request
        assert isinstance(request, ReplicaFetchRequest)
        sessions = self._sessions.setdefault((exchange.target, exchange.source), [])
        if request.session_epoch == 0:
            sessions[:] = [
                it for it in sessions if it.session_id != request.session_id and it.replica_epoch >= request.replica_epoch
            ]
            session = _Session(request.replica_epoch)
            sessions.append(session)
        else:
            found = [it for it in sessions if it.session_id == request.session_id and it.next_epoch == request.session_epoch]
            if not found or found[0].replica_epoch != request.replica_epoch:
                return
            session = found[0]
            session.next_epoch += 1
        self._order += 1
        now_us = self._now_us()
        take = _Take(self._order, now_us, request)
        session.takes.append(take)
        self._taken[exchange] = session, take
        if len(session.takes) >= _TAKES:
            session.fold(now_us - 2_000 * self._lag_ms(exchange.target))

    def on_served(self, exchange: AnyExchange, response: object) -> None:
        known = self._taken.pop(exchange, None)
        if known is None or not isinstance(response, ReplicaFetchResponse):
            return
        session, take = known
        if response.error is not ErrorCode.NONE:
            sessions = self._sessions.get((exchange.target, exchange.source), [])
            sessions[:] = [it for it in sessions if it is not session]
            return
        session.session_id = response.session_id
        take.served = True
        take.refused.update(
            TopicIdPartition(it.topic_id, it.partition)
            for it in response.partitions
            if it.error is not ErrorCode.NONE or it.diverging_epoch is not None
        )

    def on_replica(self, view: ReplicaView, was: Stamp | None) -> None:
        where = (view.node_id, view.key)
        leader = view.leader
        led = self._led.get(where)
        if leader is None:
            if led is not None:
                del self._led[where]
            return
        if led is None or led.leader is not leader or led.partition_epoch != view.partition_epoch:
            self._order += 1
            self._led[where] = _Led(leader, view.partition_epoch, self._order, deque([(self._order, view.leo)], maxlen=_ENDS))
        elif led.ends[-1][1] != view.leo:
            self._order += 1
            led.ends.append((self._order, view.leo))

    # --- whom it puts out

    def on_event(self, now_us: int, node: SimHost, event: TraceEvent) -> None:
        if type(event) is not IsrShrinkProposed:
            return
        view = self.facts.view(node.node_id, event.tp)
        if view is None or (led := self._led.get((node.node_id, view.key))) is None or led.leader is not view.partition.leader:
            return
        lag_ms = self._lag_ms(node.node_id)
        for member in event.out:
            caught_us = max(
                (self._caught_up_us(it, view, led, now_us) for it in self._sessions.get((node.node_id, member), ())), default=-1
            )
            ago_ms = (now_us - caught_us) * (1_000_000 + node.fastest_ppm) // 1_000_000_000
            if caught_us >= 0 and ago_ms + _SLACK_MS <= lag_ms:
                self.fail(
                    f"{view.text} proposes to remove node {member} from its ISR {led.leader.isr.committed}, which was caught up "
                    f"{ago_ms} ms ago; replica.lag.time.max.ms is {lag_ms}"
                )

    def _caught_up_us(self, session: _Session, view: ReplicaView, led: _Led, now_us: int) -> int:
        """Return when a follower was surely caught up last, as far as this session says; -1: it does not say."""
        at = {view.key: session.before[view.key]} if view.key in session.before else {}
        now = self.world.nodes[view.node_id].now
        is_slow = now is not None and self.world.cluster.loop.is_slowed(now.pid)
        caught_us, last_us, last_end = -1, -1, -1
        for take in session.takes:
            _apply(take, at, only=view.key)
            epoch, offset = at.get(view.key, (-1, -1))
            if take.order <= led.since or epoch != view.partition.leader_epoch:
                continue
            end = led.end_at(take.order)
            if end is None or not (take.served or (now_us - take.at_us > _ANSWERED_US and not is_slow)):
                continue
            if offset >= end:
                caught_us = take.at_us
            elif last_us >= 0 and offset >= last_end:
                caught_us = max(caught_us, last_us)
            last_us, last_end = take.at_us, end
        return caught_us

    def _lag_ms(self, node_id: NodeId) -> int:
        return self.world.nodes[node_id].config.get_int("replica.lag.time.max.ms")


def _has_begun(exchange: AnyExchange) -> bool:
    handler = exchange.handler
    assert handler is not None
    coroutine = handler.get_coro()
    return not inspect.iscoroutine(coroutine) or inspect.getcoroutinestate(coroutine) != inspect.CORO_CREATED


def _apply(take: _Take, at: dict[TopicIdPartition, tuple[int, int]], only: TopicIdPartition | None = None) -> None:
    """Move what is followed to where this fetch says, and drop what the leader refused."""
    for gone in take.request.forgotten:
        at.pop(TopicIdPartition(gone.topic_id, gone.partition), None)
    for asked in take.request.partitions:
        key = TopicIdPartition(asked.topic_id, asked.partition)
        if only is None or key == only:
            at[key] = asked.current_leader_epoch, asked.fetch_offset
    for key in take.refused:
        at.pop(key, None)
