"""Files of a log that are set aside: nothing reads them, and a person can put them back. Source: LG-53."""

from __future__ import annotations

from kraftlite.log.promises import DAMAGED_SUFFIX, MAX_DAMAGED_COPIES
from kraftlite.runtime.ports import Disk


def set_aside(disk: Disk, directory: str, path: str) -> str:
    """Rename a file of this directory, durably, and return its new path. Should the others have lost their records too, a person
    can put it back.

    It may happen again to the file that follows it: each copy has a number of its own, and the newest are kept. Raises OSError.
    """
    prefix = path.rpartition("/")[2] + "."
    middles = [it[len(prefix) : -len(DAMAGED_SUFFIX)] for it in disk.listdir(directory) if it.startswith(prefix)]
    numbers = sorted(int(it) for it in middles if it.isascii() and it.isdecimal() and len(it) < 10)
    kept = f"{path}.{numbers[-1] + 1 if numbers else 1}{DAMAGED_SUFFIX}"
    disk.rename(path, kept)
    for number in numbers[: max(0, len(numbers) + 1 - MAX_DAMAGED_COPIES)]:
        disk.unlink(f"{path}.{number}{DAMAGED_SUFFIX}")
    disk.sync_dir(directory)
    return kept
