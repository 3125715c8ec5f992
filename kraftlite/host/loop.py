"""The event loop of a node's process, and its source of chance."""

from __future__ import annotations

import asyncio
import random
import sys
from typing import Final

SWITCH_INTERVAL_S: Final = 0.001
"""The time that a thread beside the loop keeps the loop waiting for the interpreter. Python's own is 5 ms, and a request that
is answered may have to wait more than once."""


def new_event_loop(kind: str = "auto") -> asyncio.AbstractEventLoop:
    """`kraftlite.event.loop`: uvloop, asyncio, or auto (uvloop where it is installed)."""
    if kind != "asyncio":
        try:
            import uvloop
        except ImportError:
            if kind == "uvloop":
                raise
        else:
            return uvloop.new_event_loop()  # type: ignore[no-any-return, unused-ignore]
    return asyncio.new_event_loop()


def host_entropy() -> random.Random:
    """A generator seeded by the operating system."""
    return random.Random()


def tune_threads() -> None:
    """Call once at the start of a process whose loop answers while other threads compute."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
