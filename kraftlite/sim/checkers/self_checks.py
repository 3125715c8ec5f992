"""The invariants that objects of production assert of themselves, asked for after each step that changed one of them."""

from __future__ import annotations

from collections.abc import Callable

from kraftlite.model.ids import NodeId
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.sim.checkers.replica_facts import ReplicaChecker
from kraftlite.sim.checkers.replica_views import ReplicaView, Stamp
from kraftlite.sim.checkers.views import NodeView


class SelfCheckMetadata(MetadataChecker):
    """`check` of the raft core when role, log or high watermark are new, and of state and queue of a controller that has
    replayed. An active controller keeps no answer back whose records are stable (CE-06)."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._replayed: dict[NodeId, tuple[object, ...]] = {}

    def on_raft(self, view: NodeView) -> None:
        _ask(self, f"raft of node {view.node_id}", view.raft.check)

    def on_controller(self, view: NodeView) -> None:
        controller = view.active_controller
        offsets = controller.offsets
        replayed = (view.here, controller.active, offsets.write_offset if controller.active else offsets.committed_offset)
        late = next((offset for offset, _ in controller.deferred.waiting), None) if controller.active else None
        if late is not None and late <= offsets.stable_offset:
            self.fail(
                f"controller {view.node_id} keeps the answer that waits for offset {late}; stable is {offsets.stable_offset}"
            )
        if replayed != self._replayed.get(view.node_id):
            self._replayed[view.node_id] = replayed
            _ask(self, f"the controller's state on node {view.node_id}", controller.state.check)
            _ask(self, f"the controller's queue on node {view.node_id}", controller.queue.check)


class SelfCheckReplicas(ReplicaChecker):
    """`check` of every partition that has changed, with its log and what it knows of its followers and producers."""

    def on_replica(self, view: ReplicaView, was: Stamp | None) -> None:
        _ask(self, f"the replica on node {view.node_id}", lambda: view.partition.check(producers=True))


def _ask(checker: MetadataChecker | ReplicaChecker, whose: str, check: Callable[[], None]) -> None:
    try:
        check()
    except AssertionError as error:
        checker.fail(f"{whose}: {error}")
