"""The event loop of a node's process, and its source of chance."""

from __future__ import annotations

import asyncio
import random


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
