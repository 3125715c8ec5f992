"""A follower that says nothing, or lags, leaves the ISR in bounded time (RP-19, RP-20): until it does, nothing is committed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from kraftlite.broker.lifecycle_core import BrokerState
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.methods import REPLICA_FETCH
from kraftlite.model.method import AnyMethod
from kraftlite.replication.leader import LeaderState
from kraftlite.replication.partition import Partition
from kraftlite.runtime.trace import TraceEvent
from kraftlite.runtime.trace.partition import IsrShrinkProposed
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.replica_facts import ReplicaChecker
from kraftlite.simhost.host import SimHost

_LOOK_US: Final = 250_000
_GAP_US: Final = 750_000
"""Longer than a broker that runs is idle: it was paused, and what had arrived meanwhile was heard only then."""
_SLACK_US: Final = _GAP_US
"""A leader that stands still for less than that looks as much later."""


@dataclass(slots=True)
class _Watch:
    """One led partition of one incarnation. Microseconds."""

    leader: LeaderState
    since_us: int
    """Its leadership began, or it has proposed to shrink: the time before does not count."""
    behind_us: dict[NodeId, int]
    """Since when a member is known to lack something."""
    marks: dict[NodeId, tuple[int, int]] = field(default_factory=dict)
    """Member → where the log ended at a look, and when that was. It moves on when the member has asked for what is behind it."""
    partition_epoch: int = -1
    """That of the marks: with each change of the ISR they begin anew."""


class IsrLag(ReplicaChecker):
    """A leader proposes to remove a member of its ISR that lacks records when no fetch of it can have arrived for one and a half
    `replica.lag.time.max.ms`: it looks every half of it, until it is on its way out. So it does with one that fetches, and in all
    that time has not got to where the log ended at its beginning.

    A member counts as caught up at the time of a fetch that reached the LEO of then, or of the fetch before. In either case the
    log had not gone beyond what the member has asked for, so a mark is never older than what a sound leader goes by.
    """

    only_events = (IsrShrinkProposed,)
    only_methods = (REPLICA_FETCH,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._now_us = world.cluster.loop.now_us
        self._heard_us: dict[tuple[NodeId, NodeId], int] = {}
        """(follower, leader) → until when a fetch may have arrived."""
        self._looked_us: dict[NodeId, int] = {}
        self._watches: dict[tuple[NodeId, int, Any], _Watch] = {}

    def on_call(self, source: NodeId, target: NodeId, method: AnyMethod, request: object) -> None:
        if method is not REPLICA_FETCH:
            return
        link = self.world.cluster.network.link(source, target)
        slow_us = link.slow_us if link.slow_chance else 0
        leaves_us = max(self.world.cluster.loop.now_us(), link.held_until_us)
        arrives_us = leaves_us + 5 * link.max_us + slow_us
        self._heard_us[(source, target)] = max(arrives_us, self._heard_us.get((source, target), 0))

    def on_event(self, now_us: int, node: SimHost, event: TraceEvent) -> None:
        if type(event) is IsrShrinkProposed:
            watch = self._watches.get((node.node_id, node.boots, event.tp))
            if watch is not None:
                watch.since_us = now_us
                watch.marks.clear()

    def on_step(self, node: SimHost) -> None:
        now_us = self._now_us()
        looked_us = self._looked_us.get(node.node_id, 0)
        if now_us - looked_us < _LOOK_US:
            return
        self._looked_us[node.node_id] = now_us
        broker = None if node.node is None else node.node.broker
        if broker is None or not node.started or broker.lifecycle.state is BrokerState.SHUTTING_DOWN:
            return
        for partition in broker.replicas.partitions():
            key = (node.node_id, node.boots, partition.tp)
            leader = partition.leader
            watch = self._watches.get(key)
            if leader is None or partition.log is None:
                self._watches.pop(key, None)
            elif watch is None or watch.leader is not leader or now_us - looked_us > _GAP_US or leader.isr.pending is not None:
                self._watches[key] = _Watch(leader, now_us, {})
            else:
                self._look(node, partition, watch, now_us)

    def _look(self, node: SimHost, partition: Partition, watch: _Watch, now_us: int) -> None:
        view = self.facts.view(node.node_id, partition.tp)
        if view is None or partition.log is None:
            return
        if watch.partition_epoch != partition.partition_epoch:
            watch.partition_epoch = partition.partition_epoch
            watch.marks.clear()  # who was put out, by whomever, may be back: a fetch at the HW is enough for that
        lag_us = node.longest_us(node.config.get_int("replica.lag.time.max.ms"))
        for member in watch.leader.isr.committed:
            if member == node.node_id:
                continue
            asked = self.facts.asked_up_to(member, view, partition.leader_epoch)
            if asked >= partition.log.leo:
                watch.behind_us.pop(member, None)
                watch.marks.pop(member, None)
                continue
            behind_us = now_us - watch.behind_us.setdefault(member, now_us)
            silent_us = now_us - max(watch.since_us, self._heard_us.get((member, node.node_id), 0))
            if silent_us > lag_us * 3 // 2 + _SLACK_US and behind_us > lag_us // 2 + _SLACK_US:
                self.fail(
                    f"{view.text} keeps node {member} in its ISR {watch.leader.isr.committed}, which lacks records up to "
                    f"{partition.log.leo} and was not heard of for {silent_us // 1000} ms"
                )
            end, since_us = watch.marks.get(member, (-1, now_us))
            if asked >= end:
                watch.marks[member] = (partition.log.leo, now_us)
            elif now_us - since_us > lag_us * 3 // 2 + _SLACK_US:
                self.fail(
                    f"{view.text} keeps node {member} in its ISR {watch.leader.isr.committed}, which asked for {asked} and has "
                    f"not got to {end}, where the log ended {(now_us - since_us) // 1000} ms ago"
                )
