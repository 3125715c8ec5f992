"""Says whether a seed has an administrator who throttles replication, and the configuration of its brokers."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Final

ONE_SEED_IN: Final = 4


def comes_with(seed: int) -> bool:
    return random.Random(f"throttles/{seed}").randrange(ONE_SEED_IN) == 0


def settings(seed: int, brokers: int) -> Mapping[str, str]:
    """Few windows: Kafka's eleven are as long as a run; and answers so small that who catches up needs many of them."""
    rng = random.Random(f"throttles/windows/{seed}")
    if not comes_with(seed):
        return {}
    return {
        "replication.quota.window.num": str(rng.choice((1, 2, 3))),
        "replica.fetch.response.max.bytes": str(rng.choice((1_000, 4_000))),
    }
