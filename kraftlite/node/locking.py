"""The locks of a node's directories: one process alone uses them. Source: KIP-858, Kafka's LogManager; BL-15, JB-02."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from kraftlite.broker.log_dirs_damage import fails_directory
from kraftlite.config.server import ServerConfig
from kraftlite.node.storage import Layout, StorageError, check_some_usable, verify
from kraftlite.runtime.ports import DirLock, Disk

LOCK_FILE: Final = ".lock"


@dataclass(slots=True)
class Locks:
    """The locks of a node's directories, held while it runs (BL-15). `failed`: the directories whose disk fails, and why."""

    held: list[DirLock] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)

    def release(self) -> None:
        held, self.held = self.held, []
        for lock in held:
            lock.release()


def lock_directories(disk: Disk, directories: Sequence[str]) -> Locks:
    """Take the lock file of every directory whose disk works. Raises StorageError, with nothing locked, naming one that another
    process holds, or that this one may not write."""
    locks = Locks()
    for directory in directories:
        path = f"{directory}/{LOCK_FILE}"
        try:
            lock = disk.lock(path)
        except OSError as error:
            locks.failed[directory] = f"{path} cannot be locked: {error.strerror or error}"
            if fails_directory(error):
                continue
            locks.release()
            raise StorageError(locks.failed[directory]) from None
        if lock is None:
            locks.release()
            raise StorageError(f"{path} is locked: another process is using this directory")
        locks.held.append(lock)
    return locks


def verify_and_lock(disk: Disk, config: ServerConfig) -> tuple[Layout, Locks]:
    """`verify`, and lock what a node may start with. As Kafka's, a broker goes on without a directory that cannot be locked
    because its disk fails, or was made read-only for that (JB-02). Raises StorageError."""
    layout = verify(disk, config)
    locks = lock_directories(disk, tuple(layout.directory_ids))
    if not locks.failed:
        return layout, locks
    problems = {**layout.problems, **locks.failed}
    try:
        if config.metadata_log_dir in locks.failed:
            raise StorageError(locks.failed[config.metadata_log_dir])
        check_some_usable(config, problems)
    except StorageError:
        locks.release()
        raise
    ids = {directory: found for directory, found in layout.directory_ids.items() if directory not in locks.failed}
    return replace(layout, directory_ids=ids, problems=problems), locks
