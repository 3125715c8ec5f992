"""A node acts on nothing before it has what it knows to be committed (ML-02): to a broker that starts with older metadata its own
logs look foreign, and the leader epochs in them too new."""

from __future__ import annotations

from typing import ClassVar

from kraftlite.runtime.trace.metadata import MetadataCaughtUp
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.sim.checkers.views import NodeView


class CaughtUpFirst(MetadataChecker):
    """A node says that it has caught up with the metadata log when its image reaches to the high watermark that it knows."""

    numbers: ClassVar[tuple[int, ...]] = (16,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.facts.watch(MetadataCaughtUp, self._on_caught_up)

    def _on_caught_up(self, view: NodeView, event: MetadataCaughtUp) -> None:
        known = None if view.node.node is None else view.node.node.raft.core.committed_offset
        if known is None or event.metadata_offset < known - 1:
            self.fail(
                f"node {view.node_id} counts as caught up with metadata up to {event.metadata_offset}, and knows that everything "
                f"below {known} is committed"
            )
