"""Machines that lose power while a copy of a replica takes its place in another directory; from a random stream of its own."""

from __future__ import annotations

import random
from typing import Final

from kraftlite.sim.fault_plan import FaultPlan
from kraftlite.sim.shape import Shape
from kraftlite.sim.targets import node_ids

ONE_SEED_IN: Final = 3


def draw(seed: int, shape: Shape, duration_ms: int) -> list[FaultPlan]:
    """In a third of the seeds: when the copy has its plain name, or when the old directory has lost it."""
    rng = random.Random(f"moves/{seed}")
    if rng.randrange(ONE_SEED_IN):
        return []
    brokers = node_ids(shape, "broker")
    return sorted(
        (
            FaultPlan(
                at_ms=rng.randrange(duration_ms),
                kind="power-mid-move",
                target=rng.choice(brokers),
                for_ms=rng.randint(1_000, 6_000),
                amount=rng.randrange(2),
            )
            for _ in range(rng.randint(1, 4))
        ),
        key=lambda it: it.at_ms,
    )
