"""Invariant 7: the high watermark only grows, at a leader and over all leaders; nobody applies what is above it."""

from __future__ import annotations

from typing import ClassVar

from kraftlite.metadata.image import MetadataImage
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.methods import RAFT_FETCH
from kraftlite.model.messages.raft import RaftFetchRequest, RaftFetchResponse
from kraftlite.raft.states import Leader
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.sim.checkers.views import NodeView


class HighWatermarkMonotonic(MetadataChecker):
    """A restarted node may know less than before, but nobody ever knows more than a leader once said."""

    numbers: ClassVar[tuple[int, ...]] = (7,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.facts.watch_answer(RAFT_FETCH, self._on_fetched)

    def on_hw(self, view: NodeView, old: int, new: int) -> None:
        where = f"the high watermark of node {view.node_id}"
        if new < old:
            self.fail(f"{where} goes from {old} back to {new}")
        if new > view.raft.leo:
            self.fail(f"{where} is {new}, its log ends at {view.raft.leo}")
        state, published = view.state, self.facts.published_hw
        if not isinstance(state, Leader):
            if new > published:
                self.fail(f"{where} is {new}; no leader has been further than {published}")
        elif state.epoch == max(self.facts.elected) and new < published:
            self.fail(f"{where}, leader of epoch {state.epoch}, is {new}; {published} was committed before")

    def on_raft(self, view: NodeView) -> None:
        said, known = view.raft.high_watermark, view.raft.committed_offset
        if said is not None and (known is None or said > known):
            self.fail(f"node {view.node_id} says the high watermark is {said}, it knows {known}")

    def _on_fetched(self, source: NodeId, target: NodeId, request: RaftFetchRequest, response: RaftFetchResponse) -> None:
        if response.high_watermark is not None and response.high_watermark > self.facts.published_hw:
            self.fail(
                f"node {target} tells node {source} a high watermark of {response.high_watermark}; "
                f"no leader has been further than {self.facts.published_hw}"
            )

    def on_image(self, view: NodeView, image: MetadataImage) -> None:
        if image.offset >= view.hw:
            self.fail(f"node {view.node_id} has an image up to {image.offset}, its high watermark is {view.hw}")

    def on_controller(self, view: NodeView) -> None:
        offsets = view.active_controller.offsets
        if offsets.committed_offset >= view.hw and offsets.committed_offset >= 0:
            self.fail(
                f"the controller of node {view.node_id} takes {offsets.committed_offset} for committed, "
                f"the node's high watermark is {view.hw}"
            )
        if offsets.stable_offset > offsets.committed_offset:
            self.fail(f"node {view.node_id}: stable {offsets.stable_offset} is beyond committed {offsets.committed_offset}")
