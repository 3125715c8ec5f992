"""Invariant 86: when the faults are over, every controller that runs is registered, if the level of metadata.version has such
registrations (CM-13, FV-09)."""

from __future__ import annotations

from typing import ClassVar

from kraftlite.model.ids import NodeId, uuid_to_str
from kraftlite.runtime.trace.node import ControllerRegistrationSent
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.sim.checkers.i85_feature_levels import VERSION
from kraftlite.sim.checkers.views import NodeView

_FROM = 15


class ControllersRegistered(MetadataChecker):
    """An upgrade of features waits for every controller of the quorum, so one that never registers holds it up for ever."""

    numbers: ClassVar[tuple[int, ...]] = (86,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._incarnations: dict[NodeId, str] = {}
        """Those with which the controllers that run now want to be registered."""
        self.facts.watch(ControllerRegistrationSent, self._on_sent)

    def _on_sent(self, view: NodeView, event: ControllerRegistrationSent) -> None:
        self._incarnations[view.node_id] = event.incarnation_id

    def on_down(self, view: NodeView, how: str) -> None:
        self._incarnations.pop(view.node_id, None)

    def unsettled(self) -> str | None:
        state = self.facts.history.latest
        if state.features.get(VERSION, 0) < _FROM:
            return None
        for node_id in sorted(self._incarnations):
            found = state.controllers.get(node_id)
            if found is None or uuid_to_str(found.incarnation_id) != self._incarnations[node_id]:
                return f"controller {node_id} runs at {VERSION} {state.features[VERSION]} and is not registered"
        return None
