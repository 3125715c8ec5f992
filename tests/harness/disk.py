"""A file system in memory that can crash: the simulator's."""

from kraftlite.simhost.disk import InjectedError, MemDisk, MemFile, MemLock

__all__ = ["InjectedError", "MemDisk", "MemFile", "MemLock"]
