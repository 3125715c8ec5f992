"""The files that an interrupted deletion, compaction or replacement leaves in a log's directory. Source: LG-29, LG-46."""

from __future__ import annotations

from kraftlite.log.cleaned import CLEANED_SUFFIX, SWAP_SUFFIX
from kraftlite.log.config import LogConfig
from kraftlite.log.segment import DELETED_SUFFIX, LOG_SUFFIX, SEGMENT_SUFFIXES, Segment
from kraftlite.runtime.ports import Disk


def remove_leftovers(disk: Disk, directory: str, *, keep_deleted: bool = False) -> tuple[str, ...]:
    """Finish what a crash interrupted (LG-29): drop `.deleted` and `.cleaned`, complete `.swap`. The `.deleted` that were kept.

    A swap whose `.cleaned` mate exists was itself not complete: it is dropped, as is every swap behind such a one.
    """
    names = disk.listdir(directory)
    cleaned = [int(name[:20]) for name in names if name.endswith(CLEANED_SUFFIX) and name[:20].isdecimal()]
    incomplete_from = min(cleaned, default=None)
    swaps: list[str] = []
    deleted: list[str] = []
    for name in names:
        if keep_deleted and name.endswith(DELETED_SUFFIX):
            deleted.append(f"{directory}/{name}")
        elif name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, ".tmp")):
            disk.unlink(f"{directory}/{name}")
        elif name.endswith(SWAP_SUFFIX):
            if incomplete_from is not None and name[:20].isdecimal() and int(name[:20]) >= incomplete_from:
                disk.unlink(f"{directory}/{name}")
            else:
                swaps.append(name)
    for name in swaps:
        if name.endswith(LOG_SUFFIX + SWAP_SUFFIX) and name[:20].isdecimal():
            _remove_replaced(disk, directory, int(name[:20]), f"{directory}/{name}")
    for name in swaps:
        disk.rename(f"{directory}/{name}", f"{directory}/{name[: -len(SWAP_SUFFIX)]}")
    if swaps:
        disk.sync_dir(directory)
    return tuple(deleted)


def _remove_replaced(disk: Disk, directory: str, base: int, swap_path: str) -> None:
    """Remove the original segments whose range the swap file covers: [base, its end)."""
    stat = disk.stat(swap_path)
    probe = _Probe(disk, directory, base, LogConfig(), created_ms=0)
    probe.size = stat.size if stat is not None else 0
    end = base + 1
    for _, header in probe.headers():
        end = max(end, header.next_offset)
    probe.close()
    for name in disk.listdir(directory):
        stem, dot, suffix = name.partition(".")
        if dot + suffix in SEGMENT_SUFFIXES and stem.isdecimal() and base <= int(stem) < end:
            disk.unlink(f"{directory}/{name}")


class _Probe(Segment):
    """A segment under its `.swap` name, to read its headers."""

    @property
    def path(self) -> str:
        return super().path + SWAP_SUFFIX
