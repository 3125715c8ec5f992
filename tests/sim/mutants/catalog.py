"""The mutants, by name."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kraftlite.sim.themes import (
    ADMIN,
    DIRECTORIES,
    GROUPS,
    KNOBS,
    LOGS,
    MEMBERSHIP,
    PLAIN,
    SECURITY,
    SINK,
    TRANSACTIONS,
    TROUBLES,
)
from tests.sim.mutants.patching import Patch

MODULES: Final = (
    "elections",
    "quorum_log",
    "metadata",
    "controller",
    "brokers",
    "replication",
    "hw",
    "storage",
    "cleaning",
    "producers",
    "consumers",
    "strangers",
    "disks",
    "stalls",
    "self_checks",
    "groups",
    "admin",
    "periods",
    "transactions",
    "elr",
    "levels",
    "transactions_at_once",
    "transaction_races",
    "directories",
    "membership",
    "listeners",
    "security",
    "logins",
    "sink",
    "transaction_ends",
    "moves",
    "deletions",
    "throttles",
    "cordons",
    "brokers_away",
    "needless",
    "group_times",
    "refused_writes",
)

Change = Callable[[Patch], None]

AREA_THEMES: Final = {
    "groups": GROUPS,
    "cleaning": LOGS,
    "consumers": LOGS,
    "admin": ADMIN,
    "periods": KNOBS,
    "disks": TROUBLES,
    "directories": DIRECTORIES,
    "stalls": TROUBLES,
    "transactions": TRANSACTIONS,
    "transactions_at_once": TRANSACTIONS,
    "transaction_races": TRANSACTIONS,
    "membership": MEMBERSHIP,
    "listeners": MEMBERSHIP,
    "security": SECURITY,
    "logins": SECURITY,
    "sink": SINK,
    "transaction_ends": TRANSACTIONS,
    "moves": ADMIN,
    "deletions": LOGS,
    "throttles": ADMIN,
    "cordons": DIRECTORIES,
    "brokers_away": ADMIN,
    "group_times": GROUPS,
    "refused_writes": GROUPS,
}
"""The themes in which the mutants of an area are hunted; all others in plain runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """`breaks`: the rule, in a few words. `expects`: who should catch it: numbers of invariants, "liveness" or "crash".

    `shape` is the name of a shape that the mutant needs, only where plain seeds do not get there. `lens` changes what is no
    protocol (a size, a period) so that a run of seconds reaches the rule; it holds for runs without the mutant, too. `scene`:
    the scene of transactions or of voters that is played instead of the faults of a seed, only where those get there too rarely.
    """

    name: str
    breaks: str
    expects: tuple[str, ...]
    change: Change
    area: str
    shape: str | None = None
    lens: Change | None = None
    scene: str | None = None

    @property
    def theme(self) -> str:
        return AREA_THEMES.get(self.area, PLAIN)


_MUTANTS: Final[dict[str, Mutant]] = {}


def mutant(
    name: str,
    breaks: str,
    *,
    expects: tuple[str, ...],
    shape: str | None = None,
    lens: Change | None = None,
    scene: str | None = None,
) -> Callable[[Change], Change]:
    """Register a function that changes production through the `Patch` it gets. Its docstring says where this was a mistake."""

    def register(change: Change) -> Change:
        assert name not in _MUTANTS, f"two mutants are named {name}"
        assert change.__doc__, f"mutant {name} does not say where this mistake was made"
        area = change.__module__.rpartition(".")[2]
        _MUTANTS[name] = Mutant(
            name=name, breaks=breaks, expects=expects, change=change, area=area, shape=shape, lens=lens, scene=scene
        )
        return change

    return register


def mutants() -> dict[str, Mutant]:
    """All of them, in the order of `MODULES` and of the source."""
    for module in MODULES:
        importlib.import_module(f"tests.sim.mutants.{module}")
    return dict(_MUTANTS)
