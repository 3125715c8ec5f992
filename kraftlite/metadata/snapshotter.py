"""Metadata snapshots: when one is due, and writing it.

Source: Kafka's SnapshotGenerator; KIP-630; ML-10, ML-19, ML-20.
"""

from __future__ import annotations

from typing import Final

from kraftlite.metadata.codec import MetadataSerde
from kraftlite.metadata.delta import MetadataDelta
from kraftlite.metadata.image import MetadataImage
from kraftlite.metadata.publisher import Manifest
from kraftlite.metadata.records import MetadataRecord
from kraftlite.model.errors import ApiError
from kraftlite.raft.client import LeaderAndEpoch, RaftClient, SnapshotWriter
from kraftlite.runtime.ports import Ports, TaskHandle
from kraftlite.runtime.trace.metadata import SnapshotFailed, SnapshotWritten

DEFAULT_MAX_BYTES: Final = 20_971_520
DEFAULT_MAX_INTERVAL_MS: Final = 3_600_000


class SnapshotGenerator:
    """A publisher that writes a metadata snapshot when enough new records have come, or enough time has passed.

    `max_bytes_between`: `metadata.log.max.record.bytes.between.snapshots`; `max_interval_ms`:
    `metadata.log.max.snapshot.interval.ms`, 0 for never by time. One is also due when the latest was found to be damaged.
    Only images that end with a whole batch are written, one at a time. Loading a snapshot starts both counters again. A failure
    is reported as an event and tried again with the first image that comes `retry_backoff_ms` later; the node goes on (ML-20).
    """

    name = "SnapshotGenerator"

    def __init__(
        self,
        ports: Ports,
        raft: RaftClient,
        *,
        max_bytes_between: int = DEFAULT_MAX_BYTES,
        max_interval_ms: int = DEFAULT_MAX_INTERVAL_MS,
        retry_backoff_ms: int | None = None,
    ) -> None:
        self._ports = ports
        self._raft = raft
        self._max_bytes = max_bytes_between
        self._max_interval_ms = max_interval_ms
        self._retry_backoff_ms = ports.tuning.snapshot_retry_ms if retry_backoff_ms is None else retry_backoff_ms
        self._bytes = 0
        self._since_ms = ports.clock.now_ms()
        self.latest_ms = self._since_ms
        """The time at which this node wrote its last snapshot; of its start, while it wrote none."""
        self._retry_at_ms: int | None = None
        self._task: TaskHandle | None = None

    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage, manifest: Manifest) -> None:
        if manifest.kind == "snapshot":
            self._reset()
            return
        self._bytes += manifest.num_bytes
        if self._is_due() and manifest.provenance.is_offset_batch_aligned and self._task is None:
            self._reset()
            self._retry_at_ms = None
            self._task = self._ports.tasks.spawn(self._write(image), name="metadata-snapshot")

    def on_controller_change(self, leader: LeaderAndEpoch) -> None:
        return None

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _is_due(self) -> bool:
        now_ms = self._ports.clock.now_ms()
        if self._retry_at_ms is not None and now_ms >= self._retry_at_ms:
            return True
        if self._retry_at_ms is None and self._raft.latest_snapshot_is_damaged():
            return True
        if self._bytes >= self._max_bytes:
            return True
        return self._max_interval_ms > 0 and now_ms - self._since_ms >= self._max_interval_ms

    def _reset(self) -> None:
        self._bytes = 0
        self._since_ms = self._ports.clock.now_ms()

    async def _write(self, image: MetadataImage) -> None:
        snapshot_id = image.provenance.snapshot_id
        writer: SnapshotWriter | None = None
        frozen = False
        try:
            writer = self._raft.create_snapshot(snapshot_id, image.provenance.last_contained_log_time_ms)
            if writer is None:
                return
            count = await self._append_all(writer, image)
            await writer.freeze()
            frozen = True
            self.latest_ms = self._ports.clock.now_ms()
            self._ports.tracer.emit(SnapshotWritten(end_offset=snapshot_id.offset, epoch=snapshot_id.epoch, records=count))
        except (OSError, ValueError, ApiError) as error:
            # ValueError: raft has moved beyond this image meanwhile, e.g. loaded a newer snapshot. ApiError: the image has what
            # its own metadata.version cannot hold, and a snapshot without it would lose it
            self._retry_at_ms = self._ports.clock.now_ms() + self._retry_backoff_ms
            self._ports.tracer.emit(SnapshotFailed(end_offset=snapshot_id.offset, epoch=snapshot_id.epoch, error=str(error)))
        finally:
            self._task = None
            if writer is not None and not frozen:
                writer.abandon()

    async def _append_all(self, writer: SnapshotWriter, image: MetadataImage) -> int:
        level = image.features.metadata_version
        encode = (MetadataSerde() if level is None else MetadataSerde(level)).encode
        count = 0
        chunk: list[MetadataRecord] = []
        for record in image.write():
            chunk.append(record)
            if len(chunk) == self._ports.tuning.snapshot_records_per_batch:
                writer.append(chunk, [encode(it) for it in chunk])
                count += len(chunk)
                chunk = []
                await self._ports.clock.sleep(0)
        if chunk:
            writer.append(chunk, [encode(it) for it in chunk])
        return count + len(chunk)
