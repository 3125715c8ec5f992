"""The directory of a log and whose it is: `partition.metadata`, and when that must be durable. Source: LG-01, LG-52; KIP-516."""

from __future__ import annotations

import errno
from typing import NamedTuple
from uuid import UUID

from kraftlite.log import checkpoints
from kraftlite.log.context import LogContext, OpenLog
from kraftlite.log.epoch_file import EpochFile
from kraftlite.log.promises import LogDamaged
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import ZERO_UUID
from kraftlite.runtime.ports import Disk


class Owner(NamedTuple):
    """`topic_id` None: the log belongs to no topic. `new`: the directory did not exist before."""

    topic_id: UUID | None
    new: bool


def take_directory(opening: OpenLog) -> Owner:
    """Make the directory or find out whose it is; raises what `Log` raises when it is opened.

    A `partition.metadata` that is torn, or names another topic, is replaced as long as there are no records that rely on it.
    """
    disk, directory = opening.disk, opening.directory
    if opening.names is not None:
        return Owner(opening.topic_id, new=False)
    topic_id = None if opening.topic_id == ZERO_UUID else opening.topic_id
    if _made(disk, directory, durable=topic_id is None, look_first=topic_id is None or not opening.new):
        if topic_id is not None:
            checkpoints.write_partition_metadata(disk, directory, topic_id, sibling=opening.sibling)
        return Owner(topic_id, new=True)
    try:
        found = checkpoints.read_partition_metadata(disk, directory)
    except checkpoints.MalformedCheckpoint as error:
        promise = opening.promise
        if _holds_records(disk, directory) and not (promise is not None and promise.accept_loss):
            if promise is not None:
                raise LogDamaged(str(error)) from error
            raise OSError(errno.EIO, str(error), directory) from error
        found = None  # torn, because nothing was written that it had to be durable for
    if topic_id is None:
        return Owner(found, new=False)
    if found != topic_id:
        if found is not None and _holds_records(disk, directory):
            raise ApiError(ErrorCode.INCONSISTENT_TOPIC_ID, f"{directory} belongs to topic id {found}, not {topic_id}")
        checkpoints.write_partition_metadata(disk, directory, topic_id)  # else an id that nobody relied on yet
    return Owner(topic_id, new=False)


def _made(disk: Disk, directory: str, *, durable: bool, look_first: bool) -> bool:
    """Make the directory; False where it was there. One that is not `durable` becomes so before its first record."""
    if look_first and disk.stat(directory) is not None:
        return False
    if not durable:
        try:
            disk.mkdir(directory)
        except FileExistsError:
            return False
        except FileNotFoundError:
            pass  # nor is there one above it
        else:
            return True
    disk.makedirs(directory)
    return True


def _holds_records(disk: Disk, directory: str) -> bool:
    stats = (disk.stat(f"{directory}/{name}") for name in disk.listdir(directory) if name.endswith(".log"))
    return any(stat is not None and stat.size for stat in stats)


def parent_of(directory: str) -> str:
    return directory.rpartition("/")[0] or "/"


class DirectoryClaim:
    """Makes durable whose the directory is, before its first record."""

    __slots__ = ("_ctx", "_epochs")

    def __init__(self, ctx: LogContext, epochs: EpochFile) -> None:
        self._ctx = ctx
        self._epochs = epochs

    def make_durable(self) -> None:
        """Make the directory durable, no sooner than the first write: a topic of thousands of partitions must not cost thousands
        of files and syncs at once.

        The segment's name becomes durable with the directory's: from now on it must be there.
        """
        ctx = self._ctx
        active = ctx.segments.active
        active.file.size()  # there is a file now
        checkpoints.sync_partition_metadata(ctx.disk, ctx.directory)
        ctx.disk.sync_dir(parent_of(ctx.directory))
        ctx.claimed = True
        ctx.named = active.base_offset
        ctx.tell_restated()
        self._epochs.write_if_dirty()

    def rename(self, new: str) -> None:
        """Move the directory. Open files follow."""
        ctx = self._ctx
        ctx.disk.rename(ctx.directory, new)
        ctx.disk.sync_dir(parent_of(new))
        ctx.directory = new
        for segment in ctx.segments:
            segment.move(new)
