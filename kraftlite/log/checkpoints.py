"""The small text files beside the logs.

Offset checkpoints and `leader-epoch-checkpoint`: line 1 version 0, line 2 number of entries, then one entry a line.
`partition.metadata`: `version: 0`, `topic_id: …`. `.kafka_cleanshutdown`: JSON with the broker epoch of the last run.

Source: LG-03, LG-07, LG-08.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Final
from uuid import UUID

from kraftlite.model.ids import uuid_from_str, uuid_to_str
from kraftlite.model.limits import MAX_INT32, MAX_INT64, MIB
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.ports import Disk

RECOVERY_POINT_CHECKPOINT: Final = "recovery-point-offset-checkpoint"
HW_CHECKPOINT: Final = "replication-offset-checkpoint"
LOG_START_CHECKPOINT: Final = "log-start-offset-checkpoint"
CLEANER_CHECKPOINT: Final = "cleaner-offset-checkpoint"
LEADER_EPOCH_CHECKPOINT: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"


MAX_CHECKPOINT_BYTES: Final = 64 * MIB
"""Two hundred thousand partitions with names of the greatest length."""
MAX_SMALL_FILE_BYTES: Final = MIB
"""The bound of files that have a few lines. A partition would need fifty thousand leader epochs for as much."""
_SHOWN: Final = 80


class MalformedCheckpoint(ValueError):
    """The file is not in its format; the message names file and line."""


def read_bounded(disk: Disk, path: str, most: int) -> bytes:
    """The file, if it has no more than `most` bytes. Raises FileNotFoundError, other OSErrors, MalformedCheckpoint."""
    stat = disk.stat(path)
    if stat is None:
        raise FileNotFoundError(path)
    if stat.is_dir:
        raise MalformedCheckpoint(f"{path} is a directory, a file was expected")
    if stat.size > most:
        raise MalformedCheckpoint(f"{path} has {stat.size} bytes; allowed are at most {most}")
    return disk.read_file(path)


def is_number(text: str, most: int) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= most


def _parse_entries(path: str, data: bytes, columns: int, first_most: int) -> list[list[str]]:
    """Rows of `columns` cells, of which the last two are numbers: at most `first_most`, and an offset."""
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError as error:
        raise MalformedCheckpoint(f"{path}: not text") from error
    if len(lines) < 2 or lines[0].strip() != "0":
        raise MalformedCheckpoint(f"{path}: line 1 must be version 0 and line 2 the number of entries")
    rows = [line.split() for line in lines[2:] if line.strip()]
    if not is_number(lines[1].strip(), MAX_INT32) or int(lines[1]) != len(rows):
        raise MalformedCheckpoint(f"{path}: line 2 says {lines[1][:_SHOWN]!r} entries, found {len(rows)}")
    for number, row in enumerate(rows, start=3):
        if len(row) != columns or not (is_number(row[-2], first_most) and is_number(row[-1], MAX_INT64)):
            raise MalformedCheckpoint(f"{path}: line {number} is {' '.join(row)[:_SHOWN]!r}, expected {columns} columns")
    return rows


def _format(lines: Sequence[str]) -> bytes:
    return "\n".join(["0", str(len(lines)), *lines, ""]).encode()


def read_offset_checkpoint(
    disk: Disk, path: str, on_problem: Callable[[str], None] = lambda reason: None
) -> dict[TopicPartition, int]:
    """Empty when the file is absent, and when it is malformed, of which `on_problem` is told: its readers have safe defaults
    (LG-07)."""
    try:
        rows = _parse_entries(path, read_bounded(disk, path, MAX_CHECKPOINT_BYTES), 3, MAX_INT32)
    except FileNotFoundError:
        return {}
    except MalformedCheckpoint as error:
        on_problem(str(error))
        return {}
    return {TopicPartition(topic, int(partition)): int(offset) for topic, partition, offset in rows}


def write_offset_checkpoint(disk: Disk, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    disk.write_file_atomically(path, _format([f"{tp.topic} {tp.partition} {offsets[tp]}" for tp in sorted(offsets)]))


def parse_epochs(path: str, data: bytes) -> list[tuple[int, int]]:
    """(epoch, start offset) entries. Raises MalformedCheckpoint, also when torn or not strictly increasing."""
    if not data.endswith(b"\n"):
        raise MalformedCheckpoint(f"{path}: the last line has no end, it may be torn")
    entries = [(int(epoch), int(start)) for epoch, start in _parse_entries(path, data, 2, MAX_INT32)]
    for before, after in itertools.pairwise(entries):
        if after[0] <= before[0] or after[1] <= before[1]:
            raise MalformedCheckpoint(f"{path}: {after} behind {before} does not increase")
    return entries


def format_epochs(entries: Sequence[tuple[int, int]]) -> bytes:
    return _format([f"{epoch} {start}" for epoch, start in entries])


def read_partition_metadata(disk: Disk, directory: str) -> UUID | None:
    """The topic id that this directory belongs to; None when the file is absent. MalformedCheckpoint on garbage."""
    path = f"{directory}/{PARTITION_METADATA}"
    try:
        text = read_bounded(disk, path, MAX_SMALL_FILE_BYTES).decode()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise MalformedCheckpoint(f"{path}: not text") from error
    values = dict(part for line in text.splitlines() if len(part := [cell.strip() for cell in line.split(":", 1)]) == 2)
    if values.get("version") != "0" or "topic_id" not in values:
        raise MalformedCheckpoint(f"{path}: expected `version: 0` and `topic_id: …`, found {text[:_SHOWN]!r}")
    try:
        return uuid_from_str(values["topic_id"])
    except ValueError as error:
        raise MalformedCheckpoint(f"{path}: {error}") from error


def write_partition_metadata(disk: Disk, directory: str, topic_id: UUID, *, sibling: str | None = None) -> None:
    """Write `partition.metadata` into the page cache; `sync_partition_metadata` makes it durable.

    `sibling`: the directory of another partition of this topic. Its file, which says the same, gets a second name then, where
    that is possible: the new inode would be most of what a new partition costs.
    """
    path = f"{directory}/{PARTITION_METADATA}"
    if sibling is not None:
        try:
            disk.link(f"{sibling}/{PARTITION_METADATA}", path)
        except OSError:
            pass  # the sibling is gone, has too many names, or the file system knows no links: a file of its own does as well
        else:
            return
    replace_file(disk, path, f"version: 0\ntopic_id: {uuid_to_str(topic_id)}".encode())


def restore_partition_metadata(disk: Disk, directory: str, topic_id: UUID) -> None:
    """A file of its own, durably: the one that it had is damaged, and may be that of other partitions, too."""
    path = f"{directory}/{PARTITION_METADATA}"
    stat = disk.stat(path)
    if stat is not None and stat.is_dir:
        disk.rmtree(path)
    write_partition_metadata(disk, directory, topic_id)
    sync_partition_metadata(disk, directory)


def sync_partition_metadata(disk: Disk, directory: str) -> None:
    file = disk.open(f"{directory}/{PARTITION_METADATA}")
    try:
        file.sync()
    finally:
        file.close()
    disk.sync_dir(directory)


def replace_file(disk: Disk, path: str, data: bytes) -> None:
    """Old or new content after a killed process; a crash of the machine may tear it, as nothing is synced."""
    file = disk.open(path + ".tmp", create=True)
    try:
        file.truncate(0)
        file.pwritev([data], 0)
    finally:
        file.close()
    disk.rename(path + ".tmp", path)


def write_clean_shutdown(disk: Disk, log_dir: str, broker_epoch: int) -> None:
    """Say that every log of this directory was closed in order. Written last."""
    disk.write_file_atomically(f"{log_dir}/{CLEAN_SHUTDOWN}", json.dumps({"version": 0, "brokerEpoch": broker_epoch}).encode())


def read_clean_shutdown(disk: Disk, log_dir: str) -> int | None:
    """The broker epoch of the run that ended cleanly; -1 when it had none; None when there is no marker.

    Departs: a marker that cannot be read vouches for nothing and is none; to Kafka its presence is enough.
    """
    try:
        data = read_bounded(disk, f"{log_dir}/{CLEAN_SHUTDOWN}", MAX_SMALL_FILE_BYTES)
        epoch = json.loads(data)["brokerEpoch"]
    except (FileNotFoundError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return epoch if type(epoch) is int and -1 <= epoch <= MAX_INT64 else None


def remove_clean_shutdown(disk: Disk, log_dir: str) -> None:
    """Remove the marker right after it was read: from now on a crash is a crash."""
    path = f"{log_dir}/{CLEAN_SHUTDOWN}"
    stat = disk.stat(path)
    if stat is not None:
        if stat.is_dir:
            disk.rmtree(path)
        else:
            disk.unlink(path)
        disk.sync_dir(log_dir)
