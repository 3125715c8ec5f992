"""The file system of a real node whose operations can be slow, stall, find no room and fail.

Writes and what makes them durable are slow, as on a disk that is: a write waits on the node's loop, a flush beside it. A stall
holds flushes beside the loop until the fault ends, as in the simulator.
"""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final
from weakref import WeakSet

from kraftlite.faults.active import Active, Undo
from kraftlite.host.disk import HostDisk, HostFile
from kraftlite.model.faults import UnknownFault
from kraftlite.runtime.ports import File

_MICROSECONDS: Final = 1_000_000
_OF_FILE: Final = ("pread", "pwritev", "truncate", "sync")
_OF_DISK: Final = (
    "open",
    "listdir",
    "makedirs",
    "mkdir",
    "rename",
    "link",
    "unlink",
    "rmtree",
    "sync_dir",
    "read_file",
    "write_file_atomically",
)
_FLUSH: Final = "flush"
FILLING: Final = frozenset({"pwritev", "write_file_atomically", "makedirs", "mkdir"})
"""The operations that need room."""
SLOW: Final = frozenset({"pwritev", "sync", "sync_dir", "write_file_atomically"})
"""Flushes beside them."""


class FaultyFile(HostFile):
    """`HostFile` with room for what shadows its methods."""


class _Trouble:
    """One fault of the disk."""

    def __init__(self, active: Active) -> None:
        self.active = active
        self.kind = active.fault.kind
        self.over = asyncio.Event()
        path = active.fault.path.rstrip("/")
        self._below = f"{path}/" if path else ""
        self._whole = path

    def concerns(self, path: str) -> bool:
        return not self._below or path == self._whole or path.startswith(self._below)

    def strike(self, operation: str, path: str) -> None:
        """Before an operation. Raises OSError instead of it."""
        if self.kind == "disk-error":
            self._fail(errno.EIO, path)
        if self.kind == "disk-full" and operation in FILLING:
            self._fail(errno.ENOSPC, path)
        if self.kind == "disk-slow" and operation in SLOW:
            self.active.hit()
            time.sleep(self.active.fault.amount / _MICROSECONDS)

    async def hold(self, path: str) -> None:
        """Before a flush off the loop."""
        if self.kind == "disk-error":
            self._fail(errno.EIO, path)
        if self.kind == "disk-slow":
            self.active.hit()
            await asyncio.sleep(self.active.fault.amount / _MICROSECONDS)
        if self.kind == "disk-stall":
            self.active.hit()
            await self.over.wait()

    def _fail(self, number: int, path: str) -> None:
        self.active.hit()
        raise OSError(number, os.strerror(number), path)


class FaultyDisk(HostDisk):
    """`HostDisk`, and exactly that while it has no fault, but that it knows which files are open. `directories`: those that a
    fault may name."""

    file_type = FaultyFile

    def __init__(self, directories: tuple[str, ...]) -> None:
        super().__init__()
        self._directories = directories
        self._files: WeakSet[FaultyFile] = WeakSet()
        self._troubles: list[_Trouble] = []

    def open(self, path: str, *, create: bool = False) -> File:
        file = super().open(path, create=create)
        assert isinstance(file, FaultyFile)
        self._files.add(file)
        if self._troubles:
            self._shadow(file)
        return file

    def begin(self, active: Active) -> Undo:
        path = active.fault.path.rstrip("/")
        if path and path not in [it.rstrip("/") for it in self._directories]:
            raise UnknownFault(f"directory {path}: allowed are {', '.join(self._directories)}, or none for all of them")
        trouble = _Trouble(active)
        if not self._troubles:
            vars(self).update({name: partial(self._on_disk, name, getattr(self, name)) for name in _OF_DISK})
            for file in self._files:
                self._shadow(file)
        self._troubles.append(trouble)

        def undo() -> None:
            self._troubles.remove(trouble)
            trouble.over.set()
            if not self._troubles:
                for name in _OF_DISK:
                    del vars(self)[name]
                for file in self._files:
                    vars(file).clear()

        return undo

    def _shadow(self, file: FaultyFile) -> None:
        shadows: dict[str, Any] = {name: partial(self._on_file, name, getattr(file, name), file.path) for name in _OF_FILE}
        shadows[_FLUSH] = partial(self._on_flush, file.flush, file.path)
        vars(file).update(shadows)

    def _on_disk(self, operation: str, plain: Callable[..., Any], path: str, *given: Any, **named: Any) -> Any:
        self._strike(operation, path)
        return plain(path, *given, **named)

    def _on_file(self, operation: str, plain: Callable[..., Any], path: str, *given: Any) -> Any:
        self._strike(operation, path)
        return plain(*given)

    async def _on_flush(self, plain: Callable[[], Awaitable[None]], path: str) -> None:
        for trouble in list(self._troubles):
            if trouble.concerns(path):
                await trouble.hold(path)
        await plain()

    def _strike(self, operation: str, path: str) -> None:
        for trouble in list(self._troubles):
            if trouble.concerns(path):
                trouble.strike(operation, path)
