"""The files of a local cluster that nobody needs any more."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from kraftlite.local.ledger import LEDGER_NAME
from kraftlite.local.secure import secure_dir
from kraftlite.local.state import OWN_FILES, STARTING_NAME, LocalCluster, LocalError
from kraftlite.log.checkpoints import PARTITION_METADATA

_AT_ONCE: Final = 16
_FILES: Final = (*OWN_FILES, LEDGER_NAME, f"{LEDGER_NAME}.1", ".cluster.lock", ".up.lock", STARTING_NAME)


def remove_files(data_dir: Path, cluster: LocalCluster) -> None:
    """Remove what `up` and the nodes wrote, and the directory itself when nothing else is in it.

    Raises LocalError naming what cannot be removed; the description of the cluster is there still, so that it may be tried again.
    The directories of partitions go many at a time: a file system waits for milliseconds when one goes, and a broker may have
    fifty thousand.
    """
    parts = [it for node in cluster.nodes for it in _parts(node.directory)]
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="wipe") as threads:
        deque(threads.map(_remove_part, parts), maxlen=0)
    for directory in [*(Path(node.directory) for node in cluster.nodes), *([secure_dir(data_dir)] if cluster.secure else [])]:
        _remove_tree(directory)
    for name in _FILES:
        (data_dir / name).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        data_dir.rmdir()


def _remove_tree(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    if os.path.lexists(directory):
        try:
            shutil.rmtree(directory)  # which says what is in the way
        except FileNotFoundError:
            return
        except OSError as error:
            raise LocalError(
                f"{error.filename or directory} cannot be removed: {error.strerror or error}. The cluster is not wiped as a "
                "whole; to go on with it: kraftlite down --wipe"
            ) from None


def _remove_part(path: str) -> None:
    """The directory of a partition to which nobody has written has one file."""
    directory = Path(path)
    try:
        (directory / PARTITION_METADATA).unlink()
        directory.rmdir()
    except OSError:
        shutil.rmtree(path, ignore_errors=True)


def _parts(directory: str) -> list[str]:
    """List the directories two levels below a node's: those of its partitions."""
    return [inner for outer in _directories(directory) for inner in _directories(outer)]


def _directories(path: str) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return [it.path for it in entries if it.is_dir(follow_symlinks=False)]
    except OSError:
        return []
