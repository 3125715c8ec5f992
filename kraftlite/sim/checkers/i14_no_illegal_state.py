"""Invariant 14: nothing that production asserts is ever violated."""

from __future__ import annotations

import traceback
from typing import ClassVar

from kraftlite.model.errors import ApiError, Fault
from kraftlite.node.storage import StorageError
from kraftlite.runtime.trace.controller import ControllerClaimed, ControllerRenounced, OperationFailed
from kraftlite.runtime.trace.metadata import PublisherFailed
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.sim.checkers.views import NodeView
from kraftlite.simhost.host import SimHost


class NoIllegalState(MetadataChecker):
    """A failed assertion, or an error of no expected kind, is a bug wherever it surfaces: a node that ended itself, a publisher
    that could not apply an image, an operation of the controller that broke. The controllers' indexes are recomputed whenever
    one takes over or steps down, and at the end."""

    numbers: ClassVar[tuple[int, ...]] = (14,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._failures: dict[int, tuple[BaseException, str]] = {}
        self._due: set[int] = set()
        """Nodes whose controller's indexes are to be checked after this step."""
        world.cluster.on_failure.append(self._note_failure)
        self.facts.watch(PublisherFailed, self._on_publisher_failed)
        self.facts.watch(OperationFailed, self._on_operation_failed)
        self.facts.watch(ControllerClaimed, lambda view, event: self._due.add(view.node_id))
        self.facts.watch(ControllerRenounced, lambda view, event: self._due.add(view.node_id))

    def _note_failure(self, node: SimHost, error: BaseException, where: str) -> None:
        # Called from within the node: what is raised here could be caught there. `on_down` follows.
        self._failures[node.node_id] = (error, where)

    def on_down(self, view: NodeView, how: str) -> None:
        failure = self._failures.pop(view.node_id, None)
        if failure is None or how != "failed":
            return
        error, where = failure
        for cause in _chain(error):
            if not isinstance(cause, Fault | ApiError | OSError | StorageError):
                stack = "".join(traceback.format_exception(error))
                self.fail(f"node {view.node_id} ended itself in {where}: {type(cause).__name__}: {cause}\n{stack}")

    def _on_publisher_failed(self, view: NodeView, event: PublisherFailed) -> None:
        self.fail(f"node {view.node_id}: {event.publisher} could not apply the image at {event.metadata_offset}: {event.trace}")

    def _on_operation_failed(self, view: NodeView, event: OperationFailed) -> None:
        self.fail(f"the controller of node {view.node_id} broke in {event.operation}: {event.error}: {event.message}")

    def on_controller(self, view: NodeView) -> None:
        if view.node_id in self._due:
            self._due.discard(view.node_id)
            self._check_indexes(view)

    def at_end(self) -> None:
        for view in self.facts.views.values():
            if view.controller is not None:
                self._check_indexes(view)

    def _check_indexes(self, view: NodeView) -> None:
        try:
            view.active_controller.state.replication.check_indexes()
        except (AssertionError, KeyError) as error:
            self.fail(f"the controller of node {view.node_id} is inconsistent: {error!r}")


def _chain(error: BaseException) -> list[BaseException]:
    """The error and what caused it: a Fault that wraps a failed assertion is a failed assertion."""
    found: list[BaseException] = []
    here: BaseException | None = error
    while here is not None and here not in found:
        found.append(here)
        here = here.__cause__
    return found
