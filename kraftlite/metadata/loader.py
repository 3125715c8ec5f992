"""The metadata loader: committed records in, images out, publishers told.

Source: Kafka's MetadataLoader; ML-01 to ML-12.
"""

from __future__ import annotations

import asyncio
import traceback
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import fields
from functools import partial
from typing import Any, Final

from kraftlite.metadata.batch_loader import BatchLoader
from kraftlite.metadata.delta import MetadataDelta
from kraftlite.metadata.image import MetadataImage, MetadataProvenance
from kraftlite.metadata.publisher import Manifest, MetadataPublisher
from kraftlite.model.errors import Fault
from kraftlite.model.ids import NodeId
from kraftlite.raft.client import CommittedBatch, LeaderAndEpoch, LoadedSnapshot, RaftClient
from kraftlite.runtime.ports import Ports, TaskHandle, TimerHandle
from kraftlite.runtime.trace.metadata import (
    ImagePublished,
    MetadataCaughtUp,
    MetadataTransactionAborted,
    MetadataVersionChanged,
    PublisherFailed,
    PublisherInitialized,
    SnapshotLoaded,
)

INITIALIZE_RETRY_MS: Final = 100
"""The interval at which a new publisher is tried while the loader is not caught up (ML-04)."""

_PARTS: Final = tuple(part.name for part in fields(MetadataImage) if part.name != "provenance")
Event = Callable[[], Awaitable[None]]


class MetadataLoader:
    """Owns the node's metadata image. Raft calls the `handle_*` methods; one task does the work in the same order.

    `image` is replaced by a single assignment and always the latest, even while the gate is closed; publishers are told only
    once the loader has caught up with the quorum's high watermark (ML-02, ML-03). An error in a publisher goes to
    `publisher_fault` and stops neither the others nor later updates (ML-07). A record that can not be replayed is a Fault of
    the loader's task: the node must stop.
    """

    def __init__(
        self,
        ports: Ports,
        raft: RaftClient,
        *,
        publisher_fault: Callable[[BaseException, str], None] | None = None,
    ) -> None:
        self.image = MetadataImage.EMPTY
        self.elections_left: Callable[[], bool] = lambda: False
        """Tells whether a publisher still has new leaders to carry out: metadata that comes later waits for them, because to load
        it would take the loop's time from what clients wait for."""
        self._ports = ports
        self._raft = raft
        self._slice = ports.tuning.records_per_slice
        self._publisher_fault = publisher_fault or ports.fault
        self._batches = BatchLoader(self._publish, on_abort=self._aborted)
        self._leader = raft.leader_and_epoch()
        self._catching_up = True
        self._last_applied = -1
        self.last_applied_time_ms = 0
        """The time at which the last record of the image that was published was appended; 0 while there is none."""
        self.snapshots_loaded = 0
        self._names: set[str] = set()
        self._waiting: list[MetadataPublisher] = []
        self._publishers: dict[str, MetadataPublisher] = {}
        # Not bounded here: it holds what raft has committed and handed over, and can neither be refused nor dropped.
        self._queue: deque[Event] = deque()
        self._wakeup = asyncio.Event()
        self._retry: TimerHandle | None = None
        self._task: TaskHandle | None = None

    # --- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Register with raft and begin to load."""
        if self._task is None:
            self._task = self._ports.tasks.spawn(self._run(), name="metadata-loader")
            self._raft.register(self)

    async def stop(self) -> None:
        """Stop loading and close all publishers, in order of installation."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        publishers = [*self._publishers.values(), *self._waiting]
        self._publishers.clear()
        self._waiting.clear()
        self._names.clear()
        for publisher in publishers:
            self.guard(publisher, publisher.close)

    # --- publishers ---------------------------------------------------------------------------------------------------

    def install_publishers(self, publishers: Sequence[MetadataPublisher]) -> None:
        """Each gets the whole image once the loader has caught up, then every change. A name that is taken is reported as a
        fault and none of the list is installed (ML-06)."""
        names = [publisher.name for publisher in publishers]
        taken = sorted({name for name in names if name in self._names or names.count(name) > 1})
        if taken:
            self._publisher_fault(ValueError(f"metadata publishers {', '.join(taken)} are installed already"), "metadata-loader")
            return
        self._names.update(names)
        self._waiting.extend(publishers)
        self._enqueue(self._initialize)

    def remove_publisher(self, publisher: MetadataPublisher) -> None:
        """Remove a publisher: it hears of nothing more, and is closed. Unknown publishers are ignored."""
        if publisher.name not in self._names:
            return
        self._names.discard(publisher.name)
        if publisher in self._waiting:
            self._waiting.remove(publisher)
        else:
            self._publishers.pop(publisher.name, None)
        self.guard(publisher, publisher.close)

    def last_applied_offset(self) -> int:
        """The offset of the last image that was published; -1 while none was."""
        return self._last_applied

    @property
    def leader_id(self) -> NodeId | None:
        """The quorum's leader, as publishers were told last."""
        return self._leader.leader_id

    # --- RaftListener -------------------------------------------------------------------------------------------------

    def holds_back(self) -> bool:
        return self.elections_left()

    def handle_commit(self, batches: Sequence[CommittedBatch]) -> None:
        kept = tuple(batches)
        self._enqueue(lambda: self._load(kept))

    def handle_load_snapshot(self, snapshot: LoadedSnapshot) -> None:
        batches = list(snapshot.batches())  # the snapshot is valid only now
        snapshot_id = snapshot.snapshot_id
        provenance = MetadataProvenance(
            last_contained_offset=snapshot_id.offset - 1,
            last_contained_epoch=snapshot_id.epoch,
            last_contained_log_time_ms=snapshot.last_contained_timestamp_ms,
            is_offset_batch_aligned=True,
        )
        size_bytes = snapshot.size_bytes
        self._enqueue(lambda: self._load_snapshot(provenance, batches, size_bytes))

    def handle_leader_change(self, leader: LeaderAndEpoch) -> None:
        self._enqueue(lambda: self._change_leader(leader))

    # --- the task -----------------------------------------------------------------------------------------------------

    def _enqueue(self, event: Event) -> None:
        self._queue.append(event)
        self._wakeup.set()

    async def _run(self) -> None:
        while True:
            while self._queue:
                await self._queue.popleft()()
            self._wakeup.clear()
            await self._wakeup.wait()

    async def _load(self, batches: Sequence[CommittedBatch]) -> None:
        replayed = 0
        for batch in batches:
            while self.elections_left():
                await self._ports.clock.sleep(0)
            for _ in self._batches.load_in_steps(batch, self._leader, self._slice):
                await self._ports.clock.sleep(0)
            replayed += len(batch.records) % self._slice
            if replayed >= self._slice:
                replayed = 0
                await self._ports.clock.sleep(0)
        self._batches.flush(self._leader)
        if self._waiting:
            await self._initialize()

    async def _load_snapshot(self, provenance: MetadataProvenance, batches: list[tuple[Any, ...]], size_bytes: int) -> None:
        delta = MetadataDelta(self._batches.image)
        replayed = total = 0
        for records in batches:
            for record in records:
                try:
                    delta.replay(record)
                except Fault as fault:
                    raise Fault(f"metadata snapshot {provenance.snapshot_id}: {fault}") from fault
                replayed += 1
                if replayed >= self._slice:
                    replayed = 0
                    await self._ports.clock.sleep(0)
            total += len(records)
        delta.finish_snapshot()
        image = delta.apply(provenance)
        self._batches.load_snapshot(image)
        self.snapshots_loaded += 1
        self._ports.tracer.emit(
            SnapshotLoaded(end_offset=provenance.last_contained_offset + 1, epoch=provenance.last_contained_epoch, records=total)
        )
        self._publish(
            delta,
            image,
            Manifest(
                kind="snapshot",
                provenance=provenance,
                num_batches=len(batches),
                num_bytes=size_bytes,
                leader_and_epoch=self._leader,
            ),
        )
        if self._waiting:
            await self._initialize()

    async def _change_leader(self, leader: LeaderAndEpoch) -> None:
        self._leader = leader
        for publisher in list(self._publishers.values()):
            self.guard(publisher, partial(publisher.on_controller_change, leader))

    def _publish(self, delta: MetadataDelta, image: MetadataImage, manifest: Manifest) -> None:
        before, self.image = self.image, image
        if before.features.metadata_version != image.features.metadata_version:
            versions = MetadataVersionChanged(old=before.features.metadata_version, new=image.features.metadata_version)
            self._ports.tracer.emit(versions)
        if self._still_catching_up():
            return
        changed = tuple(part for part in _PARTS if getattr(before, part) is not getattr(image, part))
        if changed:
            self._ports.tracer.emit(ImagePublished(metadata_offset=image.offset, changed=changed))
        for publisher in list(self._publishers.values()):
            self._update(publisher, delta, image, manifest)
        self._note_applied(image)

    async def _initialize(self) -> None:
        """Give the whole image to the publishers that wait, or try again later."""
        if not self._waiting:
            return
        if self._still_catching_up():
            if self._retry is None:
                self._retry = self._ports.clock.call_later(INITIALIZE_RETRY_MS, self._retry_initialize)
            return
        image = self.image
        delta = MetadataDelta(MetadataImage.EMPTY)
        for count, record in enumerate(image.write(), start=1):
            delta.replay(record)
            if count % self._slice == 0:
                await self._ports.clock.sleep(0)
        delta.finish_snapshot()
        manifest = Manifest(kind="snapshot", provenance=image.provenance, leader_and_epoch=self._leader)
        while self._waiting:
            publisher = self._waiting.pop(0)
            self._publishers[publisher.name] = publisher
            self._ports.tracer.emit(PublisherInitialized(publisher=publisher.name, metadata_offset=image.offset))
            self._update(publisher, delta, image, manifest)
            self.guard(publisher, partial(publisher.on_controller_change, self._leader))
        self._note_applied(image)

    def _note_applied(self, image: MetadataImage) -> None:
        self._last_applied = image.offset
        self.last_applied_time_ms = max(0, image.provenance.last_contained_log_time_ms)

    def _retry_initialize(self) -> None:
        self._retry = None
        self._enqueue(self._initialize)

    def _still_catching_up(self) -> bool:
        """Closed until the high watermark is known and reached and a real record was seen; then open for good (ML-02)."""
        if not self._catching_up:
            return False
        high_watermark = self._raft.high_watermark()
        if high_watermark is None or self.image.offset < high_watermark - 1 or not self._batches.has_seen_record:
            return True
        self._catching_up = False
        self._ports.tracer.emit(MetadataCaughtUp(metadata_offset=self.image.offset, high_watermark=high_watermark))
        return False

    def _update(self, publisher: MetadataPublisher, delta: MetadataDelta, image: MetadataImage, manifest: Manifest) -> None:
        self.guard(publisher, partial(publisher.on_metadata_update, delta, image, manifest))

    def guard(self, publisher: MetadataPublisher, call: Callable[[], None]) -> None:
        """Do a part of `publisher`'s work, now or later than it was told: an error is reported as one of its own (ML-07)."""
        try:
            call()
        except Exception as error:  # noqa: BLE001 - ML-07: reported, and the other publishers go on
            self._ports.tracer.emit(
                PublisherFailed(
                    publisher=publisher.name,
                    metadata_offset=self.image.offset,
                    error=f"{type(error).__name__}: {error}",
                    trace="".join(traceback.format_exception(error)),
                )
            )
            self._publisher_fault(error, f"metadata-publisher {publisher.name}")

    def _aborted(self, offset: int, reason: str | None) -> None:
        self._ports.tracer.emit(MetadataTransactionAborted(offset=offset, reason=reason))
