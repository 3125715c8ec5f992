"""The trace as a file of JSON lines, from which tools tell what happened across nodes.

One line per event: `{"ts": wall ms, "node": id, "event": name, …facts}`. The file is bounded: at half of its limit it
becomes `<name>.1` and a new one begins, so that the last half is always there. A line is written before `emit` returns:
SIGKILL loses none.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, BinaryIO, Final

from kraftlite.client.opening import open_at_once
from kraftlite.model.ids import NodeId
from kraftlite.model.limits import MIB
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.trace import TraceEvent

_MAX_LINE_BYTES: Final = MIB
LAST_MS: Final = 253_402_214_400_000
"""The last day of the year 9999, after which no calendar can show a time. Traces come from files."""
TIMELINE_NAME: Final = "kraftlite-trace.jsonl"
_encode = json.JSONEncoder(default=str, separators=(",", ":"), ensure_ascii=False).encode
_quoted: Final = json.encoder.encode_basestring
_INTS: Final = {int}


def _partition(tp: TopicPartition) -> str:
    return f"[{_quoted(tp.topic)},{tp.partition}]"


def _tuple(values: tuple[Any, ...]) -> str:
    if _INTS.issuperset(map(type, values)):
        return f"[{','.join(map(str, values))}]"
    return _encode(values)


_ENCODE: Final[Mapping[type, Callable[[Any], str]]] = {
    int: int.__repr__,
    bool: {True: "true", False: "false"}.__getitem__,
    str: _quoted,
    TopicPartition: _partition,
    tuple: _tuple,
}
"""Encodings of what events are full of, in less than half of the time that `json` takes."""


def as_line(wall_ms: int, node_id: NodeId, event: str, facts: dict[str, Any]) -> str:
    """The line of an event: what `json` makes of it. A node that takes over writes one for each partition."""
    encode = _ENCODE.get
    found = [f',"{name}":{encode(type(value), _encode)(value)}' for name, value in facts.items()]
    return f'{{"ts":{wall_ms},"node":{node_id},"event":"{event}"{"".join(found)}}}\n'


class TimelineFile:
    """A sink. Creates the directory if need be; an I/O error ends the writing and nothing else."""

    def __init__(self, path: str, node_id: NodeId, max_bytes: int = 32 << 20) -> None:
        self._path = Path(path)
        self._node_id = node_id
        self._limit = max(max_bytes // 2, 1)
        self._fd: int | None = None
        self._size = 0
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._open()
        except OSError:
            self.close()

    def _open(self) -> int:
        # O_NONBLOCK: a pipe that nobody reads is no file for a trace, and must not hold up the start.
        self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK, 0o644)
        self._size = os.fstat(self._fd).st_size
        if self._size and _is_cut_off(self._path):  # what comes next would be lost with it
            self._size += os.write(self._fd, b"\n")
        return self._fd

    def __call__(self, wall_ms: int, event: TraceEvent, facts: dict[str, Any]) -> None:
        fd = self._fd
        if fd is None:
            return
        line = as_line(wall_ms, self._node_id, event.event, facts).encode()
        try:
            if self._size + len(line) > self._limit and self._size:
                self.close()
                self._path.replace(self._path.with_name(self._path.name + ".1"))
                fd = self._open()
            self._size += os.write(fd, line)
        except OSError:
            self.close()

    def close(self) -> None:
        if self._fd is not None:
            fd, self._fd = self._fd, None
            os.close(fd)


def _is_cut_off(path: Path) -> bool:
    """Return whether the last line has no end: the disk was full, or lost power, when it was written."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        return os.pread(fd, 1, os.fstat(fd).st_size - 1) != b"\n"
    finally:
        os.close(fd)


def read_timeline(path: str | Path) -> Iterator[dict[str, Any]]:
    """The events of one file, the older half first. A line cut off by a crash, damaged, or
    longer than 1 MiB is left out."""
    return read_timelines([path])


def read_timelines(paths: Iterable[str | Path]) -> Iterator[dict[str, Any]]:
    """The events of several nodes, one file behind the other, as they all stood at one moment: what the nodes write while the
    files are read is left out. Otherwise a file that is read late tells what follows from something that another file, read
    before, did not have yet."""
    with ExitStack() as opened:
        files = [found for path in paths for found in _open_halves(Path(path), opened)]
        parts = [(file, os.fstat(file.fileno()).st_size) for file in files]
        for file, size in parts:
            if size:
                yield from _events(file, size)


def merge_timelines(paths: Iterable[str | Path], *, since_ms: int = 0) -> list[dict[str, Any]]:
    """The events of several nodes by wall time; the nodes of a local cluster share one clock."""
    return sorted((event for event in read_timelines(paths) if event["ts"] >= since_ms), key=lambda event: int(event["ts"]))


def _open_halves(path: Path, opened: ExitStack) -> Iterator[BinaryIO]:
    for part in (path.with_name(path.name + ".1"), path):
        with suppress(FileNotFoundError):
            yield opened.enter_context(open_at_once(part))  # a pipe has no size, so nothing is read of it


def _events(file: BinaryIO, size: int) -> Iterator[dict[str, Any]]:
    while file.tell() < size and (line := file.readline(_MAX_LINE_BYTES)):
        if len(line) == _MAX_LINE_BYTES and not line.endswith(b"\n") and not _skip_hole(file):
            return
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict) and isinstance(event.get("event"), str) and _is_time(event.get("ts")):
            yield event


def _skip_hole(file: BinaryIO) -> bool:
    """Go to where a sparse file has something next: a hole of terabytes would be read for hours. False: nothing comes."""
    try:
        file.seek(file.tell(), os.SEEK_DATA)
    except OSError as error:
        return error.errno != errno.ENXIO
    return True


def _is_time(value: object) -> bool:
    """Return whether a damaged line has not lost its time, in milliseconds."""
    return isinstance(value, int | float) and 0 <= value < LAST_MS
