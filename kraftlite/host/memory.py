"""The allocator of the C library, told to keep what it has, and Python's cycle collector, told to come less often.

A node moves blocks of 16 KiB to 1 MiB all day. glibc maps blocks of 128 KiB and more anew each time and gives them back, so that
every message pays for its page faults; with raised thresholds the same replication runs twice as fast.
Source: docs/PERFORMANCE.md, "Appends".
"""

from __future__ import annotations

import gc
import sys

_GC_THRESHOLDS = (10_000, 20, 50)

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
    """Call once, when everything is imported: that is never looked at again. A node's state holds millions of objects and few
    cycles, and every full collection walks all of it: taking up a metadata log costs a quarter more with Python's defaults."""
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
