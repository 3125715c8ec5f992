"""The allocator of the C library, told to keep what it has, and Python's cycle collector, told to leave alone what lasts.

A node moves blocks of 16 KiB to 1 MiB all day. glibc maps blocks of 128 KiB and more anew each time and gives them back, so that
every message pays for its page faults; with raised thresholds the same replication runs twice as fast.
Source: docs/PERFORMANCE.md, "Appends".
"""

from __future__ import annotations

import gc
import sys

_GC_THRESHOLDS = (5_000, 4, 1)
"""A full collection comes when some 50,000 objects have come and stayed: 25 to 60 ms."""
_FREEZE_ABOVE = 20_000
"""Objects that outlive a full collection. When they are more, the next one does not look at them again."""

_M_TRIM_THRESHOLD = -1
_M_TOP_PAD = -2
_M_MMAP_THRESHOLD = -3

_TRIM_BYTES = 256 << 20
_PAD_BYTES = 16 << 20
_MMAP_BYTES = 32 << 20


def tune_malloc() -> bool:
    """Call once at the start of a process. Returns whether the C library took it (False without glibc)."""
    if not sys.platform.startswith("linux"):
        return False
    import ctypes

    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    results = [
        mallopt(_M_MMAP_THRESHOLD, _MMAP_BYTES),
        mallopt(_M_TRIM_THRESHOLD, _TRIM_BYTES),
        mallopt(_M_TOP_PAD, _PAD_BYTES),
    ]
    return all(result == 1 for result in results)


def tune_gc() -> None:
    """Call once, when everything is imported: that is never looked at again, nor is state that has been looked at once.

    The metadata of 100,000 partitions is half a million objects, and to walk them all stops the loop for 0.8 s. It is needless:
    what a node lets go of is freed by its reference counts, frozen or not. Only cycles that were made before a freeze and are let
    go after it stay. A node makes few (gRPC's calls and timers do), and none that lasts; a freeze comes only with 20,000 objects
    that are alive, so what it can lose is a small part of what the node holds. Source: docs/PERFORMANCE.md.
    """
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
    if _freeze_what_lasts not in gc.callbacks:
        gc.callbacks.append(_freeze_what_lasts)


def _freeze_what_lasts(phase: str, info: dict[str, int]) -> None:
    if phase == "stop" and info["generation"] == 2 and _outlived() > _FREEZE_ABOVE:
        gc.freeze()


def _outlived() -> int:
    """Count the objects that outlived the last full collection.

    The list of them must be gone before another thread runs: it refers to tuples that a thread is still building from a
    generator, and CPython ends a tuple that anybody else refers to with a SystemError. Threads may change after each call in
    Python; within one `next` they do not, since `map` makes, counts and drops the list in C.
    """
    return next(map(len, map(gc.get_objects, (2,))))
