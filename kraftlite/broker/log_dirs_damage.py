"""Partitions whose files have lost records: refused, or set aside to be fetched anew.

Source: docs/adr/0007-replicas-that-lost-data.md; LG-53, LG-54.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable, Collection
from typing import Final
from uuid import UUID

from kraftlite.broker.log_dirs_state import LogDirState, RefusedLog, renamed
from kraftlite.log.indexes import CorruptIndex
from kraftlite.log.promises import DAMAGED_SUFFIX, MAX_DAMAGED_COPIES, LogDamaged
from kraftlite.model.errors import ApiError
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.ports import Disk, Ports
from kraftlite.runtime.trace.broker import DamagedLogSetAside, LogRefused

ACCEPT_LOSS: Final = "accept-data-loss"
"""A file of this name in a partition's directory: go on with what is there."""

OPENING_ERRORS: Final = (OSError, LogDamaged, ApiError, CorruptIndex, ValueError, OverflowError, struct.error)
"""The errors that the bytes of a log's files can cause when it is opened."""

_WHAT_IS_MISSING: Final = "put back what is missing and restart the broker"
_NEWER_METADATA: Final = (
    "give the controllers their newer files, and restart them and the broker; or, without such files, restart the broker, whose "
    "partitions get later leader epochs by that"
)

_OF_A_FILE: Final = frozenset(
    {
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.EACCES,
        errno.EPERM,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.EEXIST,
        errno.ENOTEMPTY,
        errno.EINVAL,
        errno.EFBIG,
        errno.EOVERFLOW,
        None,
    }
)


def fails_directory(error: OSError) -> bool:
    """Return whether the disk is at fault, and with it every log of the directory; else it is one file, which somebody
    changed."""
    return error.errno not in _OF_A_FILE


class DamagedLogs:
    """Decides what becomes of damaged logs. `is_sole(tp)`: this broker alone is in the partition's ISR, and nobody else is
    known to have it all; or it is an eligible leader, which the controller may elect for what it no longer has."""

    def __init__(self, ports: Ports, is_sole: Callable[[TopicPartition], bool]) -> None:
        self._ports = ports
        self._is_sole = is_sole

    def is_sole(self, tp: TopicPartition) -> bool:
        return self._is_sole(tp)

    def handle(
        self, state: LogDirState, tp: TopicPartition, topic_id: UUID, path: str, reason: str, *, ahead: bool = False
    ) -> None:
        """`ahead`: the log has what the metadata does not know of, so that what it says of others counts for nothing. Raises
        OSError when the directory fails."""
        if ahead or self._is_sole(tp):
            self._refuse(state, tp, topic_id, path, reason, _NEWER_METADATA if ahead else _WHAT_IS_MISSING)
            return
        try:
            self._set_aside(state, tp, path, reason)
        except OSError as error:
            if fails_directory(error):
                raise
            self._refuse(state, tp, topic_id, path, f"{reason}; it could not be set aside: {error}", _WHAT_IS_MISSING)

    def _refuse(self, state: LogDirState, tp: TopicPartition, topic_id: UUID, path: str, reason: str, first: str) -> None:
        election = f"kraftlite elect-leaders --election-type unclean --topic {tp.topic} --partition {tp.partition}"
        remedy = (
            f"{first}; or, if the partition has other replicas and what they have is "
            f"enough, stop the broker, run `{election}` and start it; or, to go on with what is left here, make the file "
            f"{path}/{ACCEPT_LOSS} and restart it"
        )
        state.refused[tp] = RefusedLog(topic_id=topic_id, directory=path, reason=f"{reason}. To go on: {remedy}")
        self._ports.tracer.emit(LogRefused(partition=str(tp), directory=path, reason=reason, remedy=remedy))

    def _set_aside(self, state: LogDirState, tp: TopicPartition, path: str, reason: str) -> None:
        disk = self._ports.disk
        target, size = None, 0
        if path.rpartition("/")[2] in disk.listdir(state.path):
            # The name begins with the time, so that the oldest is known by its name.
            unique = f"{self._ports.clock.wall_ms():016x}{self._ports.entropy.getrandbits(64):016x}"
            target = state.file(renamed(tp, unique, DAMAGED_SUFFIX))
            disk.rename(path, target)
            disk.sync_dir(state.path)
            size = _size_of(disk, target)
        kept = self._drop_oldest(state)
        self._ports.tracer.emit(
            DamagedLogSetAside(partition=str(tp), reason=reason, directory=target, size_bytes=size, kept=kept)
        )

    def _drop_oldest(self, state: LogDirState) -> int:
        """Delete the oldest copies, and return how many are left."""
        disk = self._ports.disk
        copies = sorted(
            (name for name in disk.listdir(state.path) if name.endswith(DAMAGED_SUFFIX)),
            key=lambda name: name.rpartition(".")[2],
        )
        for name in copies[:-MAX_DAMAGED_COPIES]:
            remove(disk, state.file(name))
        return min(len(copies), MAX_DAMAGED_COPIES)


def remove(disk: Disk, path: str) -> None:
    """Whatever it is."""
    stat = disk.stat(path)
    if stat is not None and stat.is_dir:
        disk.rmtree(path)
    else:
        disk.unlink(path)


def _size_of(disk: Disk, path: str) -> int:
    stat = disk.stat(path)
    if stat is None or not stat.is_dir:
        return 0 if stat is None else stat.size
    found = (disk.stat(f"{path}/{name}") for name in disk.listdir(path))
    return sum(stat.size for stat in found if stat is not None)


def holds_records(disk: Disk, path: str, names: Collection[str]) -> bool:
    stats = (disk.stat(f"{path}/{name}") for name in names if name.endswith(".log"))
    return any(stat is not None and stat.size > 0 for stat in stats)
