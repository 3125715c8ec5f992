"""The outside knowledge of a log that is about to be opened, and what follows when its files contradict that.

Source: docs/adr/0007-replicas-that-lost-data.md; LG-53, LG-54.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kraftlite.log.cleaned import SWAP_SUFFIX
from kraftlite.log.segment import DELETED_SUFFIX, LOG_SUFFIX, segment_path
from kraftlite.log.statements import Statement
from kraftlite.model.limits import MAX_INT64

DAMAGED_SUFFIX: Final = "-damaged"
"""The end of the name of a directory or a file that nothing reads any more and a person may put back: records are missing in it,
or it may be another log's. Not one of Kafka's."""
MAX_DAMAGED_COPIES: Final = 8
"""Per log directory, of partitions; per segment, of files. The newest are kept: others have what was in them."""


class LogDamaged(Exception):
    """Records that nobody deleted are not there; the message names file and offsets. Nothing of what is there was changed."""


class LogAhead(LogDamaged):
    """The log has records of a later leader epoch than the metadata knows. It is the metadata that has lost something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """`stated`: what the log was known to hold; None: nobody knows.

    `cut_short`: the end of the log may be missing, if what is left is whole: others have it. `accept_loss`: a person has said to
    go on with what is there. Without one of them a contradiction raises LogDamaged.
    """

    stated: Statement | None = None
    cut_short: bool = False
    accept_loss: bool = False

    @property
    def gaps_below(self) -> int:
        if self.accept_loss:
            return MAX_INT64
        return 0 if self.stated is None else self.stated.gaps_below

    def end(self, recovery_point: int, last_base: int) -> int:
        """Up to where the log must reach. Without a statement, the checkpoint counts as far as there is a segment for it."""
        if self.accept_loss:
            return 0
        return min(recovery_point, last_base) if self.stated is None else self.stated.end

    def check_end(self, leo: int, end: int, reason: str, *, more_behind: bool = False) -> None:
        """Raises LogDamaged when a log that must reach to `end` ends at `leo`, for this reason. `more_behind`: there are segments
        that would be thrown away, or what is left is not whole."""
        if leo < end and (more_behind or not self.cut_short):
            raise LogDamaged(f"{reason}: the records of offsets {leo} to {end - 1} cannot be read")


def base_of(name: str, suffix: str) -> int | None:
    """The base offset in a segment file's name; None when it is no such name: 20 digits, at most 2^63 - 1."""
    stem = name[: -len(suffix)]
    if not name.endswith(suffix) or len(stem) != 20 or not (stem.isascii() and stem.isdigit()):
        return None
    base = int(stem)
    return base if base <= MAX_INT64 else None


def bases_of(names: Sequence[str], suffix: str = LOG_SUFFIX) -> list[int]:
    """List the base offsets of the files with this suffix, ascending."""
    return sorted(base for name in names if (base := base_of(name, suffix)) is not None)


def check_names(promise: Promise, directory: str, names: Sequence[str], recovery_point: int, deletes: bool) -> bool:
    """Check that the segments that must be there are, by their names alone. Raises LogDamaged.

    True: those that are missing at the start wait under their `.deleted` names, which nobody has stated yet. Without `deletes`
    the log has no retention, and what waits there are the originals of compacted segments.
    """
    bases = bases_of(names) + bases_of(names, LOG_SUFFIX + SWAP_SUFFIX)
    stated = promise.stated
    if promise.accept_loss:
        return False
    if stated is None:
        if not bases and recovery_point > 0:
            raise LogDamaged(f"{directory} has no segment, though everything below offset {recovery_point} was flushed")
        return False
    if not bases:
        if stated.active >= 0 or stated.end > stated.start:
            end = f"{stated.end - 1} and beyond" if stated.end > stated.start else "and beyond"
            raise LogDamaged(
                f"{segment_path(directory, max(stated.active, 0))} is missing, and every other segment: "
                f"the records of offsets {stated.start} to {end} are missing"
            )
        return False
    first = min(bases)
    deleted = bases_of(names, LOG_SUFFIX + DELETED_SUFFIX)
    deleting = deletes and first > stated.start and bool(deleted) and deleted[0] <= stated.start
    if first > stated.start and not deleting:
        raise LogDamaged(
            f"{directory} begins with {segment_path('', first)[1:]}, though the log begins at offset {stated.start}: "
            f"the records of offsets {stated.start} to {first - 1} are missing"
        )
    if max(bases) < stated.active and not promise.cut_short:
        raise LogDamaged(
            f"{segment_path(directory, stated.active)} is missing: the records from offset {stated.active} on are missing"
        )
    return deleting
