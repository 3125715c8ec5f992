"""Invariant 33: when the faults are over everything gets done."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from kraftlite.broker.lifecycle_core import BrokerState
from kraftlite.metadata.registrations import PartitionRegistration
from kraftlite.model.topic_partition import TopicIdPartition
from kraftlite.runtime.trace import TraceEvent
from kraftlite.runtime.trace.partition import ProduceCompleted, ProduceParked
from kraftlite.sim.checkers.base import LivenessViolation, World
from kraftlite.sim.checkers.replica_facts import ReplicaChecker
from kraftlite.simhost.host import SimHost


class ReplicationLiveness(ReplicaChecker):
    """All brokers run in the end, are registered and unfenced, and no produce waits; a partition has its leader, a whole ISR
    and no reassignment, every replica leads or follows as the controller says and has all that its leader has, and no ISR
    change is pending. A message that was lost is missed after `replica.socket.timeout.ms` (30 s) at the latest, so the run
    waits longer. At any time: a produce that waits gets one verdict."""

    numbers: ClassVar[tuple[int, ...]] = (33,)
    only_events = (ProduceParked, ProduceCompleted)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._parked: dict[tuple[int, int], dict[str, int]] = {}
        """(node, boot) → produces that wait for the HW, with how many batches: a request may have several markers for one
        partition."""

    def on_event(self, now_us: int, node: SimHost, event: TraceEvent) -> None:
        kind = type(event)
        if kind is not ProduceParked and kind is not ProduceCompleted:
            return
        assert isinstance(event, ProduceParked | ProduceCompleted)
        waiting = self._parked.setdefault((node.node_id, node.boots), {})
        name = f"{event.tp} {event.id}"
        if kind is ProduceParked:
            waiting[name] = waiting.get(name, 0) + 1
        elif name in waiting:
            waiting[name] -= 1
            if not waiting[name]:
                del waiting[name]
        else:
            self.fail(f"node {node.node_id}: the produce {name} got a verdict and was not waiting")

    def unsettled(self) -> str | None:
        return next(self._unsettled(), None)

    def at_end(self) -> None:
        wrong = self.unsettled()
        if wrong is not None:
            raise LivenessViolation(self.name, wrong)

    def _unsettled(self) -> Iterator[str]:
        for node in self.world.cluster.brokers:
            yield from self._broker(node)
        for topic_id, topic in self.facts.metadata.history.latest.topics.items():
            for index, registration in topic.partitions.items():
                yield from self._partition(f"{topic.name}-{index}", TopicIdPartition(topic_id, index), registration)

    def _broker(self, node: SimHost) -> Iterator[str]:
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
        recovers = it.recovering and len(it.replicas) > 1  # a leader without followers never asks for a change of its ISR
        if it.leader is None or len(it.isr) != len(it.replicas) or recovers or it.adding_replicas or it.removing_replicas:
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
