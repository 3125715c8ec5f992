"""One log directory: its files beside the logs, and the names of the directories in it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from kraftlite.broker.config import LogDirSpec
from kraftlite.log import checkpoints
from kraftlite.log.log import Log
from kraftlite.model.ids import METADATA_TOPIC
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.ports import Disk

DELETE_SUFFIX: Final = "-delete"
STRAY_SUFFIX: Final = "-stray"
FUTURE_SUFFIX: Final = "-future"
MAX_DIRECTORY_NAME: Final = 255

_PARTITION = re.compile(r"^([a-zA-Z0-9._-]+)-(0|[1-9][0-9]*)$")


def parse_directory_name(name: str) -> TopicPartition | None:
    """`orders-0` -> the partition; None for any other name."""
    match = _PARTITION.match(name)
    return TopicPartition(match[1], int(match[2])) if match else None


def renamed(tp: TopicPartition, unique: str, suffix: str) -> str:
    """Kafka's name for a directory on its way out: `orders-0.<32 hex digits>-delete`, cut to what a file system takes."""
    tail = f"-{tp.partition}.{unique}{suffix}"
    return tp.topic[: MAX_DIRECTORY_NAME - len(tail)] + tail


@dataclass(slots=True, kw_only=True)
class LogDirState:
    """What is known of one log directory. Owned by `LogDirs`."""

    spec: LogDirSpec
    online: bool = True
    clean: bool = False
    """The previous run closed every log of this directory."""
    marked_epoch: int | None = None
    """The broker epoch in the clean-shutdown marker; None without a marker or an epoch in it."""
    loaded: bool = False
    """Every log of this directory was loaded in this run."""
    logs: dict[TopicPartition, Log] = field(default_factory=dict)
    hws: dict[TopicPartition, int] = field(default_factory=dict)
    recovery_points: dict[TopicPartition, int] = field(default_factory=dict)
    log_starts: dict[TopicPartition, int] = field(default_factory=dict)
    clean_offsets: dict[TopicPartition, int] = field(default_factory=dict)
    newest: tuple[UUID, str] | None = None
    """Topic id and directory of the log that was created last."""

    @property
    def path(self) -> str:
        return self.spec.path

    @property
    def directory_id(self) -> UUID:
        return self.spec.directory_id

    def file(self, name: str) -> str:
        return f"{self.spec.path}/{name}"

    # Each of the following raises OSError when the disk fails.

    def read_marker(self, disk: Disk) -> None:
        epoch = checkpoints.read_clean_shutdown(disk, self.path)
        self.clean = epoch is not None
        self.marked_epoch = None if epoch is None or epoch < 0 else epoch

    def read_checkpoints(self, disk: Disk) -> None:
        self.recovery_points = checkpoints.read_offset_checkpoint(disk, self.file(checkpoints.RECOVERY_POINT_CHECKPOINT))
        self.log_starts = checkpoints.read_offset_checkpoint(disk, self.file(checkpoints.LOG_START_CHECKPOINT))
        self.hws = checkpoints.read_offset_checkpoint(disk, self.file(checkpoints.HW_CHECKPOINT))
        self.clean_offsets = checkpoints.read_offset_checkpoint(disk, self.file(checkpoints.CLEANER_CHECKPOINT))

    def write_recovery_points(self, disk: Disk) -> None:
        points = {tp: log.recovery_point for tp, log in self.logs.items()}
        checkpoints.write_offset_checkpoint(disk, self.file(checkpoints.RECOVERY_POINT_CHECKPOINT), points)

    def write_log_starts(self, disk: Disk) -> None:
        """Only of logs whose start is not simply that of their first segment: the rest is known from the files."""
        starts = {
            tp: log.log_start_offset
            for tp, log in self.logs.items()
            if log.log_start_offset > next(iter(log.segment_base_offsets), 0)
        }
        checkpoints.write_offset_checkpoint(disk, self.file(checkpoints.LOG_START_CHECKPOINT), starts)

    def write_clean_offsets(self, disk: Disk) -> None:
        """How far compaction has come in each log that it has been to (LG-43)."""
        offsets = {tp: log.clean_offset for tp, log in self.logs.items() if log.clean_offset is not None}
        checkpoints.write_offset_checkpoint(disk, self.file(checkpoints.CLEANER_CHECKPOINT), offsets)

    def write_hws(self, disk: Disk, hws: Mapping[TopicPartition, int]) -> None:
        self.hws = {tp: hw for tp, hw in hws.items() if tp in self.logs}
        checkpoints.write_offset_checkpoint(disk, self.file(checkpoints.HW_CHECKPOINT), self.hws)


def is_foreign(name: str) -> bool:
    """Whether a directory is none of the broker's business: the metadata log, or something set aside earlier."""
    return name == f"{METADATA_TOPIC}-0" or name.endswith((STRAY_SUFFIX, FUTURE_SUFFIX))
