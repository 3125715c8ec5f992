"""The catalogue of the configurations that workloads draw. What a shape says itself comes before it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from kraftlite.sim.workloads import group_settings

Settings = Callable[[int, int], Mapping[str, str]]
"""Given the seed and the number of brokers."""

SETTINGS: Final[tuple[Settings, ...]] = (group_settings.settings,)


def settings_of(seed: int, brokers: int) -> dict[str, str]:
    found: dict[str, str] = {}
    for settings in SETTINGS:
        found.update(settings(seed, brokers))
    return found
