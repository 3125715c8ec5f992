"""The files of a metadata log: segments and snapshots, found in what a person names.

Source: Kafka's layout; ML-13, RF-41.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kraftlite.model.ids import METADATA_TOPIC
from kraftlite.model.messages.raft import OffsetAndEpoch
from kraftlite.raft.snapshots import parse_snapshot_name

METADATA_LOG: Final = f"{METADATA_TOPIC}-0"
_MAX_DEPTH: Final = 4
"""The levels below a given directory at which a metadata log is looked for: run, node, data directory, log."""
_BOOTSTRAP: Final = "bootstrap.checkpoint"


class NoMetadata(Exception):
    """There is no metadata log where one was named; the message says where, in one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataFiles:
    """One metadata log. `name` is where it is. `segments` are (base offset, path) in order, `snapshots` (id, path) by offset."""

    name: str
    segments: tuple[tuple[int, Path], ...]
    snapshots: tuple[tuple[OffsetAndEpoch, Path], ...]


def find(given: Sequence[Path]) -> list[MetadataFiles]:
    """The metadata logs in `given`. Each of these is a segment or a snapshot, a metadata log's directory, a node's data
    directory, or a directory with several nodes. Segments and snapshots that are named one by one are taken as those of one log.

    Raises NoMetadata, OSError.
    """
    files = [path for path in given if not path.is_dir()]
    if files and len(files) < len(given):
        raise NoMetadata(f"{files[0]} is a file and {_other(given, files)} a directory: name files of one log, or directories")
    if files:
        return [_of_files(files[0] if len(files) == 1 else files[0].parent, files, named=True)]
    found = [_of_directory(log) for path in given for log in _logs(path)]
    found = [log for log in found if log.segments or log.snapshots]
    if not found:
        where = ", ".join(str(path) for path in given)
        raise NoMetadata(f"{where}: there is no {METADATA_LOG} with segments or snapshots in or below it")
    return found


def _other(given: Iterable[Path], files: Iterable[Path]) -> Path:
    return next(path for path in given if path not in set(files))


def _logs(path: Path) -> Iterator[Path]:
    """The directories of metadata logs: `path`, or those below it."""
    if any(_is_part(child.name) for child in path.iterdir()):
        yield path
        return
    yield from _below(path, _MAX_DEPTH)


def _below(path: Path, depth: int) -> Iterator[Path]:
    with os.scandir(path) as entries:
        directories = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    if METADATA_LOG in directories:
        yield path / METADATA_LOG
        return
    if depth > 0:
        for name in directories:
            yield from _below(path / name, depth - 1)


def _is_part(name: str) -> bool:
    """A segment, or a snapshot that is whole: nothing that a partition of a topic has beside its metadata."""
    parsed = parse_snapshot_name(name)
    return (parsed is not None and parsed[1] == "") or (name.endswith(".log") and name[:-4].isdecimal())


def _of_directory(path: Path) -> MetadataFiles:
    return _of_files(path, [child for child in path.iterdir() if _is_part(child.name)], named=False)


def _of_files(name: Path, paths: Sequence[Path], *, named: bool) -> MetadataFiles:
    segments: list[tuple[int, Path]] = []
    snapshots: list[tuple[OffsetAndEpoch, Path]] = []
    for path in paths:
        parsed = parse_snapshot_name(path.name)
        if named and not path.exists():
            raise NoMetadata(f"{path}: there is no such file or directory")
        if parsed is not None and parsed[1] == "":
            if named or parsed[0].offset > 0:  # what formatting wrote is in the log, too
                snapshots.append((parsed[0], path))
        elif path.suffix == ".log" and path.stem.isdecimal():
            segments.append((int(path.stem), path))
        elif path.name == _BOOTSTRAP:
            snapshots.append((OffsetAndEpoch(epoch=0, offset=0), path))
        else:
            raise NoMetadata(
                f"{path} is not named like a part of a metadata log: <offset>.log, <offset>-<epoch>.checkpoint or {_BOOTSTRAP}"
            )
    return MetadataFiles(
        name=str(name),
        segments=tuple(sorted(segments)),
        snapshots=tuple(sorted(snapshots, key=lambda found: (found[0].offset, found[0].epoch))),
    )
