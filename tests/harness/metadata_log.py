"""Metadata logs and snapshots as files, made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kraftlite.log.batch import Record, build_batch
from kraftlite.log.control import ControlRecord, LeaderChange, SnapshotFooter, SnapshotHeader, control_batch
from kraftlite.metadata.codec import MetadataSerde
from kraftlite.model.ids import NodeId

SERDE = MetadataSerde()


def snapshot(directory: Path, end_offset: int, records: Sequence[Any], *, epoch: int = 1, time_ms: int = 0) -> Path:
    """Write a snapshot as a controller does: the header, the records in one batch, the footer."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{end_offset:020d}-{epoch:010d}.checkpoint"
    header: list[ControlRecord] = [SnapshotHeader(last_contained_log_timestamp_ms=time_ms)]
    data = control_batch(header, timestamp_ms=time_ms, leader_epoch=epoch)
    encoded = [Record(None, SERDE.encode(record)) for record in records]
    if encoded:
        data += build_batch(encoded, base_offset=1, leader_epoch=epoch, timestamp_ms=time_ms)
    end = 1 + len(encoded)
    path.write_bytes(data + control_batch([SnapshotFooter()], timestamp_ms=time_ms, leader_epoch=epoch, base_offset=end))
    return path


class MetadataLog:
    """A metadata log under construction. `add` and `leader` append a batch each, and write it to the file."""

    def __init__(self, directory: Path, *, base: int = 0) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.offset = base
        self.epoch = 1
        self._roll()

    def _roll(self) -> None:
        self.path = self.directory / f"{self.offset:020d}.log"
        self.path.write_bytes(b"")

    def roll(self) -> None:
        """Begin a new segment."""
        self._roll()

    def add(self, time_ms: int, *records: Any, epoch: int | None = None) -> int:
        """Returns the offset of the first record."""
        first = self.offset
        encoded = [Record(None, SERDE.encode(record)) for record in records]
        self.raw(
            build_batch(encoded, base_offset=first, leader_epoch=self.epoch if epoch is None else epoch, timestamp_ms=time_ms)
        )
        self.offset += len(records)
        return first

    def leader(self, time_ms: int, node: int, epoch: int) -> int:
        self.epoch = epoch
        change = LeaderChange(leader_id=NodeId(node), voters=(NodeId(1), NodeId(2)), granting_voters=(NodeId(node),))
        return self.control(time_ms, change)

    def control(self, time_ms: int, *controls: ControlRecord) -> int:
        first = self.offset
        self.raw(control_batch(controls, timestamp_ms=time_ms, leader_epoch=self.epoch, base_offset=first))
        self.offset += len(controls)
        return first

    def raw(self, data: bytes) -> None:
        with self.path.open("ab") as file:
            file.write(data)
