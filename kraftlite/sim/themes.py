"""The theme of a seed: which of the things that not every seed has it is about.

Beside the producers, consumers, the administrator and the faults that every seed has, a seed has one theme. What has been run
together for many seeds may share a theme; so a violation points at one of them, and a run stays short.
"""

from __future__ import annotations

import random
from typing import Final

GROUPS: Final = "groups"
LOGS: Final = "logs"
ADMIN: Final = "admin"
KNOBS: Final = "knobs"
TROUBLES: Final = "troubles"

THEMES: Final = (GROUPS, LOGS, ADMIN, KNOBS, TROUBLES)
"""Consumer groups; logs that are compacted and cut; the admin API; odd configurations; disks, clocks and loops that fail."""


def theme_of(seed: int) -> str:
    return random.Random(f"theme/{seed}").choice(THEMES)
