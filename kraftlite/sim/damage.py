"""Files of a broker that is down get lost, as by a disk, a file system or a person: segments, directories, checkpoints."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Mapping
from typing import Final

from kraftlite.log import checkpoints
from kraftlite.log.batch import iter_headers
from kraftlite.model.errors import ApiError
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.simhost.disk import MemDisk

Damage = Callable[[MemDisk, str, TopicPartition], None]


def _segments(disk: MemDisk, directory: str) -> list[str]:
    return [f"{directory}/{name}" for name in disk.listdir(directory) if name.endswith(".log")]


def _lose(index: int) -> Damage:
    def lose(disk: MemDisk, log_dir: str, tp: TopicPartition) -> None:
        found = _segments(disk, f"{log_dir}/{tp}")
        if found:
            disk.unlink(found[index % len(found)] if index >= 0 else found[-1])

    return lose


def _empty_first(disk: MemDisk, log_dir: str, tp: TopicPartition) -> None:
    for path in _segments(disk, f"{log_dir}/{tp}")[:1]:
        disk.write_file_atomically(path, b"")


def _cut_first(disk: MemDisk, log_dir: str, tp: TopicPartition) -> None:
    for path in _segments(disk, f"{log_dir}/{tp}")[:1]:
        data = disk.read_file(path)
        disk.write_file_atomically(path, data[: len(data) // 2])


def _lose_end(disk: MemDisk, log_dir: str, tp: TopicPartition) -> None:
    """Cut the last segment between two batches, as a file system does that forgets the end of a file: what is left is whole."""
    for path in _segments(disk, f"{log_dir}/{tp}")[-1:]:
        data = disk.read_file(path)
        with contextlib.suppress(ApiError):
            ends = [position for position, _ in iter_headers(data) if position]
            if ends:
                disk.write_file_atomically(path, data[: ends[len(ends) // 2]])


def _repeat(index: int) -> Damage:
    """Write the batches of a segment twice, as a copy does that is resumed from its beginning."""

    def repeat(disk: MemDisk, log_dir: str, tp: TopicPartition) -> None:
        found = _segments(disk, f"{log_dir}/{tp}")
        if found:
            disk.write_file_atomically(found[index], disk.read_file(found[index]) * 2)

    return repeat


def _lose_indexes(disk: MemDisk, log_dir: str, tp: TopicPartition) -> None:
    """Remove the indexes of all segments, as a person does who knows that they are made again."""
    directory = f"{log_dir}/{tp}"
    for name in disk.listdir(directory) if disk.stat(directory) is not None else ():
        if name.endswith("index"):
            disk.unlink(f"{directory}/{name}")


def _lose_directory(disk: MemDisk, log_dir: str, tp: TopicPartition) -> None:
    disk.rmtree(f"{log_dir}/{tp}")


def _garble_identity(disk: MemDisk, log_dir: str, tp: TopicPartition) -> None:
    disk.write_file_atomically(f"{log_dir}/{tp}/{checkpoints.PARTITION_METADATA}", b"garbage")


def _raise_epochs(disk: MemDisk, log_dir: str, tp: TopicPartition) -> None:
    disk.write_file_atomically(f"{log_dir}/{tp}/{checkpoints.LEADER_EPOCH_CHECKPOINT}", b"0\n1\n2147483647 0\n")


def _raise_log_start(disk: MemDisk, log_dir: str, tp: TopicPartition) -> None:
    path = f"{log_dir}/{checkpoints.LOG_START_CHECKPOINT}"
    starts = checkpoints.read_offset_checkpoint(disk, path)
    checkpoints.write_offset_checkpoint(disk, path, {**starts, tp: starts.get(tp, 0) + 7})


def _raise_recovery_point(disk: MemDisk, log_dir: str, tp: TopicPartition) -> None:
    path = f"{log_dir}/{checkpoints.RECOVERY_POINT_CHECKPOINT}"
    checkpoints.write_offset_checkpoint(disk, path, {**checkpoints.read_offset_checkpoint(disk, path), tp: 1 << 40})


KINDS: Final[Mapping[str, Damage]] = {
    "first segment lost": _lose(0),
    "second segment lost": _lose(1),
    "last segment lost": _lose(-1),
    "first segment emptied": _empty_first,
    "first segment cut": _cut_first,
    "end lost": _lose_end,
    "first segment repeated": _repeat(0),
    "last segment repeated": _repeat(-1),
    "indexes lost": _lose_indexes,
    "directory lost": _lose_directory,
    "partition.metadata garbled": _garble_identity,
    "leader epochs too high": _raise_epochs,
    "log start too high": _raise_log_start,
    "recovery point too high": _raise_recovery_point,
}


NOT_AMONG_GAPS: Final[Mapping[str, str]] = {"second segment lost": "first segment lost"}
"""The damage that nobody can tell from the work of compaction, and that which is done instead: between two segments of such a log
offsets may be missing anyway."""


def damage_files(disk: MemDisk, log_dir: str, tp: TopicPartition, rng: random.Random, *, gaps: bool = False) -> str:
    """Do one kind of damage to a partition that has records, and return what it was. `gaps`: offsets of the log may be missing
    because it is compacted, or once was."""
    kind = rng.choice(list(KINDS))
    if gaps:
        kind = NOT_AMONG_GAPS.get(kind, kind)
    KINDS[kind](disk, log_dir, tp)
    return kind


def has_records(disk: MemDisk, log_dir: str, tp: TopicPartition) -> bool:
    stat = disk.stat(f"{log_dir}/{tp}")
    if stat is None or not stat.is_dir:
        return False
    return any(len(disk.read_file(path)) for path in _segments(disk, f"{log_dir}/{tp}"))
