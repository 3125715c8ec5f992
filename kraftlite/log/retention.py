"""Deleting old segments: what lies below the log start, what is too much, what is too old.

Source: LG-36 to LG-39; KIP-107 (log start offset).
"""

from __future__ import annotations

from collections.abc import Callable

from kraftlite.log.log import Log
from kraftlite.log.segment import Segment

BELOW_START = "below the log start"
TOO_LARGE = "retention.bytes"
TOO_OLD = "retention.ms"


def apply_retention(log: Log, wall_ms: int) -> int:
    """Delete what the topic's configuration lets go of, oldest segments first, and return how many segments went.

    Whole segments only, and none that reaches beyond the high watermark. An active segment that has expired with all others is
    rolled first, so that the log is empty at its LEO then. Segments below the log start go under any `cleanup.policy`, the
    other rules are those of `delete`. Raises OSError; ApiError(CORRUPT_MESSAGE) when a segment's timestamps cannot be read.
    """
    count = log.delete_segments_before(log.log_start_offset, reason=BELOW_START)
    config = log.config
    if not config.deletes:
        return count
    if config.retention_bytes >= 0:
        count += _delete_while(log, _surplus(log.size_bytes - config.retention_bytes), TOO_LARGE)
    if config.retention_ms >= 0:
        before_ms = wall_ms - config.retention_ms
        count += _delete_while(log, lambda segment: newest_ms(segment) < before_ms, TOO_OLD)
    return count


def _surplus(left: int) -> Callable[[Segment], bool]:
    """Return whether this segment may go, too, so that at least `retention.bytes` stay."""

    def fits(segment: Segment) -> bool:
        nonlocal left
        left -= segment.size
        return left >= 0

    return fits


def newest_ms(segment: Segment) -> int:
    """Return the time of the newest record. Records without timestamps are as old as the file (LG-37)."""
    newest = segment.max_timestamp
    return newest if newest >= 0 else segment.modified_ms()


def _delete_while(log: Log, rule: Callable[[Segment], bool], reason: str) -> int:
    """Delete the segments at the front for which `rule` holds, up to the first for which it does not."""
    segments = log.segments
    bound = log.log_start_offset
    for index, segment in enumerate(segments):
        last = index + 1 == len(segments)
        end = log.leo if last else segments[index + 1].base_offset
        if end > log.hw or (last and segment.size == 0) or not rule(segment):
            break
        bound = end
        if last:
            log.roll()
    return log.delete_segments_before(bound, reason=reason)
