"""A file system in memory that can crash: the simulator's."""

from kraftlite.simhost.disk import MemDisk, MemFile, MemLock
from kraftlite.simhost.disk_faults import InjectedError

__all__ = ["InjectedError", "MemDisk", "MemFile", "MemLock"]
