"""Spark's Python workers: what helps in the process of a task."""

from __future__ import annotations

import gc

_settled = False


def settle() -> None:
    """Spare this process the walk through everything that it has imported: PySpark's daemon collects all garbage behind every
    task, which takes 40 to 60 ms of a core with PySpark, pandas and Arrow in memory. What is there now, at the end of the first
    task or plan, stays for as long as the process anyway. Idempotent."""
    global _settled
    if not _settled:
        gc.freeze()
        _settled = True
