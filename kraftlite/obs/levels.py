"""The level of each event by its name, for those who have its line and not its class."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from functools import cache
from typing import Final

from kraftlite.obs import faults
from kraftlite.runtime import trace
from kraftlite.runtime.trace import TraceEvent

_FAULT: Final = "warning"
"""A fault that somebody asked for, and its end."""


def kinds(kind: type[TraceEvent] = TraceEvent) -> Iterator[type[TraceEvent]]:
    """All classes of events, once the modules of the vocabulary are loaded."""
    for found in kind.__subclasses__():
        yield found
        yield from kinds(found)


def load_vocabulary() -> None:
    for module in pkgutil.iter_modules(trace.__path__):
        importlib.import_module(f"{trace.__name__}.{module.name}")


@cache
def _levels() -> dict[str, str]:
    load_vocabulary()
    return {**{kind.event: kind.level for kind in kinds()}, **dict.fromkeys(faults.EVENTS, _FAULT)}


def level_of(event: str) -> str:
    """debug, info, warning or error. An event of another version of kraftlite counts as info."""
    return _levels().get(event, "info")
