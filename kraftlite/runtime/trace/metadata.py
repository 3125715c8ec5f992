"""The events between the committed metadata log and this node's view of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kraftlite.runtime.trace import TraceEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataCaughtUp(TraceEvent):
    """The gate is open: publishers hear of metadata from now on."""

    event: ClassVar[str] = "metadata.caught_up"
    metadata_offset: int
    high_watermark: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ImagePublished(TraceEvent):
    """`changed` names the parts that differ from the image before: features, cluster, topics, configs, producer_ids."""

    event: ClassVar[str] = "metadata.image_published"
    level: ClassVar[str] = "debug"
    metadata_offset: int
    changed: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublisherInitialized(TraceEvent):
    event: ClassVar[str] = "metadata.publisher_initialized"
    level: ClassVar[str] = "debug"
    publisher: str
    metadata_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PublisherFailed(TraceEvent):
    event: ClassVar[str] = "metadata.publisher_failed"
    level: ClassVar[str] = "error"
    publisher: str
    metadata_offset: int
    error: str
    trace: str
    """The stack: such an error is a bug."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataTransactionAborted(TraceEvent):
    event: ClassVar[str] = "metadata.transaction_aborted"
    level: ClassVar[str] = "warning"
    offset: int
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataVersionChanged(TraceEvent):
    event: ClassVar[str] = "metadata.version_changed"
    old: int | None
    new: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotLoaded(TraceEvent):
    event: ClassVar[str] = "metadata.snapshot_loaded"
    end_offset: int
    epoch: int
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotWritten(TraceEvent):
    event: ClassVar[str] = "metadata.snapshot_written"
    end_offset: int
    epoch: int
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotFailed(TraceEvent):
    event: ClassVar[str] = "metadata.snapshot_failed"
    level: ClassVar[str] = "error"
    end_offset: int
    epoch: int
    error: str
