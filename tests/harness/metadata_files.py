"""Metadata logs and snapshots as files: written with the production's own batches, and read as raw values."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kraftlite.host.disk import HostDisk
from kraftlite.log.batch import Record, build_batch, iter_batches
from kraftlite.log.control import LeaderChange, control_batch
from kraftlite.metadata import records as r
from kraftlite.metadata.batch_loader import BatchLoader
from kraftlite.metadata.codec import MetadataSerde
from kraftlite.metadata.image import MetadataImage
from kraftlite.metadata.records import MetadataRecord
from kraftlite.model.errors import ApiError
from kraftlite.model.ids import UNASSIGNED_DIR, UNCHANGED, NodeId
from kraftlite.model.messages.raft import OffsetAndEpoch
from kraftlite.raft.client import CommittedBatch
from kraftlite.raft.decoding import record_values
from kraftlite.raft.snapshots import write_snapshot_file
from tests.harness.metadata_support import LogMaker


@dataclass(frozen=True, slots=True)
class RawBatch:
    """The values of a data batch."""

    base_offset: int
    epoch: int
    timestamp_ms: int
    values: tuple[bytes, ...]


def raw_batches(*files: Path) -> Iterator[RawBatch]:
    """The data batches of segments and snapshots, in this order."""
    for file in files:
        for header, raw in iter_batches(file.read_bytes()):
            if not header.is_control:
                yield RawBatch(
                    header.base_offset, header.partition_leader_epoch, header.max_timestamp, tuple(record_values(header, raw))
                )


def image_of_batches(batches: Iterable[RawBatch]) -> MetadataImage:
    """The image that the loader makes of them."""
    serde = MetadataSerde()
    loader = BatchLoader(lambda _delta, _image, _manifest: None)
    for batch in batches:
        loader.load(
            CommittedBatch(
                base_offset=batch.base_offset,
                last_offset=batch.base_offset + len(batch.values) - 1,
                epoch=batch.epoch,
                append_timestamp_ms=batch.timestamp_ms,
                size_bytes=1,
                records=tuple(map(serde.decode, batch.values)),
            )
        )
    loader.flush()
    return loader.image


class MetadataFiles:
    """A metadata log in one segment, and snapshots beside it, as a controller at these levels of metadata.version leaves them."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder / "__cluster_metadata-0"
        self.folder.mkdir()
        self.log = self.folder / f"{0:020}.log"
        self.offset = 0
        self._disk = HostDisk()
        self._maker = LogMaker(random.Random(seed))
        leader = LeaderChange(leader_id=NodeId(1), voters=(NodeId(1),), granting_voters=(NodeId(1),))
        self._write(control_batch([leader], timestamp_ms=1_000, leader_epoch=1, base_offset=0), 1)

    def _write(self, batch: bytes, count: int) -> None:
        with self.log.open("ab") as file:
            file.write(batch)
        self.offset += count

    def append(self, level: int, records: Sequence[MetadataRecord]) -> None:
        """One batch."""
        encode = MetadataSerde(level).encode
        values = [Record(key=None, value=encode(it), offset_delta=delta) for delta, it in enumerate(records)]
        self._write(build_batch(values, base_offset=self.offset, leader_epoch=1, timestamp_ms=1_000 + self.offset), len(values))

    def history(self, level: int, count: int) -> None:
        """Upgrade to the level, and write so many random records of those that it has; in metadata transactions where there are
        any, of which one is aborted."""
        self.append(level, [r.FeatureLevelRecord(name="metadata.version", level=level)])
        if level >= 23:
            self.append(level, [r.FeatureLevelRecord(name="eligible.leader.replicas.version", level=1)])
        drawn = [found for it in self._maker.take(count) if (found := at_level(it, level)) is not None]
        transactions = level >= 13
        if transactions:
            gone = r.ConfigRecord(resource_type=4, resource_name="", name="aborted", value="1")
            self.append(level, [r.BeginTransactionRecord(name="gone"), gone])
            self.append(level, [gone, r.AbortTransactionRecord(reason="a test")])
            self.append(level, [r.BeginTransactionRecord(name="kept")])
        for start in range(0, len(drawn), 7):
            self.append(level, drawn[start : start + 7])
        if transactions:
            self.append(level, [r.EndTransactionRecord()])

    def snapshot(self) -> Path:
        """Write a snapshot of everything so far."""
        image = image_of_batches(raw_batches(self.log))
        level = image.features.metadata_version
        assert level is not None
        snapshot_id = OffsetAndEpoch(1, self.offset)
        return Path(
            write_snapshot_file(self._disk, str(self.folder), snapshot_id, [list(image.write())], MetadataSerde(level), 5)
        )


def at_level(record: MetadataRecord, level: int) -> MetadataRecord | None:
    """The record as a controller writes it at this level; None when it does not."""
    if isinstance(record, r.FeatureLevelRecord) and record.name == "metadata.version":
        return None
    if isinstance(record, r.RegisterBrokerRecord) and level < 17:
        record = replace(record, log_dirs=())
    elif isinstance(record, r.BrokerRegistrationChangeRecord) and level < 17:
        record = replace(record, log_dirs=UNCHANGED)
    elif isinstance(record, r.PartitionRecord) and level < 17:
        record = replace(record, directories=())
    elif isinstance(record, r.PartitionChangeRecord):
        moved = record.replicas
        directories = UNCHANGED if moved is UNCHANGED or level < 17 else (UNASSIGNED_DIR,) * len(moved)
        record = replace(record, directories=directories)
        if level < 23:
            record = replace(record, elr=UNCHANGED, last_known_elr=UNCHANGED)
    try:
        MetadataSerde(level).encode(record)
    except ApiError:
        return None
    return record
