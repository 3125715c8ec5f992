"""Invariant 16: what a node applied is a prefix of the committed log; equal offsets, equal images."""

from __future__ import annotations

from typing import ClassVar

from kraftlite.metadata.image import MetadataImage
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.raft import OffsetAndEpoch
from kraftlite.raft.snapshots import SnapshotReader
from kraftlite.runtime.trace.raft import SnapshotCreated, SnapshotInstalled
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.compare import controller_difference, image_difference
from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.sim.checkers.model import MetadataHistory, MetadataState
from kraftlite.sim.checkers.views import NodeView


class MetadataMatching(MetadataChecker):
    """Every image of every node, every broker's cache, every standby controller and every snapshot file is compared with the
    checkers' own replay of the committed log at the same offset: so they are equal among each other, too."""

    numbers: ClassVar[tuple[int, ...]] = (16,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._images: dict[NodeId, tuple[MetadataImage, MetadataState]] = {}
        self._controllers: dict[tuple[NodeId, int], MetadataState] = {}
        self._files: list[tuple[NodeView, OffsetAndEpoch]] = []
        self.facts.watch(SnapshotCreated, self._on_snapshot)
        self.facts.watch(SnapshotInstalled, self._on_snapshot)

    def on_image(self, view: NodeView, image: MetadataImage) -> None:
        offset = image.offset
        if offset >= self.facts.committed_end:
            self.fail(f"node {view.node_id} has an image up to {offset}; only [0,{self.facts.committed_end}) is committed")
        if self.facts.history.in_transaction(offset):
            self.fail(f"node {view.node_id} published an image up to {offset}, inside a metadata transaction")
        expected = self.facts.history.visible(offset)
        known = self._images.get(view.node_id, (None, None))
        difference = image_difference(image, expected, *known)
        if difference is not None:
            self.fail(f"the image of node {view.node_id} at offset {offset} is not what was committed: {difference}")
        self._images[view.node_id] = (image, expected)

    def on_cache(self, view: NodeView, image: MetadataImage) -> None:
        self._compare_cache(view, image)

    def _compare_cache(self, view: NodeView, image: MetadataImage) -> None:
        node = view.node.node
        assert node is not None
        newest = node.loader.image
        if image.offset > newest.offset:
            self.fail(f"the cache of broker {view.node_id} is at {image.offset}, its loader at {newest.offset}")
        if image is newest:
            return  # compared as the loader's
        difference = image_difference(image, self.facts.history.visible(image.offset))
        if difference is not None:
            self.fail(f"the cache of broker {view.node_id} at offset {image.offset} is not what was committed: {difference}")

    # --- controllers

    def on_controller(self, view: NodeView) -> None:
        controller = view.active_controller
        offset = controller.offsets.committed_offset
        if controller.active or offset < 0:
            self._controllers.pop(view.author, None)
            return
        expected = self.facts.history.applied(offset)
        if self._controllers.get(view.author) is expected:
            return
        self._controllers[view.author] = expected
        difference = controller_difference(controller, expected)
        if difference is not None:
            self.fail(f"the standby controller {view.node_id} at offset {offset} is not what was committed: {difference}")

    # --- snapshots

    def _on_snapshot(self, view: NodeView, event: SnapshotCreated | SnapshotInstalled) -> None:
        self._files.append((view, OffsetAndEpoch(epoch=event.last_epoch, offset=event.end_offset)))

    def on_raft(self, view: NodeView) -> None:
        waiting, self._files = self._files, []
        for owner, snapshot_id in waiting:
            if owner.core is not None and owner.core.metalog.snapshots.contains(snapshot_id):
                self._compare_snapshot(owner, snapshot_id)

    def _compare_snapshot(self, view: NodeView, snapshot_id: OffsetAndEpoch) -> None:
        expected = self.facts.history.visible(snapshot_id.offset - 1)
        if self.facts.history.in_transaction(snapshot_id.offset - 1):
            self.fail(f"node {view.node_id} has the snapshot {snapshot_id}, inside a metadata transaction")
        found = MetadataHistory()
        with view.node.disk.undisturbed():
            path = view.raft.metalog.snapshots.path(snapshot_id)
            with SnapshotReader(view.node.disk, path, self.facts.serde) as reader:
                for batch in reader.batches():
                    for record in batch:
                        found.replay(record, snapshot_id.offset - 1)
        difference = _state_difference(found.latest, expected)
        if difference is not None:
            self.fail(f"the snapshot {snapshot_id} of node {view.node_id} is not what was committed: {difference}")

    def at_end(self) -> None:
        for view in self.facts.views.values():
            node = view.node.node
            if node is None:
                continue
            self.on_image(view, node.loader.image)
            if node.broker is not None:
                self._compare_cache(view, node.broker.cache.image)
            if view.controller is not None and not view.controller.queue.has_begun:
                self._controllers.pop(view.author, None)
                self.on_controller(view)


def _state_difference(found: MetadataState, expected: MetadataState) -> str | None:
    for part in (
        "features",
        "brokers",
        "controllers",
        "topics",
        "configs",
        "quotas",
        "credentials",
        "acls",
        "tokens",
        "next_producer_id",
    ):
        if getattr(found, part) != getattr(expected, part):
            return f"{part} are {getattr(found, part)} instead of {getattr(expected, part)}"
    return None
