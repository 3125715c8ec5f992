"""Regular expressions of strangers, which the loop runs: RE2, whose time is linear, and whose language is that of re2j."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

MAX_COMPILED_BYTES: Final = 1 << 20
"""The memory that one expression may take."""


@lru_cache(maxsize=256)
def compiled(pattern: str) -> Any:
    """Raises re2.error, whose only argument says what is wrong."""
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = MAX_COMPILED_BYTES
    return re2.compile(pattern, options)
