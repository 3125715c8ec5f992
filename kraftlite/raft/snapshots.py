"""Metadata snapshots as files: `%020d-%010d.checkpoint`, end offset and epoch, beside the log segments.

A snapshot is a sequence of record batches: a SnapshotHeader control record first, with kraft.version and voters behind it in the
same batch where the log says them, a SnapshotFooter last, data between. While it is being written or downloaded it ends in
`.part`; a doomed one ends in `.deleted`.

Source: KIP-630, KIP-853; RF-41, RF-44 to RF-48, DQ-05.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from kraftlite.log.batch import HEADER_BYTES, Record, build_batch, check_crc, iter_records, parse_header
from kraftlite.log.control import ControlRecord, SnapshotFooter, SnapshotHeader, decode_control, encode_control
from kraftlite.model.errors import ApiError, Fault
from kraftlite.model.limits import MIB, RAFT_MAX_BATCH_BYTES
from kraftlite.model.messages.raft import OffsetAndEpoch
from kraftlite.raft.client import RecordSerde
from kraftlite.runtime.ports import Disk, File

BOOTSTRAP_SNAPSHOT_ID = OffsetAndEpoch(epoch=0, offset=0)
"""Written by the storage formatter. Local only: never offered to a peer (RF-48), never cleaned."""

_NAME = re.compile(r"^(\d{20})-(\d{10})\.checkpoint(\.part|\.deleted)?$")
_AHEAD_BYTES = 2 * MIB
"""So much of a download is checked and made durable in one turn."""
_BATCH_BYTES = MIB
_BATCH_RECORDS = 1_000
_PREFIX = struct.Struct(">qi")


def snapshot_name(snapshot_id: OffsetAndEpoch) -> str:
    return f"{snapshot_id.offset:020d}-{snapshot_id.epoch:010d}.checkpoint"


def parse_snapshot_name(name: str) -> tuple[OffsetAndEpoch, str] | None:
    """The id and the suffix ("", ".part", ".deleted"); None for any other file."""
    match = _NAME.match(name)
    return (OffsetAndEpoch(epoch=int(match[2]), offset=int(match[1])), match[3] or "") if match else None


class SnapshotStore:
    """The snapshots in one directory, in (epoch, offset) order; the bootstrap snapshot is not among them.

    Raises OSError when the disk fails.
    """

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self.directory = directory
        self._ids: list[OffsetAndEpoch] = []
        self._doomed: list[str] = []
        self.damaged: set[OffsetAndEpoch] = set()
        """Those of which damage is known and which are still there, because nothing else has what they have."""

    def load(self) -> None:
        """Find the snapshots and remove the leftovers of unfinished writes and deletions (RF-46)."""
        self._ids.clear()
        for name in self._disk.listdir(self.directory):
            parsed = parse_snapshot_name(name)
            if parsed is None:
                continue
            snapshot_id, suffix = parsed
            if suffix:
                self._disk.unlink(f"{self.directory}/{name}")
            elif snapshot_id != BOOTSTRAP_SNAPSHOT_ID:
                self._ids.append(snapshot_id)
        self._ids.sort()

    @property
    def ids(self) -> tuple[OffsetAndEpoch, ...]:
        return tuple(self._ids)

    @property
    def latest(self) -> OffsetAndEpoch | None:
        return self._ids[-1] if self._ids else None

    @property
    def earliest(self) -> OffsetAndEpoch | None:
        return self._ids[0] if self._ids else None

    def path(self, snapshot_id: OffsetAndEpoch) -> str:
        return f"{self.directory}/{snapshot_name(snapshot_id)}"

    def size(self, snapshot_id: OffsetAndEpoch) -> int:
        stat = self._disk.stat(self.path(snapshot_id))
        return stat.size if stat is not None else 0

    def contains(self, snapshot_id: OffsetAndEpoch) -> bool:
        return snapshot_id in self._ids

    def add(self, snapshot_id: OffsetAndEpoch) -> None:
        self.damaged.discard(snapshot_id)
        if snapshot_id not in self._ids:
            self._ids.append(snapshot_id)
            self._ids.sort()

    def read_chunk(self, snapshot_id: OffsetAndEpoch, position: int, max_bytes: int) -> bytes:
        file = self._disk.open(self.path(snapshot_id))
        try:
            return file.pread(max_bytes, position)
        finally:
            file.close()

    def open_reader(self, snapshot_id: OffsetAndEpoch, serde: RecordSerde) -> SnapshotReader:
        return SnapshotReader(self._disk, self.path(snapshot_id), serde)

    def create_part(self, snapshot_id: OffsetAndEpoch) -> PartialSnapshot:
        return PartialSnapshot(self._disk, self, snapshot_id)

    def doom(self, snapshot_id: OffsetAndEpoch) -> None:
        """Take a snapshot out of sight; `purge` removes the file."""
        self._ids.remove(snapshot_id)
        self.damaged.discard(snapshot_id)
        path = self.path(snapshot_id)
        if self._disk.stat(path) is not None:
            self._disk.rename(path, path + ".deleted")
            self._doomed.append(path + ".deleted")

    def take_doomed(self) -> list[str]:
        doomed, self._doomed = self._doomed, []
        return doomed

    def unlink(self, paths: Iterable[str]) -> None:
        for path in paths:
            if self._disk.stat(path) is not None:
                self._disk.unlink(path)


class PartialSnapshot:
    """A snapshot that is not complete: `.part` until `complete`. Bytes are appended in order (RF-44, RF-45)."""

    def __init__(self, disk: Disk, store: SnapshotStore, snapshot_id: OffsetAndEpoch) -> None:
        self.snapshot_id = snapshot_id
        self.position = 0
        self.size: int | None = None
        """The size of the whole snapshot, as the leader said with the first bytes."""
        self._checked = 0
        """The batches up to here are checked."""
        self._disk = disk
        self._store = store
        self._path = store.path(snapshot_id) + ".part"
        self._file: File | None = disk.open(self._path, create=True)
        self._file.truncate(0)

    @property
    def file(self) -> File:
        assert self._file is not None, f"{self._path} is already closed"
        return self._file

    def append(self, *buffers: bytes) -> None:
        self.position += self.file.pwritev(buffers, self.position)

    def check_ahead(self, serde: RecordSerde) -> None:
        """Check and make durable what has come since the last time: when the last bytes are there, little is left to do in one
        turn. Raises Fault as `verify`."""
        if self.position - self._checked < _AHEAD_BYTES:
            return
        with SnapshotReader(self._disk, self._path, serde) as reader:
            self._checked = reader.verify_part(self._checked)
        self.file.sync()

    def verify(self, serde: RecordSerde) -> None:
        """Raises Fault or ApiError(CORRUPT_MESSAGE) when these bytes are not a whole snapshot."""
        with SnapshotReader(self._disk, self._path, serde) as reader:
            reader.verify(self._checked)

    def controls(self, serde: RecordSerde) -> tuple[ControlRecord, ...]:
        with SnapshotReader(self._disk, self._path, serde) as reader:
            return reader.controls()

    def complete(self) -> None:
        """Make the file durable and rename it: from here on the snapshot exists."""
        self.file.sync()
        self.publish()

    def publish(self) -> None:
        """Rename the file; the caller has made the bytes durable."""
        self.file.close()
        self._file = None
        self._disk.rename(self._path, self._store.path(self.snapshot_id))
        self._disk.sync_dir(self._store.directory)
        self._store.add(self.snapshot_id)

    def abandon(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
            self._disk.unlink(self._path)


class SnapshotBatches:
    """Turns records into the bytes of a snapshot, batch by batch."""

    def __init__(
        self,
        snapshot_id: OffsetAndEpoch,
        serde: RecordSerde,
        last_contained_timestamp_ms: int,
        controls: Sequence[ControlRecord] = (),
    ) -> None:
        """`controls`: what the log says of kraft.version and voters at the end of the snapshot."""
        self._controls = controls
        self._epoch = snapshot_id.epoch
        self._serde = serde
        self._timestamp_ms = last_contained_timestamp_ms
        self._next_offset = 0
        self._pending: list[Record] = []
        self._pending_bytes = 0

    def header(self) -> bytes:
        return self._control(SnapshotHeader(last_contained_log_timestamp_ms=self._timestamp_ms), *self._controls)

    def add(self, records: Sequence[Any], encoded: Sequence[bytes] | None = None) -> Iterator[bytes]:
        for value in map(self._serde.encode, records) if encoded is None else encoded:
            self._pending.append(Record(key=None, value=value, offset_delta=len(self._pending)))
            self._pending_bytes += len(value)
            if self._pending_bytes >= _BATCH_BYTES or len(self._pending) >= _BATCH_RECORDS:
                yield self._batch()

    def finish(self) -> Iterator[bytes]:
        if self._pending:
            yield self._batch()
        yield self._control(SnapshotFooter())

    def _batch(self) -> bytes:
        records, self._pending, self._pending_bytes = self._pending, [], 0
        return self._build(records, control_batch=False)

    def _control(self, *said: ControlRecord) -> bytes:
        records = [encode_control(control)._replace(offset_delta=delta) for delta, control in enumerate(said)]
        return self._build(records, control_batch=True)

    def _build(self, records: list[Record], *, control_batch: bool) -> bytes:
        batch = build_batch(
            records,
            base_offset=self._next_offset,
            leader_epoch=self._epoch,
            timestamp_ms=self._timestamp_ms,
            control=control_batch,
        )
        self._next_offset += len(records)
        return batch


class FileSnapshotWriter:
    """The `SnapshotWriter` of this node's state machines."""

    def __init__(
        self,
        part: PartialSnapshot,
        serde: RecordSerde,
        last_contained_timestamp_ms: int,
        on_frozen: Callable[[OffsetAndEpoch, int], None],
        controls: Sequence[ControlRecord] = (),
        is_wanted: Callable[[OffsetAndEpoch], bool] = lambda _: True,
    ) -> None:
        self._part = part
        self._is_wanted = is_wanted
        self._batches = SnapshotBatches(part.snapshot_id, serde, last_contained_timestamp_ms, controls)
        self._on_frozen = on_frozen
        part.append(self._batches.header())

    def append(self, records: Sequence[Any], encoded: Sequence[bytes] | None = None) -> None:
        for batch in self._batches.add(records, encoded):
            self._part.append(batch)

    async def freeze(self) -> None:
        """Write the footer, make the file durable, and give it its name. Raises ValueError when the log has left it behind."""
        self._part.append(*self._batches.finish())
        await self._part.file.flush()
        if not self._is_wanted(self._part.snapshot_id):
            raise ValueError(f"snapshot {self._part.snapshot_id} ends before the log, which a newer one has replaced meanwhile")
        self._part.publish()
        self._on_frozen(self._part.snapshot_id, self._part.position)

    def abandon(self) -> None:
        self._part.abandon()


class SnapshotReader:
    """Reads a snapshot file batch by batch and checks every CRC. Implements `LoadedSnapshot`.

    The file stays open until `close` (or the end of a `with`): it may be deleted meanwhile.
    Raises Fault when the file is torn or does not begin with a header and end with a footer.
    """

    def __init__(self, disk: Disk, path: str, serde: RecordSerde) -> None:
        parsed = parse_snapshot_name(path.rpartition("/")[2])
        if parsed is None:
            raise ValueError(f"{path} is not named like a snapshot, <end offset>-<epoch>.checkpoint")
        self.snapshot_id = parsed[0]
        self._path = path
        self._serde = serde
        self._file = disk.open(path)
        self.size_bytes = self._file.size()

    def __enter__(self) -> SnapshotReader:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()

    @property
    def last_contained_timestamp_ms(self) -> int:
        for is_control, records in self.raw_batches():
            said = self._said(0, iter(records)) if is_control else None
            if isinstance(said, SnapshotHeader):
                return said.last_contained_log_timestamp_ms
            break
        raise self._damaged("it does not begin with a snapshot header")

    def controls(self) -> tuple[ControlRecord, ...]:
        """Return what the first batch says behind the header: kraft.version and voters, or nothing."""
        for is_control, records in self.raw_batches():
            said = [decode_control(record) for record in records] if is_control else []
            return tuple(control for control in said[1:] if control is not None)
        raise self._damaged("it does not begin with a snapshot header")

    def verify(self, position: int = 0) -> None:
        """Check every batch from the boundary `position` on, without decoding records. Raises Fault as reading would."""
        kind: ControlRecord | None = None
        while position < self.size_bytes:
            kind, position = self._check(position)
        if not isinstance(kind, SnapshotFooter):
            raise self._damaged("it does not end with a snapshot footer")

    def verify_chunk(self, begin: int, end: int) -> None:
        """Check the batches that have bytes in [begin, end), and the footer if it is one. Raises Fault as reading would."""
        if not self.size_bytes:
            raise self._damaged("it is empty")
        position = 0
        while (behind := self._end_of(position)) <= begin:
            position = behind
        while position < end:
            kind, position = self._check(position)
            if position == self.size_bytes and not isinstance(kind, SnapshotFooter):
                raise self._damaged("it does not end with a snapshot footer")

    def verify_part(self, position: int) -> int:
        """Check the batches from the boundary `position` on that are there whole, but for the last of them; return where the
        next one begins. Raises Fault."""
        while (end := self._end_of(position)) < self.size_bytes:
            if self._end_of(end) > self.size_bytes:
                return position
            _, position = self._check(position)
        return position

    def _check(self, position: int) -> tuple[ControlRecord | None, int]:
        """Check one batch; return what its first record says if it is a control batch, and where the next one begins."""
        raw = self._read_batch(position)
        header = parse_header(raw)
        if not check_crc(raw, header):
            raise self._damaged(f"the CRC of the batch at byte {position} does not match")
        kind = self._said(position, iter_records(raw)) if header.is_control else None
        if position == 0 and not isinstance(kind, SnapshotHeader):
            raise self._damaged("it does not begin with a snapshot header")
        return kind, position + len(raw)

    def _end_of(self, position: int) -> int:
        """Return where the batch that begins there ends, which may not be there yet. Raises Fault when it says nonsense."""
        prefix = self._file.pread(_PREFIX.size, position)
        size = _PREFIX.unpack(prefix)[1] + _PREFIX.size if len(prefix) == _PREFIX.size else HEADER_BYTES
        if not HEADER_BYTES <= size <= RAFT_MAX_BATCH_BYTES + MIB:
            raise self._damaged(f"it is torn at byte {position} of {self.size_bytes}")
        return position + size

    def batches(self) -> Iterator[tuple[Any, ...]]:
        decode = self._serde.decode
        for is_control, records in self.raw_batches():
            if not is_control:
                yield tuple([decode(record.value) for record in records if record.value is not None])

    def raw_batches(self) -> Iterator[tuple[bool, list[Record]]]:
        """Every batch, control batches included, as (is control, records)."""
        position = 0
        while position < self.size_bytes:
            raw = self._read_batch(position)
            header = parse_header(raw)
            if not check_crc(raw, header):
                raise self._damaged(f"the CRC of the batch at byte {position} does not match")
            records = self._records(position, raw)
            said = self._said(position, iter(records)) if header.is_control else None
            if position == 0 and not isinstance(said, SnapshotHeader):
                raise self._damaged("it does not begin with a snapshot header")
            position += len(raw)
            if position == self.size_bytes and not isinstance(said, SnapshotFooter):
                raise self._damaged("it does not end with a snapshot footer")
            yield header.is_control, records

    def _records(self, position: int, raw: bytes) -> list[Record]:
        try:
            return list(iter_records(raw))
        except ApiError as error:
            raise self._damaged(f"the batch at byte {position}: {error.message}") from error

    def _said(self, position: int, records: Iterator[Record]) -> ControlRecord | None:
        """Return what the first record of the control batch there says; None when there is none, or it is not known."""
        try:
            first = next(records, None)
            return None if first is None else decode_control(first)
        except ApiError as error:
            raise self._damaged(f"the batch at byte {position}: {error.message}") from error

    def _damaged(self, what: str) -> Fault:
        return Fault(
            f"{self._path} is damaged: {what}. Where other controllers have the metadata, remove this file and the .log files "
            "beside it, and keep quorum-state: the node fetches both anew"
        )

    def _read_batch(self, position: int) -> bytes:
        prefix = self._file.pread(_PREFIX.size, position)
        if len(prefix) == _PREFIX.size:
            size = _PREFIX.unpack(prefix)[1] + _PREFIX.size
            if HEADER_BYTES <= size <= RAFT_MAX_BATCH_BYTES + MIB:
                raw = self._file.pread(size, position)
                if len(raw) == size:
                    return raw
        raise self._damaged(f"it is torn at byte {position} of {self.size_bytes}")


def write_snapshot_file(
    disk: Disk,
    directory: str,
    snapshot_id: OffsetAndEpoch,
    records_batches: Iterable[Sequence[Any]],
    serde: RecordSerde,
    last_contained_timestamp_ms: int,
    controls: Sequence[ControlRecord] = (),
) -> str:
    """Write a complete snapshot at once (storage formatter, tools); returns its path."""
    store = SnapshotStore(disk, directory)
    part = store.create_part(snapshot_id)
    batches = SnapshotBatches(snapshot_id, serde, last_contained_timestamp_ms, controls)
    part.append(batches.header())
    for records in records_batches:
        for batch in batches.add(records):
            part.append(batch)
    part.append(*batches.finish())
    part.complete()
    return store.path(snapshot_id)


def read_snapshot_file(disk: Disk, path: str, serde: RecordSerde) -> SnapshotReader:
    """Open a snapshot by its path (formatter, dump tool, bootstrap)."""
    return SnapshotReader(disk, path, serde)
