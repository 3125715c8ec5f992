"""The small text files beside the logs.

Offset checkpoints and `leader-epoch-checkpoint`: line 1 version 0, line 2 number of entries, then one entry a line.
`partition.metadata`: `version: 0`, `topic_id: …`. `.kafka_cleanshutdown`: JSON with the broker epoch of the last run.

Source: LG-03, LG-07, LG-08.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

from kraftlite.model.ids import uuid_from_str, uuid_to_str
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.ports import Disk

RECOVERY_POINT_CHECKPOINT: Final = "recovery-point-offset-checkpoint"
HW_CHECKPOINT: Final = "replication-offset-checkpoint"
LOG_START_CHECKPOINT: Final = "log-start-offset-checkpoint"
CLEANER_CHECKPOINT: Final = "cleaner-offset-checkpoint"
LEADER_EPOCH_CHECKPOINT: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"


class MalformedCheckpoint(ValueError):
    """The file is not in its format; the message names file and line."""


def _parse_entries(path: str, data: bytes, columns: int) -> list[list[str]]:
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError as error:
        raise MalformedCheckpoint(f"{path}: not text") from error
    if len(lines) < 2 or lines[0].strip() != "0":
        raise MalformedCheckpoint(f"{path}: line 1 must be version 0 and line 2 the number of entries")
    rows = [line.split() for line in lines[2:] if line.strip()]
    if not lines[1].strip().isdecimal() or int(lines[1]) != len(rows):
        raise MalformedCheckpoint(f"{path}: line 2 says {lines[1]!r} entries, found {len(rows)}")
    for number, row in enumerate(rows, start=3):
        if len(row) != columns or not all(cell.isdecimal() for cell in row[columns - 2 :]):
            raise MalformedCheckpoint(f"{path}: line {number} is {' '.join(row)!r}, expected {columns} columns")
    return rows


def _format(lines: Sequence[str]) -> bytes:
    return "\n".join(["0", str(len(lines)), *lines, ""]).encode()


def read_offset_checkpoint(disk: Disk, path: str) -> dict[TopicPartition, int]:
    """Empty when the file is absent or malformed (LG-07): its readers have safe defaults."""
    try:
        rows = _parse_entries(path, disk.read_file(path), 3)
    except (FileNotFoundError, MalformedCheckpoint):
        return {}
    return {TopicPartition(topic, int(partition)): int(offset) for topic, partition, offset in rows}


def write_offset_checkpoint(disk: Disk, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    disk.write_file_atomically(path, _format([f"{tp.topic} {tp.partition} {offsets[tp]}" for tp in sorted(offsets)]))


def parse_epochs(path: str, data: bytes) -> list[tuple[int, int]]:
    """(epoch, start offset) entries. Raises MalformedCheckpoint, also when torn or not strictly increasing."""
    if not data.endswith(b"\n"):
        raise MalformedCheckpoint(f"{path}: the last line has no end, it may be torn")
    entries = [(int(epoch), int(start)) for epoch, start in _parse_entries(path, data, 2)]
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
        text = disk.read_file(path).decode()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise MalformedCheckpoint(f"{path}: not text") from error
    values = dict(part for line in text.splitlines() if len(part := [cell.strip() for cell in line.split(":", 1)]) == 2)
    if values.get("version") != "0" or "topic_id" not in values:
        raise MalformedCheckpoint(f"{path}: expected `version: 0` and `topic_id: …`, found {text!r}")
    try:
        return uuid_from_str(values["topic_id"])
    except ValueError as error:
        raise MalformedCheckpoint(f"{path}: {error}") from error


def write_partition_metadata(disk: Disk, directory: str, topic_id: UUID, *, twin: str | None = None) -> None:
    """Into the page cache; `sync_partition_metadata` makes it durable.

    `twin`: the directory of another partition of this topic. Its file, which says the same, gets a second name then, where that
    is possible: the new inode would be most of what a new partition costs.
    """
    path = f"{directory}/{PARTITION_METADATA}"
    if twin is not None:
        try:
            disk.link(f"{twin}/{PARTITION_METADATA}", path)
        except OSError:
            pass  # the twin is gone, has too many names, or the file system knows no links: a file of its own does as well
        else:
            return
    replace_file(disk, path, f"version: 0\ntopic_id: {uuid_to_str(topic_id)}".encode())


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
        data = disk.read_file(f"{log_dir}/{CLEAN_SHUTDOWN}")
    except FileNotFoundError:
        return None
    try:
        epoch = json.loads(data)["brokerEpoch"]
    except (ValueError, KeyError, TypeError):
        return None
    return epoch if isinstance(epoch, int) else None


def remove_clean_shutdown(disk: Disk, log_dir: str) -> None:
    """Right after it was read: from now on a crash is a crash."""
    path = f"{log_dir}/{CLEAN_SHUTDOWN}"
    if disk.stat(path) is not None:
        disk.unlink(path)
        disk.sync_dir(log_dir)
