"""One log directory: its files beside the logs, and the names of the directories in it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from kraftlite.broker.config import LogDirSpec
from kraftlite.log import checkpoints
from kraftlite.log.log import Log
from kraftlite.log.promises import DAMAGED_SUFFIX
from kraftlite.log.statements import STATEMENTS, LogKey, Statement, Statements
from kraftlite.model.ids import METADATA_TOPIC
from kraftlite.model.limits import MAX_INT32
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.ports import Disk, Tracer
from kraftlite.runtime.trace.broker import CheckpointUnreadable

DELETE_SUFFIX: Final = "-delete"
STRAY_SUFFIX: Final = "-stray"
FUTURE_SUFFIX: Final = "-future"
MAX_DIRECTORY_NAME: Final = 255

_OFFSETS: Final = (
    checkpoints.RECOVERY_POINT_CHECKPOINT,
    checkpoints.LOG_START_CHECKPOINT,
    checkpoints.HW_CHECKPOINT,
    checkpoints.CLEANER_CHECKPOINT,
)
_PARTITION = re.compile(r"([a-zA-Z0-9._-]+)-(0|[1-9][0-9]{0,9})")


def parse_directory_name(name: str) -> TopicPartition | None:
    """`orders-0` -> the partition; None for any other name."""
    match = _PARTITION.fullmatch(name)
    return TopicPartition(match[1], int(match[2])) if match and int(match[2]) <= MAX_INT32 else None


_FUTURE = re.compile(r"(.+)\.[0-9a-f]{32}" + FUTURE_SUFFIX)
_DELETED = re.compile(r".+-[0-9]+\.\S+" + DELETE_SUFFIX)


def parse_future_name(name: str) -> TopicPartition | None:
    """`orders-0.<32 hex digits>-future` -> the partition; None for any other name."""
    match = _FUTURE.fullmatch(name)
    return None if match is None else parse_directory_name(match[1])


def is_deleted_name(name: str) -> bool:
    """Return whether a log that was on its way out has this name, from us or from Kafka; else it is somebody's."""
    return _DELETED.fullmatch(name) is not None


def renamed(tp: TopicPartition, unique: str, suffix: str) -> str:
    """Kafka's name for a directory on its way out: `orders-0.<32 hex digits>-delete`, cut to what a file system takes."""
    tail = f"-{tp.partition}.{unique}{suffix}"
    return tp.topic[: MAX_DIRECTORY_NAME - len(tail)] + tail


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedLog:
    """A partition that is not served, because records of it are missing and nobody else has them."""

    topic_id: UUID
    directory: str
    reason: str


@dataclass(slots=True, kw_only=True)
class LogDirState:
    """The state of one log directory, as far as it is known. Owned by `LogDirs`."""

    spec: LogDirSpec
    online: bool = field(init=False)
    clean: bool = False
    """The previous run closed every log of this directory."""
    marked_epoch: int | None = None
    """The broker epoch in the clean-shutdown marker; None without a marker or an epoch in it."""
    loaded: bool = False
    """Every log of this directory was loaded in this run."""
    logs: dict[TopicPartition, Log] = field(default_factory=dict)
    futures: dict[TopicPartition, Log] = field(default_factory=dict)
    """Copies of replicas that are being moved here from other directories (KIP-113)."""
    copies_found: dict[TopicPartition, tuple[UUID, str]] = field(default_factory=dict)
    """Topic id and path of those that a former run has left, until they are gone on with."""
    hws: dict[TopicPartition, int] = field(default_factory=dict)
    hws_filed: bool = False
    """`hws` is what this run has written last."""
    recovery_points: dict[TopicPartition, int] = field(default_factory=dict)
    log_starts: dict[TopicPartition, int] = field(default_factory=dict)
    clean_offsets: dict[TopicPartition, int] = field(default_factory=dict)
    newest: tuple[UUID, str] | None = None
    """Topic id and directory of the log that was created last."""
    rewriting: bool = False
    """Logs were deleted, or begun in the place of others: the checkpoints are about to be written."""
    refused: dict[TopicPartition, RefusedLog] = field(default_factory=dict)
    accepted: set[TopicPartition] = field(default_factory=set)
    """Loaded with less than there was, because a person said so."""
    statements: Statements | None = None
    """None until `read_checkpoints`."""
    statements_damaged: bool = False
    """They were there, and counted for nothing."""

    @property
    def path(self) -> str:
        return self.spec.path

    @property
    def directory_id(self) -> UUID:
        """For a directory that is, or was, online: only then is it known."""
        assert self.spec.directory_id is not None, f"{self.path} was never read"
        return self.spec.directory_id

    def __post_init__(self) -> None:
        self.online = self.spec.directory_id is not None

    @property
    def count(self) -> int:
        """The logs in it, those on their way into it included."""
        return len(self.logs) + len(self.futures)

    def file(self, name: str) -> str:
        return f"{self.spec.path}/{name}"

    # Each of the following raises OSError when the disk fails.

    def read_marker(self, disk: Disk) -> None:
        epoch = checkpoints.read_clean_shutdown(disk, self.path)
        self.clean = epoch is not None
        self.marked_epoch = None if epoch is None or epoch < 0 else epoch

    def read_checkpoints(self, disk: Disk, tracer: Tracer) -> None:
        def unreadable(reason: str) -> None:
            tracer.emit(CheckpointUnreadable(reason=reason))

        def read(name: str) -> dict[TopicPartition, int]:
            return checkpoints.read_offset_checkpoint(disk, self.file(name), unreadable)

        for name in (*_OFFSETS, STATEMENTS):
            self._make_room(disk, name, unreadable)
        self.recovery_points = read(checkpoints.RECOVERY_POINT_CHECKPOINT)
        self.log_starts = read(checkpoints.LOG_START_CHECKPOINT)
        self.hws = read(checkpoints.HW_CHECKPOINT)
        self.clean_offsets = read(checkpoints.CLEANER_CHECKPOINT)
        self.statements = Statements(disk, self.file(STATEMENTS))
        problem = self.statements.load()
        self.statements_damaged = problem is not None
        if problem is not None:
            unreadable(problem)

    def _make_room(self, disk: Disk, name: str, unreadable: Callable[[str], None]) -> None:
        """A directory in the place of a file that is read without harm could never be written over: it is set aside."""
        path = self.file(name)
        stat = disk.stat(path)
        if stat is None or not stat.is_dir:
            return
        target = next(it for it in (f"{path}.{n}{DAMAGED_SUFFIX}" for n in itertools.count(1)) if disk.stat(it) is None)
        disk.rename(path, target)
        disk.sync_dir(self.path)
        unreadable(f"{path} was a directory, where a file is expected; it is now {target}")

    def stated(self, key: LogKey) -> Statement | None:
        return None if self.statements is None else self.statements.get(key)

    def state_log(self, log: Log, *, durably: bool = False, gaps_below: int = 0) -> None:
        """Note what holds of it now. Durable at once, too, if less holds than was noted before."""
        if self.statements is None or log.topic_id is None or not log.has_records:
            return
        key = (log.topic_id, log.tp.partition)
        old = self.statements.get(key)
        new = log.statement(old, gaps_below=gaps_below)
        self.statements.note({key: new})
        less = old is not None and (new.start > old.start or new.end < old.end or new.active < old.active)
        if durably or less:
            self.statements.sync()

    def state_logs(self) -> None:
        """Write down durably what holds of all logs."""
        if self.statements is None:
            return
        changes: dict[LogKey, Statement | None] = {}
        for tp, log in self.logs.items():
            if log.topic_id is not None and log.has_records:
                key = (log.topic_id, tp.partition)
                changes[key] = log.statement(self.statements.get(key))
        self.statements.note(changes)
        self.statements.sync()

    def begin_statements(self) -> None:
        """All logs are loaded: state them, those that are refused as before, and no others."""
        assert self.statements is not None
        keep: dict[LogKey, Statement] = {}
        for tp, log in self.logs.items():
            if log.topic_id is not None and log.has_records:
                key = (log.topic_id, tp.partition)
                gaps_below = log.leo if tp in self.accepted else self.clean_offsets.get(tp, 0)
                keep[key] = log.statement(self.statements.get(key), gaps_below=gaps_below)
        for tp, refused in self.refused.items():
            key = (refused.topic_id, tp.partition)
            stated = self.statements.get(key)
            if stated is not None:
                keep[key] = stated
        self.statements.rewrite(keep)

    def correct_checkpoints(self, disk: Disk) -> None:
        """All logs are loaded and stated: write the checkpoints that say otherwise anew. A damaged one would count as soon as
        the statements are lost, too."""
        if self._recovery_points() != self.recovery_points:
            self.write_recovery_points(disk)
        if self._log_starts() != self.log_starts:
            self.write_log_starts(disk)

    def write_recovery_points(self, disk: Disk) -> None:
        checkpoints.write_offset_checkpoint(disk, self.file(checkpoints.RECOVERY_POINT_CHECKPOINT), self._recovery_points())

    def _recovery_points(self) -> dict[TopicPartition, int]:
        points = {tp: log.recovery_point for tp, log in self.logs.items()}
        points.update((tp, self.recovery_points[tp]) for tp in self.refused if tp in self.recovery_points)
        return points

    def write_log_starts(self, disk: Disk) -> None:
        """Write each log start that is stated durably by then: nothing else makes a start believe the checkpoint."""
        self.state_logs()
        checkpoints.write_offset_checkpoint(disk, self.file(checkpoints.LOG_START_CHECKPOINT), self._log_starts())

    def _log_starts(self) -> dict[TopicPartition, int]:
        """List those of logs whose start is not simply that of their first segment: the rest is known from the files."""
        starts = {
            tp: log.log_start_offset
            for tp, log in self.logs.items()
            if log.log_start_offset > next(iter(log.segment_base_offsets), 0)
        }
        starts.update((tp, self.log_starts[tp]) for tp in self.refused if tp in self.log_starts)
        return starts

    def write_clean_offsets(self, disk: Disk) -> None:
        """Write how far compaction has come in each log that it has been to (LG-43)."""
        offsets = {tp: log.clean_offset for tp, log in self.logs.items() if log.clean_offset is not None}
        checkpoints.write_offset_checkpoint(disk, self.file(checkpoints.CLEANER_CHECKPOINT), offsets)

    def write_all(self, disk: Disk) -> None:
        """Write every checkpoint of this directory: logs have come or gone."""
        self.write_recovery_points(disk)
        self.write_log_starts(disk)
        self.write_clean_offsets(disk)
        self._file_hws(disk)

    def forget_hw(self, tp: TopicPartition) -> bool:
        """The log is gone, or begins: return whether the file has the HW of another one of its name, which must not count for it
        after the next start."""
        if self.hws.pop(tp, None) is None:
            return False
        self.hws_filed = False
        return True

    def write_hws(self, disk: Disk, hws: Mapping[TopicPartition, int]) -> None:
        """Write the HWs, unless they stand in the file: nothing moves on a broker whose many partitions are idle."""
        kept = {tp: self.hws[tp] for tp in self.refused if tp in self.hws}
        found = kept | {tp: hw for tp, hw in hws.items() if tp in self.logs}
        if self.hws_filed and found == self.hws:
            return
        self.hws = found
        self._file_hws(disk)

    def _file_hws(self, disk: Disk) -> None:
        self.hws_filed = False
        checkpoints.write_offset_checkpoint(disk, self.file(checkpoints.HW_CHECKPOINT), self.hws)
        self.hws_filed = True


def is_foreign(name: str) -> bool:
    """Return whether a directory is none of the broker's business: the metadata log, or something set aside earlier."""
    return name == f"{METADATA_TOPIC}-0" or name.endswith((STRAY_SUFFIX, DAMAGED_SUFFIX))
