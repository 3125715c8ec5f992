"""The segment that compaction writes in place of others, and the names that it has on its way into the log.

Source: LG-29, LG-46.
"""

from __future__ import annotations

from typing import Final

from kraftlite.log.config import LogConfig
from kraftlite.log.segment import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX, Segment, segment_path
from kraftlite.runtime.ports import Disk

CLEANED_SUFFIX: Final = ".cleaned"
"""Being written: a start drops it."""
SWAP_SUFFIX: Final = ".swap"
"""Complete and durable: a start puts it in the place of what it replaces."""

_ALL: Final = (TXN_INDEX_SUFFIX, TIME_INDEX_SUFFIX, INDEX_SUFFIX, LOG_SUFFIX)


class CleanedSegment(Segment):
    """A segment whose files have a further suffix until it takes its place; then it is one like any other."""

    def __init__(self, disk: Disk, directory: str, base_offset: int, config: LogConfig, *, created_ms: int) -> None:
        super().__init__(disk, directory, base_offset, config, created_ms=created_ms)
        self._suffix = CLEANED_SUFFIX
        self._name_indexes()
        self.discard()  # what an attempt before this one may have left
        self._open_file(create=True)
        self._distrust_indexes()

    @property
    def path(self) -> str:
        return segment_path(self.directory, self.base_offset) + self._suffix

    def sync(self) -> None:
        """Make everything but the names durable."""
        self.file.sync()
        self.sync_indexes()

    def announce(self) -> None:
        """`.cleaned` becomes `.swap`, the log last: as long as one file is not done, none counts."""
        self._rename(SWAP_SUFFIX, _ALL)

    def install(self) -> None:
        """`.swap` becomes the final name, the log first: what a crash leaves under `.swap` then belongs to it."""
        self._rename("", _ALL[::-1])

    def discard(self) -> None:
        """Throw the cleaned segment away: it is not wanted after all."""
        self.close()
        for suffix in _ALL:
            path = segment_path(self.directory, self.base_offset, suffix) + self._suffix
            if self._disk.stat(path) is not None:
                self._disk.unlink(path)

    def _rename(self, suffix: str, order: tuple[str, ...]) -> None:
        for kind in order:
            path = segment_path(self.directory, self.base_offset, kind)
            if self._disk.stat(path + self._suffix) is not None:
                self._disk.rename(path + self._suffix, path + suffix)
        self._suffix = suffix
        self._name_indexes()

    def _name_indexes(self) -> None:
        self.move(self.directory)
        for index in (self._offset_index, self._time_index, self.txn_index):
            index.path += self._suffix
