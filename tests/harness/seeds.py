"""Seeds that whoever starts a test names."""

from __future__ import annotations

import os


def seeds_in(variable: str, default: str = "") -> list[int]:
    """The seeds of an environment variable, as in `7,20-29`."""
    seeds: list[int] = []
    for part in os.environ.get(variable, default).split(","):
        first, _, last = part.strip().partition("-")
        if first:
            seeds += range(int(first), int(last or first) + 1)
    return seeds
