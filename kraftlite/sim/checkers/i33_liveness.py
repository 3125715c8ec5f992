"""Invariant 33: when the faults are over everything gets done."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Final

from kraftlite.broker.core import BrokerState
from kraftlite.faults.nodes import RoomNode
from kraftlite.metadata.registrations import PartitionRegistration
from kraftlite.model.topic_partition import TopicIdPartition
from kraftlite.runtime.trace import TraceEvent
from kraftlite.runtime.trace.partition import ProduceCompleted, ProduceParked
from kraftlite.sim.checkers.base import LivenessViolation, World
from kraftlite.sim.checkers.replica_facts import PartitionChange, ReplicaChecker
from kraftlite.sim.checkers.replica_views import ReplicaView, Stamp

STILL_US: Final = 5_000_000
"""What changed less than that ago is still on its way, and rightly."""
LOST_US: Final = 40_000_000
"""A message that was lost is missed after `replica.socket.timeout.ms` (30 s) at the latest; until then its sender may wait."""


class ReplicationLiveness(ReplicaChecker):
    """At the end all brokers run, are registered and unfenced, and no produce waits. Where nothing has moved for a while, and the
    faults are over for so long that no lost message explains it: a partition has its leader, a whole ISR and no reassignment,
    every replica leads or follows as the controller says and has all that its leader has, and no ISR change is pending. At any
    time: a produce that waits gets one verdict."""

    numbers: ClassVar[tuple[int, ...]] = (33,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._parked: dict[tuple[int, int], dict[str, None]] = {}
        """(node, boot) → produces that wait for the HW."""
        self._over_us: int | None = None
        self._moved_us: dict[TopicIdPartition, int] = {}

    def on_event(self, now_us: int, node: RoomNode, event: TraceEvent) -> None:
        if self._over_us is None and self.world.faults_over:
            self._over_us = now_us
        kind = type(event)
        if kind is not ProduceParked and kind is not ProduceCompleted:
            return
        assert isinstance(event, ProduceParked | ProduceCompleted)
        waiting = self._parked.setdefault((node.node_id, node.boots), {})
        name = f"{event.tp} {event.id}"
        if kind is ProduceParked:
            waiting[name] = None
        elif name in waiting:
            del waiting[name]
        else:
            self.fail(f"node {node.node_id}: the produce {name} got a verdict and was not waiting")

    def on_replica(self, view: ReplicaView, was: Stamp | None) -> None:
        self._moved_us[view.key] = self.world.cluster.loop.now_us()

    def on_partition(self, change: PartitionChange) -> None:
        self._moved_us[change.key] = self.world.cluster.loop.now_us()

    def at_end(self) -> None:
        wrong = next(self.unsettled(), None)
        if wrong is not None:
            raise LivenessViolation(self.name, wrong)

    def unsettled(self) -> Iterator[str]:
        """What has not happened and should have."""
        now_us = self.world.cluster.loop.now_us()
        for node in self.world.cluster.brokers:
            yield from self._broker(node)
        if self._over_us is None or now_us - self._over_us < LOST_US:
            return
        for topic_id, topic in self.facts.metadata.history.latest.topics.items():
            for index, registration in topic.partitions.items():
                key = TopicIdPartition(topic_id, index)
                if now_us - self._moved_us.get(key, 0) >= STILL_US:
                    yield from self._partition(f"{topic.name}-{index}", key, registration)

    def _broker(self, node: RoomNode) -> Iterator[str]:
        broker = None if node.node is None else node.node.broker
        if broker is None or not node.started:
            yield f"node {node.node_id} does not run"
            return
        if broker.lifecycle.state is not BrokerState.RUNNING:
            yield f"broker {node.node_id} is in state {broker.lifecycle.state.name}"
        known = self.facts.metadata.history.latest.brokers.get(node.node_id)
        if known is None or not known.active or known.incarnation_id != broker.lifecycle.incarnation_id:
            yield f"broker {node.node_id} is registered as {known}"
        waiting = self._parked.get((node.node_id, node.boots))
        if waiting:
            yield f"node {node.node_id}: no verdict for the produces {list(waiting)}"

    def _partition(self, name: str, key: TopicIdPartition, it: PartitionRegistration) -> Iterator[str]:
        if it.leader is None or len(it.isr) != len(it.replicas) or it.recovering or it.adding_replicas or it.removing_replicas:
            yield f"{name} is {it}"
            return
        views = self.facts.views.get(key, {})
        leader = views.get(it.leader)
        if leader is None or leader.leader is None:
            yield f"{name}: node {it.leader} does not lead it in epoch {it.leader_epoch}"
            return
        if leader.leader.isr.pending is not None:
            yield f"{leader.text} has waited too long for an answer to {leader.leader.isr.pending}"
        for replica in it.replicas:
            view = views.get(replica)
            if view is None:
                yield f"{name}: node {replica} has no replica"
                continue
            if (view.leader_epoch, view.partition_epoch) != (it.leader_epoch, it.partition_epoch):
                yield f"{view.text} knows partition epoch {view.partition_epoch}, it is {it.partition_epoch}"
            if (view.leo, view.hw) != (leader.leo, leader.leo):
                yield f"{view.text} has LEO {view.leo} and HW {view.hw}, the leader's LEO is {leader.leo}"
