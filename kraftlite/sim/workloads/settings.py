"""The catalogue of the configurations that workloads draw. What a shape says itself comes before it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from kraftlite.sim.themes import ADMIN, GROUPS, SINK, TRANSACTIONS
from kraftlite.sim.workloads import group_settings, throttle_settings, transaction_settings

Settings = Callable[[int, int], Mapping[str, str]]
"""Given the seed and the number of brokers."""

SETTINGS: Final[Mapping[str, Settings]] = {
    ADMIN: throttle_settings.settings,
    GROUPS: group_settings.settings,
    TRANSACTIONS: transaction_settings.settings,
    SINK: transaction_settings.settings,
}
"""By theme."""


def settings_of(theme: str, seed: int, brokers: int) -> dict[str, str]:
    settings = SETTINGS.get(theme)
    return {} if settings is None else dict(settings(seed, brokers))
