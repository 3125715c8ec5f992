"""A metadata snapshot is written when it is due: without any a log grows for ever, and too many keep disks and loops busy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from kraftlite.metadata.snapshotter import SnapshotGenerator
from kraftlite.runtime.trace import TraceEvent
from kraftlite.runtime.trace.metadata import PublisherInitialized, SnapshotFailed, SnapshotLoaded, SnapshotWritten
from kraftlite.runtime.trace.raft import SnapshotDamaged
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.sim.checkers.model import MetadataState
from kraftlite.sim.checkers.views import Entry, NodeView, running

_SLACK_MS: Final = 2_000


@dataclass(slots=True)
class _Count:
    """The place from which an incarnation counts. `written`: its own snapshot ends at `offset`, committed at `at_us`."""

    offset: int
    at_us: int
    written: bool = False


class SnapshotsDue(MetadataChecker):
    """The second of two snapshots that an incarnation writes has as many bytes more of the log as
    `metadata.log.max.record.bytes.between.snapshots` says, or `metadata.log.max.snapshot.interval.ms` have passed. When the
    faults are over none is overdue."""

    numbers: ClassVar[tuple[int, ...]] = (11,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._counts: dict[tuple[int, int], _Count] = {}
        self._committed_us: dict[int, int] = {}
        """By the offset at which a batch ends, the time at which that was committed."""
        self._now_us = world.cluster.loop.now_us
        self.facts.watch(PublisherInitialized, self._on_initialized)
        self.facts.watch(SnapshotWritten, self._on_written)
        self.facts.watch(SnapshotLoaded, self._on_loaded)
        self.facts.watch(SnapshotFailed, self._on_doubt)
        self.facts.watch(SnapshotDamaged, self._on_doubt)

    def on_commit(self, entry: Entry, before: MetadataState, after: MetadataState) -> None:
        self._committed_us[entry.next_offset] = self._now_us()

    def _on_initialized(self, view: NodeView, event: PublisherInitialized) -> None:
        """Whatever was loaded by then does not count."""
        if event.publisher == SnapshotGenerator.name:
            self._counts[view.author] = _Count(event.metadata_offset + 1, self._now_us())

    def _on_loaded(self, view: NodeView, event: SnapshotLoaded) -> None:
        self._counts[view.author] = _Count(event.end_offset, self._now_us())

    def _on_doubt(self, view: NodeView, event: TraceEvent) -> None:
        """Another one is due soon, whatever has come."""
        found = self._counts.get(view.author)
        if found is not None:
            found.written, found.at_us = False, self._now_us()

    def _on_written(self, view: NodeView, event: SnapshotWritten) -> None:
        before, now_us = self._counts.get(view.author), self._now_us()
        self._counts[view.author] = _Count(event.end_offset, self._committed_us.get(event.end_offset, now_us), written=True)
        if before is None or not before.written:
            return
        size, most, interval_ms = self._size(before.offset, event.end_offset), *_limits(view)
        passed_ms = (now_us - before.at_us) * (1_000_000 + view.node.fastest_ppm) // 1_000_000_000 + 1
        if size < most and not 0 < interval_ms <= passed_ms:
            self.fail(
                f"node {view.node_id} writes a snapshot that ends at {event.end_offset}, {size} bytes behind the last one, which "
                f"ends at {before.offset}, and {passed_ms} ms after that; due is one after {most} bytes or {interval_ms} ms"
            )

    def _size(self, begin: int, end: int) -> int:
        """Return the size of the committed batches from `begin` to `end`."""
        size = 0
        for entry in reversed(self.facts.committed):
            if entry.base_offset < begin:
                break
            size += len(entry.raw) if entry.next_offset <= end else 0
        return size

    def unsettled(self) -> str | None:
        for view in running(self.facts.views.values()):
            found, node = self._counts.get(view.author), view.node.node
            if found is None or node is None or view.node.paused:
                continue
            most, interval_ms = _limits(view)
            size = self._size(found.offset, node.loader.last_applied_offset() + 1)
            passed_ms = (self._now_us() - found.at_us) * (1_000_000 + view.node.slowest_ppm) // 1_000_000_000
            late = interval_ms and passed_ms > interval_ms + view.node.tuning.snapshot_retry_ms + _SLACK_MS
            if size >= most or late:
                return (
                    f"node {view.node_id} has {size} bytes behind its last snapshot, which is {passed_ms} ms old; another is "
                    f"due after {most} bytes or {interval_ms} ms"
                )
        return None


def _limits(view: NodeView) -> tuple[int, int]:
    get = view.node.config.get_int
    return get("metadata.log.max.record.bytes.between.snapshots"), get("metadata.log.max.snapshot.interval.ms")
