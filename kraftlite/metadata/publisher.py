"""The interface that a subsystem implements in order to hear of metadata changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from kraftlite.metadata.delta import MetadataDelta
from kraftlite.metadata.image import MetadataImage, MetadataProvenance
from kraftlite.raft.client import LeaderAndEpoch


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The origin of a published update. "log": a tail of the log, in `num_batches` batches of `num_bytes` together;
    "snapshot": a metadata snapshot, or the whole image for a publisher that is new."""

    kind: Literal["log", "snapshot"]
    provenance: MetadataProvenance
    num_batches: int = 0
    num_bytes: int = 0
    leader_and_epoch: LeaderAndEpoch | None = None


class MetadataPublisher(Protocol):
    """Called by the loader's task alone, synchronously: must not block, may start tasks of its own.

    The first call a publisher gets is the whole image as a delta from nothing, then every change in log order, each
    delivered to all publishers, in the order of their installation, before the next one (ML-04, ML-05).
    """

    @property
    def name(self) -> str:
        """Unique among the installed publishers."""
        ...

    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage, manifest: Manifest) -> None: ...

    def on_controller_change(self, leader: LeaderAndEpoch) -> None: ...

    def close(self) -> None: ...
