"""The statements of what the logs of a directory were known to hold: the file `log-statements`, beside the logs.

A log cannot tell from its own files that its first segment, its last one or all of it is gone: what is left looks whole. So it is
stated elsewhere, each time that it changes for good: where the log starts, up to where it was flushed, and which segment was the
active one. One line per change is appended, with a CRC of its own, and the file is written anew when it has grown; a line goes to
the page cache, and is synced before anything is unlinked that an older line speaks of. So a log costs one line when it gets its
first record and one per segment, and no sync.

Not a file of Kafka's; Kafka leaves it alone. See docs/adr/0007-replicas-that-lost-data.md; LG-53.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple
from uuid import UUID

from kraftlite.log.checkpoints import MalformedCheckpoint, is_number, read_bounded
from kraftlite.model.ids import uuid_from_str, uuid_to_str
from kraftlite.model.limits import KIB, MAX_INT32, MAX_INT64, MIB
from kraftlite.runtime.ports import Disk, File

STATEMENTS: Final = "log-statements"
MAX_STATEMENTS_BYTES: Final = 64 * MIB
"""Ten times what a broker with a hundred thousand partitions writes."""
_REWRITE_BYTES: Final = 256 * KIB
_TITLE: Final = "kraftlite-log-statements-1"
_GONE: Final = "gone"

LogKey = tuple[UUID, int]
"""Topic id and partition."""


class Statement(NamedTuple):
    """The statement about one log. All its values are lower bounds of the truth but `start`, which is an upper one: nobody
    deleted what is at or above it."""

    start: int
    """The records below it were deleted by retention, on request, or because the leader had deleted them."""
    end: int
    """Everything below it was flushed."""
    active: int = -1
    """A segment begins here, and its name is durable. -1: none is known to."""
    gaps_below: int = 0
    """Below it offsets may be missing: the log was compacted once, or a person went on without them."""


class Statements:
    """The file, and what it says. Every method that writes raises OSError.

    `known` is False when the file is absent or damaged: then nothing may be concluded from what is not in it, and it is empty.
    """

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._file: File | None = None
        self._size = 0
        self._rewritten_size = 0
        self._unsynced = False
        self._entries: dict[LogKey, Statement] = {}
        self.known = False

    def get(self, key: LogKey) -> Statement | None:
        return self._entries.get(key)

    def items(self) -> Iterable[tuple[LogKey, Statement]]:
        return self._entries.items()

    def load(self) -> str | None:
        """Read it; why it cannot be used, if it is there and cannot. Raises OSError."""
        self._entries, self.known = {}, False
        try:
            entries = _parse(self._path, read_bounded(self._disk, self._path, MAX_STATEMENTS_BYTES))
        except FileNotFoundError:
            return None
        except MalformedCheckpoint as error:
            return str(error)
        self._entries, self.known = entries, True
        return None

    def note(self, changes: Mapping[LogKey, Statement | None]) -> None:
        """Take down what is new, in the page cache; None: the log was deleted."""
        lines = []
        for key, statement in changes.items():
            if self._entries.get(key) == statement:
                continue
            lines.append(_line(key, statement))
            if statement is None:
                del self._entries[key]
            else:
                self._entries[key] = statement
        if not lines:
            return
        if self._file is None:
            self.rewrite()
            return
        data = "".join(lines).encode()
        self._file.pwritev([data], self._size)
        self._size += len(data)
        self._unsynced = True

    def sync(self) -> None:
        """Make durable what was noted; a file that has grown to twice what it says is written anew."""
        if self._file is None or self._size > 2 * self._rewritten_size + _REWRITE_BYTES:
            self.rewrite()
        elif self._unsynced:
            self._file.sync()
            self._unsynced = False

    def rewrite(self, keep: Mapping[LogKey, Statement] | None = None) -> None:
        """Write the file anew, with `keep` instead of what was noted if that is given, durably."""
        if keep is not None:
            self._entries = dict(keep)
        self.close()
        lines = [_sealed(f"{_TITLE} {len(self._entries)}"), *(_line(key, self._entries[key]) for key in sorted(self._entries))]
        data = "".join(lines).encode()
        self._disk.write_file_atomically(self._path, data)
        self._file = self._disk.open(self._path)
        self._size = self._rewritten_size = len(data)
        self._unsynced, self.known = False, True

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _sealed(text: str) -> str:
    return f"{zlib.crc32(text.encode()):08x} {text}\n"


def _line(key: LogKey, statement: Statement | None) -> str:
    said = _GONE if statement is None else " ".join(map(str, statement))
    return _sealed(f"{uuid_to_str(key[0])} {key[1]} {said}")


def _parse(path: str, data: bytes) -> dict[LogKey, Statement]:
    """Raises MalformedCheckpoint, but not for an end that is torn: what was appended last may not have become durable."""
    lines = _unsealed(path, data)
    title = next(lines, [])
    if len(title) != 2 or title[0] != _TITLE or not is_number(title[1], MAX_INT32):
        raise MalformedCheckpoint(f"{path}: line 1 is not that of a file of log statements")
    entries: dict[LogKey, Statement] = {}
    count = 0
    for number, words in enumerate(lines, start=2):
        try:
            key = (uuid_from_str(words[0]), int(words[1]))
            if words[2:] == [_GONE]:
                entries.pop(key, None)
            else:
                start, end, active, gaps = map(int, words[2:])
                entries[key] = Statement(start, end, active, gaps)
                if not (0 <= start <= MAX_INT64 and 0 <= end <= MAX_INT64 and active >= -1 and gaps >= 0):
                    raise ValueError("an offset is out of range")
        except (ValueError, IndexError) as error:
            raise MalformedCheckpoint(f"{path}: line {number} cannot be read: {error}") from error
        count += 1
    if count < int(title[1]):
        raise MalformedCheckpoint(f"{path}: line 1 says {title[1]} logs, found {count}")
    return entries


def _unsealed(path: str, data: bytes) -> Iterator[list[str]]:
    """The words of each line whose CRC is right, up to the first that is not; no right one may follow that."""
    lines = data.split(b"\n")
    for number, line in enumerate(lines[:-1]):
        text = line[9:]
        if line[:9] != b"%08x " % zlib.crc32(text):
            if any(later[:9] == b"%08x " % zlib.crc32(later[9:]) for later in lines[number + 1 : -1]):
                raise MalformedCheckpoint(f"{path}: line {number + 1} is damaged")
            return
        yield text.decode(errors="replace").split(" ")
