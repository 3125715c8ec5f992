"""Racks of brokers: in a third of the seeds of the theme `logs` consumers may read from followers (KIP-392)."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Final

from kraftlite.replication.config import RACK_AWARE_SELECTOR
from kraftlite.sim.themes import LOGS

RACKS: Final = ("east", "west")
ONE_SEED_IN: Final = 3


def has_racks(theme: str, seed: int) -> bool:
    return theme == LOGS and random.Random(f"racks/{seed}").randrange(ONE_SEED_IN) == 0


def of_broker(theme: str, seed: int, number: int) -> Mapping[str, str]:
    """The configuration of broker `number` beside what all nodes have."""
    if not has_racks(theme, seed):
        return {}
    return {"broker.rack": RACKS[number % len(RACKS)], "replica.selector.class": RACK_AWARE_SELECTOR}
