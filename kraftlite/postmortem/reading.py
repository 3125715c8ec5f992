"""Reads segments and snapshots of a metadata log, batch by batch. Damage costs what is behind it, and becomes a sentence.

Source: KIP-595, KIP-630, KIP-631; LG-01, LG-02, TO-43.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

from kraftlite.log.batch import HEADER_BYTES, MAGIC, BatchHeader, check_crc, iter_records, parse_header
from kraftlite.log.control import SnapshotFooter, SnapshotHeader, decode_control
from kraftlite.metadata.codec import MetadataSerde
from kraftlite.metadata.records import AbortTransactionRecord, BeginTransactionRecord, EndTransactionRecord, MetadataRecord
from kraftlite.model.errors import ApiError, Fault
from kraftlite.model.limits import MIB
from kraftlite.postmortem.files import MetadataFiles, NoMetadata, find

MAX_BATCH_BYTES: Final = 256 * MIB
"""No controller writes a longer one: a length beyond it is damage."""
MAX_NOTES: Final = 20
_BUFFER_BYTES: Final = MIB
_METADATA: Final = frozenset(MetadataRecord.__args__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One record of a metadata log, control records included. `time_ms`: the active controller's clock when it appended it.

    `batch` is the offset at which its batch begins: the records of a batch were appended together.
    """

    offset: int
    epoch: int
    time_ms: int
    record: Any
    batch: int = -1


class Batch(NamedTuple):
    """A batch, decoded, without the records that cannot be."""

    header: BatchHeader
    entries: tuple[Entry, ...]

    @property
    def is_control(self) -> bool:
        return self.header.is_control


@dataclass(slots=True)
class Notes:
    """Sentences about what could not be read. `damaged`: something is missing that was there once."""

    lines: list[str] = field(default_factory=list)
    more: int = 0
    damaged: bool = False

    def add(self, line: str, *, damage: bool = True) -> None:
        self.damaged = self.damaged or damage
        if line in self.lines:
            return
        if len(self.lines) < MAX_NOTES:
            self.lines.append(line)
        else:
            self.more += 1

    def all(self) -> list[str]:
        return [*self.lines, f"and {self.more} more such sentences"] if self.more else list(self.lines)


class Reader:
    """Reads one metadata log at a time. `notes` grow while it reads."""

    def __init__(self, notes: Notes | None = None) -> None:
        self.notes = notes if notes is not None else Notes()
        self._serde = MetadataSerde()
        self._stopped = False
        self._next = 0

    def log(self, segments: Sequence[tuple[int, Path]], *, start: int = 0, end: int | None = None) -> Iterator[Batch]:
        """The batches with offsets from `start` on and below `end`; both may cut a batch. Stops at damage."""
        self._stopped, expected = False, None
        for position, (base, path) in enumerate(segments):
            following = segments[position + 1][0] if position + 1 < len(segments) else None
            if following is not None and following <= start:
                continue
            if self._stopped or (end is not None and base >= end):
                return
            if expected is not None and base != expected:
                self._stop(f"offsets {expected} to {base - 1} are missing before {path}: nothing behind them is read")
                return
            self._next = base
            yield from self._batches(path, start, end, last=following is None)
            expected = self._next

    def snapshot(self, path: Path) -> Iterator[Batch]:
        """All batches of a snapshot, header and footer included."""
        footer = first = False
        for number, batch in enumerate(self._batches(path, 0, None, last=True)):
            said = batch.entries[0].record if batch.is_control and batch.entries else None
            first = first or (number == 0 and isinstance(said, SnapshotHeader))
            footer = isinstance(said, SnapshotFooter)
            yield batch
        if not first:
            self.notes.add(f"{path} does not begin with the header of a snapshot")
        elif not footer:
            self.notes.add(f"{path} does not end with the footer of a snapshot: it is not whole")

    def _batches(self, path: Path, start: int, end: int | None, *, last: bool) -> Iterator[Batch]:
        try:
            file = path.open("rb", buffering=_BUFFER_BYTES)
        except FileNotFoundError:
            self._stop(f"{path} was deleted while it was read: a newer snapshot has taken its place", damage=False)
            return
        with file:
            yield from self._walk(path, file, start, end, last=last)

    def _walk(self, path: Path, file: BinaryIO, start: int, end: int | None, *, last: bool) -> Iterator[Batch]:
        position = 0
        before = -1
        while head := file.read(HEADER_BYTES):
            header = parse_header(head) if len(head) == HEADER_BYTES else None
            if header is None or header.size_bytes < HEADER_BYTES or header.magic != MAGIC or header.size_bytes > MAX_BATCH_BYTES:
                self._end(path, file, head, position, last=last, torn=header is None)
                return
            if header.base_offset <= before:
                self._stop(f"{path}: the batch at byte {position} begins with offset {header.base_offset}, behind {before}")
                return
            if end is not None and header.base_offset >= end:
                return
            body_bytes = header.size_bytes - HEADER_BYTES
            if header.last_offset < start:
                file.seek(body_bytes, 1)
            else:
                body = file.read(body_bytes)
                if len(body) < body_bytes:
                    self._end(path, file, head + body, position, last=last, torn=True)
                    return
                data = head + body
                if not check_crc(data, header):
                    what = f"{path}: the batch at byte {position}, offset {header.base_offset}, is damaged (its CRC is wrong)"
                    self._stop(f"{what}: nothing behind it is read")
                    return
                yield Batch(header, tuple(self._entries(path, header, data, start, end)))
            before, self._next = header.last_offset, header.next_offset
            position += header.size_bytes

    def _entries(self, path: Path, header: BatchHeader, data: bytes, start: int, end: int | None) -> Iterator[Entry]:
        decode = self._serde.decode
        try:
            for record in iter_records(data):
                offset = header.base_offset + record.offset_delta
                if offset < start or (end is not None and offset >= end):
                    continue
                try:
                    value = decode_control(record) if header.is_control else decode(record.value or b"")
                except (ApiError, Fault) as error:
                    self.notes.add(f"{path}: the record at offset {offset} is left out: {error}")
                    continue
                epoch, time_ms = header.partition_leader_epoch, header.max_timestamp
                yield Entry(offset=offset, epoch=epoch, time_ms=time_ms, record=value, batch=header.base_offset)
        except ApiError as error:
            self.notes.add(f"{path}: the records of the batch at offset {header.base_offset} do not parse: {error}")

    def _stop(self, sentence: str, *, damage: bool = True) -> None:
        self._stopped = True
        self.notes.add(sentence, damage=damage)

    def _end(self, path: Path, file: BinaryIO, rest: bytes, position: int, *, last: bool, torn: bool) -> None:
        """Note why there is no whole batch at `position`: a torn end, zeros of a file that was laid out beforehand, or damage."""
        while not rest.strip(b"\0") and (more := file.read(_BUFFER_BYTES)):
            rest = more
        if not rest.strip(b"\0"):
            return
        size = path.stat().st_size
        if last and torn:
            what = f"{path}: the last {size - position} bytes, from byte {position} on, are the beginning of a batch"
            self._stop(f"{what}: it was being written when the file was copied, or its node was killed", damage=False)
        else:
            self._stop(f"{path}: there is no batch at byte {position} of {size}: nothing behind it is read")


def read_metadata_log(directory: str | Path, reader: Reader | None = None) -> Iterator[Entry]:
    """All records of the log in `directory` (`__cluster_metadata-0`) that count (`entries_of`), control records included, as far
    as they can be read.

    Where its beginning was deleted, first those of the snapshot that took its place, with offset -1.
    """
    reader = reader if reader is not None else Reader()
    try:
        files = find([Path(directory)])[0]
    except NoMetadata:
        return
    start = 0
    begin = files.segments[0][0] if files.segments else 0
    for snapshot_id, path in [found for found in files.snapshots if begin and found[0].offset >= begin][:1]:
        for batch in reader.snapshot(path):
            if not batch.is_control:
                yield from (replace(entry, offset=-1) for entry in batch.entries)
        start = snapshot_id.offset
    yield from entries_of(reader.log(files.segments, start=start))


def entries_of(batches: Iterator[Batch]) -> Iterator[Entry]:
    """Return the records of the batches, in order. Those of a metadata transaction come when it ends. Of one that was aborted, or
    is open where the batches end, only the quorum's own do: nothing else in it ever counted (KIP-868)."""
    held: list[Entry] | None = None
    for batch in batches:
        for entry in batch.entries:
            if isinstance(entry.record, BeginTransactionRecord):
                held = [*_of_quorum(held or ()), entry]
            elif held is None:
                yield entry
            else:
                held.append(entry)
                if isinstance(entry.record, EndTransactionRecord | AbortTransactionRecord):
                    yield from held if isinstance(entry.record, EndTransactionRecord) else _of_quorum(held)
                    held = None
    yield from _of_quorum(held or ())


def _of_quorum(entries: Sequence[Entry]) -> Iterator[Entry]:
    return (entry for entry in entries if type(entry.record) not in _METADATA)


def last_record(files: MetadataFiles) -> tuple[int, int]:
    """(epoch, offset) of the last batch that can be read, or of the newest snapshot when there is none behind it: how far a log
    goes. What is behind damage, or behind offsets that are missing, does not count."""
    found = max(((it.epoch, it.offset - 1) for it, _ in files.snapshots), default=(-1, -1))
    expected: int | None = None
    for base, path in files.segments:
        if expected is not None and base != expected:
            break
        expected = base
        for header in _sound_headers(path):
            found = max(found, (header.partition_leader_epoch, header.last_offset))
            expected = header.next_offset
    return found


def _sound_headers(path: Path) -> Iterator[BatchHeader]:
    """Those of the batches up to the first one that is not whole."""
    before = -1
    with suppress(FileNotFoundError), path.open("rb", buffering=_BUFFER_BYTES) as file:
        while len(head := file.read(HEADER_BYTES)) == HEADER_BYTES:
            header = parse_header(head)
            if not HEADER_BYTES <= header.size_bytes <= MAX_BATCH_BYTES or header.magic != MAGIC or header.base_offset <= before:
                return
            data = head + file.read(header.size_bytes - HEADER_BYTES)
            if len(data) < header.size_bytes or not check_crc(data, header):
                return
            yield header
            before = header.last_offset
