"""A controller keeps of the past only what it may still go back to (CE-11, CE-12, TL-04)."""

from __future__ import annotations

from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.sim.checkers.views import NodeView


class PastForgotten(MetadataChecker):
    """A controller has one timeline snapshot at most of all that is stable, so that its memory does not grow with the log. When
    all is over, a standby has none: what is committed is not taken back, but for an open metadata transaction."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.judged = 0

    def on_controller(self, view: NodeView) -> None:
        core = view.active_controller
        self.judged += 1
        stable = [it for it in core.state.registry.epochs if it <= core.offsets.stable_offset]
        if len(stable) > 1:
            self.fail(f"controller {view.node_id} keeps {stable}, though all up to {core.offsets.stable_offset} is stable")

    def at_end(self) -> None:
        for view in self.facts.views.values():
            core = view.controller
            if core is None or core.active or core.queue.has_begun or core.offsets.transaction_start_offset is not None:
                continue
            if core.state.registry.epochs:
                self.fail(f"the standby controller {view.node_id} can go back to {core.state.registry.epochs}, and never will")
