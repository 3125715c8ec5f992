"""Invariant 11: a log starts at 0 or where a snapshot reaches; a leader loads none."""

from __future__ import annotations

from typing import ClassVar

from kraftlite.raft.snapshots import snapshot_name
from kraftlite.raft.states import Leader
from kraftlite.runtime.trace.controller import SnapshotLoaded
from kraftlite.runtime.trace.metadata import SnapshotFailed
from kraftlite.runtime.trace.raft import SnapshotInstalled
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.sim.checkers.views import Entry, NodeView


class SnapshotAtLogStart(MetadataChecker):
    """The snapshot is a file that survives a power cut, ends within what is committed, at the end of a batch, in its epoch. So
    does one that its node tried to write and could not: a log whose snapshots are all refused grows for ever (RF-42)."""

    numbers: ClassVar[tuple[int, ...]] = (11,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._seen: dict[tuple[int, int], tuple[object, ...]] = {}
        self.facts.watch(SnapshotInstalled, self._on_installed)
        self.facts.watch(SnapshotLoaded, self._on_loaded)
        self.facts.watch(SnapshotFailed, self._on_failed)

    def on_raft(self, view: NodeView) -> None:
        metalog = view.raft.metalog
        ids = metalog.snapshots.ids
        stamp = (metalog.log_start_offset, ids)
        if self._seen.get(view.author) == stamp:
            return
        self._seen[view.author] = stamp
        start = metalog.log_start_offset
        where = f"node {view.node_id} starts its log at {start}"
        if start > 0 and not any(it.offset >= start for it in ids):
            self.fail(f"{where} and has only the snapshots {ids}")
        files = view.node.disk.surviving(view.directory, ".checkpoint")
        for it in ids:
            if snapshot_name(it) not in files:
                self.fail(f"{where} and counts on {snapshot_name(it)}, which a power cut would take: {sorted(files)}")
            if it.offset > self.facts.committed_end:
                self.fail(f"{where} and has {it}; only [0,{self.facts.committed_end}) is committed")
            last = self._last_before(it.offset)
            if last is None or last.next_offset != it.offset or last.epoch != it.epoch:
                self.fail(f"{where} and has {it}; the committed batch before its end is {last}")

    def _last_before(self, offset: int) -> Entry | None:
        return next((entry for entry in reversed(self.facts.committed) if entry.next_offset <= offset), None)

    def _on_failed(self, view: NodeView, event: SnapshotFailed) -> None:
        last = self._last_before(event.end_offset)
        if last is None or last.next_offset != event.end_offset or last.epoch != event.epoch:
            self.fail(
                f"node {view.node_id} cannot write a snapshot up to {event.end_offset} in epoch {event.epoch} ({event.error}); "
                f"the committed batch before its end is {last}"
            )

    def _on_installed(self, view: NodeView, event: SnapshotInstalled) -> None:
        if view.core is not None and isinstance(view.core.state, Leader):
            self.fail(f"node {view.node_id} installs the snapshot that ends at {event.end_offset} while it leads")

    def _on_loaded(self, view: NodeView, event: SnapshotLoaded) -> None:
        if view.controller is not None and view.controller.active:
            self.fail(f"controller {view.node_id} loads the snapshot that ends at {event.end_offset} while it is active")
