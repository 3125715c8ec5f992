"""Invariant 32: what takes the HW for the truth waits until it is."""

from __future__ import annotations

from typing import ClassVar

from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.trace import TraceEvent
from kraftlite.runtime.trace.partition import Diverged
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.replica_facts import ReplicaChecker
from kraftlite.sim.checkers.replica_views import ReplicaView, Stamp, Truth
from kraftlite.simhost.host import SimHost


class AppliedHw(ReplicaChecker):
    """log start ≤ HW ≤ LEO everywhere. A leader's HW never goes back within its leader epoch; a follower's, also one that comes
    from its checkpoint, is never ahead of every leader's (RP-15, RP-16), and an answer that carries a divergence does not raise
    it, but over what the log has no more (RP-31). A leader tells the latest offset only when its HW has reached the start of its
    epoch, so that it is not below what leaders of older epochs could tell (RP-14)."""

    numbers: ClassVar[tuple[int, ...]] = (32,)
    only_events = (Diverged,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._diverged: set[tuple[NodeId, TopicPartition]] = set()
        """The replicas whose log was cut, in the callback that runs, where their leader said that they part."""

    def on_event(self, now_us: int, node: SimHost, event: TraceEvent) -> None:
        if type(event) is Diverged and event.leo < event.old_leo:
            self._diverged.add((node.node_id, event.tp))

    def on_replica(self, view: ReplicaView, was: Stamp | None) -> None:
        log = view.log
        if log is None:
            return
        if not log.log_start_offset <= log.hw <= log.leo:
            self.fail(f"{view.text} has the log start {log.log_start_offset}, the HW {log.hw} and the LEO {log.leo}")
        if was is not None and view.leader is not None and view.leader is was.leader and view.hw < was.hw:
            self.fail(f"{view.text} had the HW {was.hw} and has {view.hw}")
        if self._diverged and (view.node_id, view.tp) in self._diverged:
            self._diverged.discard((view.node_id, view.tp))
            if was is not None and view.leader is None and view.hw > max(was.hw, log.log_start_offset):
                self.fail(
                    f"{view.text} raises its HW from {was.hw} to {view.hw} by an answer that only says where the logs part: "
                    f"what it has may differ from its leader's below that"
                )
        truth = self.facts.truth(view.key, view.tp)
        if truth.floor >= 0 or self.facts.is_tainted(view):
            return
        if view.leader is None and view.hw > truth.hw:
            self.fail(f"{view.text} has the HW {view.hw}, no leader had more than {truth.hw}")
        if view.leader is not None and (was is None or view.leader is not was.leader or view.hw != was.hw):
            self._check_latest(view, truth)

    def _check_latest(self, view: ReplicaView, truth: Truth) -> None:
        broker = view.here.node.broker
        assert broker is not None
        told = broker.replicas.list_offset(view.tp, None, -1, current_leader_epoch=None, read_committed=False)
        if told.error is not ErrorCode.NONE:
            return
        known = max((hw for epoch, hw in truth.hw_by_epoch.items() if epoch <= view.leader_epoch), default=0)
        if told.offset < known:
            self.fail(f"{view.text} tells the latest offset {told.offset}, in this or an older leader epoch it was {known}")
