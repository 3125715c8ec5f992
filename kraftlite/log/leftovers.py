"""The files that an interrupted deletion, compaction or replacement leaves in a log's directory. Source: LG-29, LG-46."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kraftlite.log.cleaned import CLEANED_SUFFIX, SWAP_SUFFIX
from kraftlite.log.config import LogConfig
from kraftlite.log.promises import base_of, bases_of
from kraftlite.log.segment import DELETED_SUFFIX, LOG_SUFFIX, SEGMENT_SUFFIXES, Segment, segment_path
from kraftlite.log.set_aside import set_aside
from kraftlite.model.errors import ApiError
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.ports import Disk, Tracer
from kraftlite.runtime.trace.log import SegmentSetAside

_DEFAULTS: Final = LogConfig()


def remove_leftovers(
    disk: Disk, directory: str, names: Sequence[str], tp: TopicPartition, tracer: Tracer, *, keep_deleted: bool = False
) -> tuple[Sequence[str], tuple[str, ...]]:
    """Finish what a crash interrupted (LG-29): drop `.deleted` and `.cleaned`, complete `.swap`. `names`: those of the directory.

    The names that it has then, and the `.deleted` that were kept.

    A swap whose `.cleaned` mate exists was itself not complete: it is dropped, as is every swap behind such a one. One that is
    damaged says nothing about what it replaces: while the first of that is there, it is set aside.
    Departs: Kafka removes what the headers of any swap span.
    """
    cleaned = [int(name[:20]) for name in names if name.endswith(CLEANED_SUFFIX) and name[:20].isdecimal()]
    incomplete_from = min(cleaned, default=None)
    swaps: list[str] = []
    deleted: list[str] = []
    changed = False
    for name in names:
        if keep_deleted and name.endswith(DELETED_SUFFIX):
            deleted.append(f"{directory}/{name}")
        elif name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, ".tmp")):
            disk.unlink(f"{directory}/{name}")
            changed = True
        elif name.endswith(SWAP_SUFFIX):
            changed = True
            if incomplete_from is not None and name[:20].isdecimal() and int(name[:20]) >= incomplete_from:
                disk.unlink(f"{directory}/{name}")
            else:
                swaps.append(name)
    for name in swaps:
        base = base_of(name, LOG_SUFFIX + SWAP_SUFFIX)
        kept = None if base is None else _settle(disk, directory, tp, base, names)
        if kept is not None:
            tracer.emit(kept)
    for name in swaps:
        if disk.stat(f"{directory}/{name}") is not None:
            disk.rename(f"{directory}/{name}", f"{directory}/{name[: -len(SWAP_SUFFIX)]}")
    if swaps:
        disk.sync_dir(directory)
    return disk.listdir(directory) if changed else names, tuple(deleted)


def _settle(disk: Disk, directory: str, tp: TopicPartition, base: int, names: Sequence[str]) -> SegmentSetAside | None:
    """Remove the original segments that a swap covers, or the swap, if it is damaged and the first of them is there."""
    swap = _Named(disk, directory, base, SWAP_SUFFIX)
    scan = swap.scan(base, lambda header: None)
    swap.close()
    size, end = swap.found_size(), scan.next_offset
    covered = [original for original in bases_of(names) if base <= original < max(end, base + 1)]
    if base in covered:
        reason = scan.reason or (None if size else "it is empty") or _beyond(disk, directory, covered[-1], end)
        if reason is not None:
            kept = set_aside(disk, directory, swap.path)
            for suffix in SEGMENT_SUFFIXES:
                path = segment_path(directory, base, suffix) + SWAP_SUFFIX
                if disk.stat(path) is not None:
                    disk.unlink(path)
            reason = f"it was to take the place of what it was made of, and is damaged: {reason}"
            return SegmentSetAside(tp=tp, base_offset=base, file=kept, size_bytes=size, reason=reason)
    for name in disk.listdir(directory):
        stem, dot, suffix = name.partition(".")
        if dot + suffix in SEGMENT_SUFFIXES and stem.isdecimal() and base <= int(stem) < max(end, base + 1):
            disk.unlink(f"{directory}/{name}")
    return None


def _beyond(disk: Disk, directory: str, last: int, end: int) -> str | None:
    """Say why a swap cannot end at `end`: the last segment that it would replace goes on behind that. A wrong offset, which the
    CRC does not cover, shows here alone."""
    original = _Named(disk, directory, last, "")
    original.size = original.found_size()
    reason = None
    try:
        for _, header in original.headers():
            if header.next_offset > end:
                reason = f"it ends at offset {end}, and {original.path} goes on behind that"
                break
    except ApiError:
        pass  # what is damaged is not missed
    finally:
        original.close()
    return reason


class _Named(Segment):
    """A segment under a name of its own, to be read."""

    def __init__(self, disk: Disk, directory: str, base_offset: int, suffix: str) -> None:
        super().__init__(disk, directory, base_offset, _DEFAULTS, created_ms=0)
        self._suffix = suffix

    @property
    def path(self) -> str:
        return super().path + self._suffix

    def found_size(self) -> int:
        stat = self._disk.stat(self.path)
        return 0 if stat is None else stat.size
