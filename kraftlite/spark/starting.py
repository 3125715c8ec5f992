"""The JVM of a start of Spark that ended early.

A driver that is interrupted while its JVM starts has no hold of it yet. The JVM then finds nobody to whom it could tell its port,
fails, and never ends.
"""

from __future__ import annotations

import subprocess
import traceback
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def none_left_behind() -> Iterator[None]:
    """End the processes that were being started when an exception, an interrupt above all, came: those that only the functions
    know through which it went."""
    try:
        yield
    except BaseException as error:
        for frame, _ in traceback.walk_tb(error.__traceback__):
            for found in list(frame.f_locals.values()):
                if isinstance(found, subprocess.Popen) and found.poll() is None:
                    found.kill()
                    found.wait()
        raise
