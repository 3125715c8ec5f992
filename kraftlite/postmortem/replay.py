"""The metadata at an offset: the snapshot before it, and the records behind that up to it.

A record that does not fit what is known is left out, with a sentence: the beginning of the log may not have been copied.

Source: KIP-630, KIP-868; ML-08 to ML-13.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kraftlite.log.control import SnapshotHeader
from kraftlite.metadata.batch_loader import BatchLoader
from kraftlite.metadata.delta import MetadataDelta
from kraftlite.metadata.image import MetadataImage, MetadataProvenance
from kraftlite.model.errors import Fault
from kraftlite.model.messages.raft import OffsetAndEpoch
from kraftlite.postmortem.files import MetadataFiles, NoMetadata
from kraftlite.postmortem.reading import Batch, Entry, Notes, Reader
from kraftlite.raft.client import CommittedBatch

_UNFIT_NAMED: Final = 3
"""So many records that do not fit are named one by one; the rest is counted."""


class Replay:
    """Folds batches into an image. `image` is that of everything fed so far, without an open metadata transaction."""

    def __init__(self, image: MetadataImage = MetadataImage.EMPTY, notes: Notes | None = None) -> None:
        self.notes = notes if notes is not None else Notes()
        self.next_offset = image.offset + 1
        self.unfit = 0
        self._loader = BatchLoader(lambda delta, image, manifest: None)
        self._loader.load_snapshot(image)

    @property
    def image(self) -> MetadataImage:
        self._loader.flush()
        return self._loader.image

    def feed(self, batch: Batch) -> None:
        """Replay a batch of the log."""
        header = batch.header
        for entry in batch.entries if not batch.is_control else ():
            self._load(entry, (entry.record,))
        offset = batch.entries[-1].offset if batch.entries else header.last_offset
        if self.next_offset <= offset and (batch.is_control or not batch.entries):
            last = Entry(offset=offset, epoch=header.partition_leader_epoch, time_ms=header.max_timestamp, record=None)
            self._load(last, ())
        self.next_offset = max(self.next_offset, offset + 1)

    def _load(self, entry: Entry, records: tuple[object, ...]) -> None:
        try:
            self._loader.load(
                CommittedBatch(
                    base_offset=entry.offset,
                    last_offset=entry.offset,
                    epoch=entry.epoch,
                    append_timestamp_ms=entry.time_ms,
                    size_bytes=0,
                    records=records,
                )
            )
        except Fault as fault:
            self.unfit += 1
            if self.unfit <= _UNFIT_NAMED:
                self.notes.add(f"{fault}: left out")
            elif self.unfit == _UNFIT_NAMED + 1:
                self.notes.add("more records do not fit what is known before them, and are left out: is the log whole?")


def snapshot_image(path: Path, snapshot_id: OffsetAndEpoch, reader: Reader) -> MetadataImage:
    """The image in a snapshot file, as far as it can be read."""
    delta, time_ms = MetadataDelta(MetadataImage.EMPTY), -1
    unfit = 0
    for batch in reader.snapshot(path):
        for entry in batch.entries:
            if batch.is_control:
                if isinstance(entry.record, SnapshotHeader):
                    time_ms = entry.record.last_contained_log_timestamp_ms
                continue
            try:
                delta.replay(entry.record)
            except Fault as fault:
                unfit += 1
                if unfit <= _UNFIT_NAMED:
                    reader.notes.add(f"{path}: a record is left out: {fault}")
    provenance = MetadataProvenance(
        last_contained_offset=snapshot_id.offset - 1,
        last_contained_epoch=snapshot_id.epoch,
        last_contained_log_time_ms=time_ms,
        is_offset_batch_aligned=True,
    )
    return delta.apply(provenance)


class MetadataAt:
    """The states of one metadata log.

    `end`: the offset behind the last that counts, such as the quorum's high watermark; None: the end of the files. What is
    behind it is as if it were not there.
    """

    def __init__(self, files: MetadataFiles, *, end: int | None = None) -> None:
        self.files = files
        self.end = end
        self.notes = Notes()

    def base(self, offset: int | None = None) -> tuple[MetadataImage, int]:
        """The newest snapshot that does not go beyond `offset` (None: the newest of all), and from where on the log goes on.

        Without such a snapshot that is nothing, and where the log begins. Raises NoMetadata when only later states are there.
        """
        begin = self._begin
        found = self._snapshots(offset)
        if found:
            return self._snapshot(found[-1])
        if begin is None or (begin > 0 and offset is not None and offset < begin):
            first = min([it.offset - 1 for it, _ in self.files.snapshots] + ([] if begin is None else [begin]))
            raise NoMetadata(f"{self.files.name}: nothing is there of offset {offset}; the files begin with offset {first}")
        return self._without_snapshot(begin)

    def oldest(self) -> tuple[MetadataImage, int]:
        """From where on the whole log can be told: nothing, or the oldest snapshot from which the log goes on."""
        begin = self._begin
        if begin == 0:
            return MetadataImage.EMPTY, 0
        found = [it for it in self._snapshots(None) if begin is not None and it[0].offset >= begin]
        return self._snapshot(found[0]) if found else self.base()

    def at(self, offset: int | None = None) -> MetadataImage:
        """The image after the record at `offset`; None: the last. Raises NoMetadata for an offset that cannot be told."""
        return self.replay(offset).image

    def replay(self, offset: int | None = None) -> Replay:
        """Do as `at`; the result can go on from there."""
        image, start = self.base(offset)
        replay = Replay(image, self.notes)
        for batch in self.batches(start, None if offset is None else offset + 1):
            replay.feed(batch)
        if offset is not None and replay.next_offset <= offset:
            last = f"offset {replay.next_offset - 1}" if replay.next_offset > 0 else "nothing"
            raise NoMetadata(f"{self.files.name}: there is no offset {offset}; what can be read ends with {last}")
        return replay

    def batches(self, start: int = 0, end: int | None = None) -> Iterator[Batch]:
        """The batches of the log from `start` on, below `end` and below what counts."""
        limits = [it for it in (end, self.end) if it is not None]
        yield from Reader(self.notes).log(self.files.segments, start=start, end=min(limits, default=None))

    def _snapshots(self, offset: int | None) -> list[tuple[OffsetAndEpoch, Path]]:
        limits = [it for it in (None if offset is None else offset + 1, self.end) if it is not None]
        most = min(limits, default=None)
        return [it for it in self.files.snapshots if most is None or it[0].offset <= most]

    @property
    def _begin(self) -> int | None:
        return self.files.segments[0][0] if self.files.segments else None

    def _snapshot(self, found: tuple[OffsetAndEpoch, Path]) -> tuple[MetadataImage, int]:
        (snapshot_id, path), begin = found, self._begin
        if begin is not None and begin > snapshot_id.offset:
            missing = f"offsets {snapshot_id.offset} to {begin - 1}"
            self.notes.add(f"{self.files.name}: {missing} are missing, and what they changed is not known")
        return snapshot_image(path, snapshot_id, Reader(self.notes)), snapshot_id.offset

    def _without_snapshot(self, begin: int) -> tuple[MetadataImage, int]:
        if begin > 0:
            self.notes.add(f"{self.files.name} begins with offset {begin}, without a snapshot: what was before is not known")
        return MetadataImage.EMPTY, begin
