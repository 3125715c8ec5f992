"""The end of a log whose last records are lost, and whose offsets are not given again.

Source: docs/adr/0007-replicas-that-lost-data.md; LG-54.
"""

from __future__ import annotations

from collections.abc import Callable

from kraftlite.log.batch import NO_TIMESTAMP, placeholder_batch
from kraftlite.log.epochs import LeaderEpochCache
from kraftlite.log.segment import Appended, Segment
from kraftlite.log.segments import SegmentList


def end_behind_hole(segments: SegmentList, epochs: LeaderEpochCache, end: int, create: Callable[[int], Segment]) -> None:
    """Let the log, which ends before, end at `end`. `create` makes a segment.

    A batch without records, as compaction leaves one, has the last offset: a follower comes to the end by fetching what is there,
    and behind what is left there would be nothing to fetch. It is of the latest leader epoch of what is left, so that what a
    follower has of later epochs is still cut off.
    """
    last = segments.active
    if last.size == 0:
        last.unlink()
        if len(segments) == 1:  # nothing is left: the log begins there, too
            segments.replace_active(create(end))
            return
        segments.replace_active(create(end - 1))
    else:
        segments.add(create(end - 1))
    if epochs.latest_epoch is None:
        epochs.assign(0, end - 1)
    batch = placeholder_batch(end - 1, epochs.latest_epoch or 0)
    active = segments.active
    active.append(batch, [Appended(end - 1, len(batch), NO_TIMESTAMP)])
    active.file.sync()
