"""A node that has begun to fetch a metadata snapshot asks for it (RF-44)."""

from __future__ import annotations

from kraftlite.model.ids import NodeId
from kraftlite.model.messages.methods import FETCH_SNAPSHOT
from kraftlite.model.messages.raft import FetchSnapshotRequest
from kraftlite.runtime.trace.raft import SnapshotFetchFailed, SnapshotFetchStarted
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.sim.checkers.views import NodeView


class SnapshotsFetched(MetadataChecker):
    """Before it is told to begin again, it has asked the leader for a part, or has given up what it began. Else it asks for a log
    that begins too late again and again, and never gets further."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._begun: dict[tuple[NodeId, int], SnapshotFetchStarted] = {}
        """By node and incarnation."""
        self.facts.watch(SnapshotFetchStarted, self._on_started)
        self.facts.watch(SnapshotFetchFailed, self._on_failed)
        self.facts.watch_call(FETCH_SNAPSHOT, self._on_asked)

    def _on_asked(self, source: NodeId, target: NodeId, request: FetchSnapshotRequest) -> None:
        view = self.facts.views.get(source)
        if view is not None:
            self._begun.pop(view.author, None)

    def _on_failed(self, view: NodeView, event: SnapshotFetchFailed) -> None:
        self._begun.pop(view.author, None)

    def _on_started(self, view: NodeView, event: SnapshotFetchStarted) -> None:
        begun = self._begun.get(view.author)
        if begun is not None:
            self.fail(
                f"node {view.node_id} wants the snapshot that ends at {begun.end_offset} from node {begun.leader_id} "
                f"and has not asked for it; it is sent for the one at {event.end_offset} by node {event.leader_id}"
            )
        self._begun[view.author] = event
