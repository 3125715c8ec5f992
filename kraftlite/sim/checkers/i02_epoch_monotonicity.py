"""Invariant 2: a node's epoch never decreases, over restarts neither; in memory, on disk, and against its own log."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from kraftlite.model.ids import NodeId
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.sim.checkers.views import LogMemory, NodeView


class EpochMonotonicity(MetadataChecker):
    """The epoch never goes back, by node and directory: a new disk starts anew."""

    numbers: ClassVar[tuple[int, ...]] = (2,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._highest: dict[tuple[NodeId, UUID | None], int] = {}

    def on_opened(self, view: NodeView, before: LogMemory, durable: int) -> None:
        if view.forgets:
            self._highest.pop((view.node_id, view.directory_id), None)

    def on_role(self, view: NodeView) -> None:
        core = view.raft
        key = (view.node_id, view.directory_id)
        before = self._highest.get(key, 0)
        if core.epoch < before:
            self.fail(f"node {view.node_id}, incarnation {view.incarnation}, is in epoch {core.epoch} and was in {before}")
        stored = view.stored_election()
        if stored is None or stored.epoch < core.epoch:
            self.fail(f"node {view.node_id} is in epoch {core.epoch}, its disk says {stored}")
        self._highest[key] = core.epoch

    def on_raft(self, view: NodeView) -> None:
        core = view.raft
        if core.metalog.last_epoch > core.epoch:
            self.fail(f"node {view.node_id} is in epoch {core.epoch}, its log ends in epoch {core.metalog.last_epoch}")
