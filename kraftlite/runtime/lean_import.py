"""Imports of libraries without the optional parts that they pull in when those happen to be installed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast


@contextmanager
def hidden(name: str) -> Iterator[None]:
    """Inside, importing `name` fails as if it were not installed; nothing changes when it has been imported already."""
    modules = cast(dict[str, Any], sys.modules)
    if name in modules:
        yield
        return
    modules[name] = None
    try:
        yield
    finally:
        del modules[name]
