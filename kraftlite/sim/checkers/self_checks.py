"""What the stateful objects of production assert of themselves, asked after each step that changed one of them."""

from __future__ import annotations

from collections.abc import Callable

from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.sim.checkers.replica_facts import ReplicaChecker
from kraftlite.sim.checkers.replica_views import ReplicaView, Stamp
from kraftlite.sim.checkers.views import NodeView


class SelfCheckMetadata(MetadataChecker):
    """`check` of the raft core and of the controller's state, on every node that has them."""

    def on_raft(self, view: NodeView) -> None:
        _ask(self, f"raft of node {view.node_id}", view.raft.check)

    def on_controller(self, view: NodeView) -> None:
        _ask(self, f"the controller's state on node {view.node_id}", view.active_controller.state.check)


class SelfCheckReplicas(ReplicaChecker):
    """`check` of every partition, with the leader's state and the log."""

    def on_replica(self, view: ReplicaView, was: Stamp | None) -> None:
        _ask(self, f"the replica on node {view.node_id}", view.partition.check)
        if view.log is not None:
            _ask(self, f"the log on node {view.node_id}", lambda: view.log.check(producers=True))


def _ask(checker: MetadataChecker | ReplicaChecker, whose: str, check: Callable[[], None]) -> None:
    try:
        check()
    except AssertionError as error:
        checker.fail(f"{whose}: {error}")
