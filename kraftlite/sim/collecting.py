"""The cyclic garbage collector during a run.

A run makes objects by the hundred thousand, nearly all of which die with their last reference. With the interpreter's own
thresholds the collector walks over the living ones again and again: a tenth of a run. It is asked rarely instead, and not never,
so that a run that goes astray is still bounded. A process that does nothing but runs leaves out what it has imported.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_OBJECTS: Final = 100_000
"""So many more objects than before are made between two collections of the young ones: some ten megabytes."""


@contextmanager
def collecting_rarely() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(_OBJECTS, before[1], before[2])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def leave_out_what_lives() -> None:
    """Never look again at what lives now: for a process that has imported everything and is about to make many runs."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_OBJECTS, *gc.get_threshold()[1:])  # else the end of each run would look through all that it has left
