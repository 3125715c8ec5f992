"""Machines that lose power while a compacted segment takes the place of others; from a random stream of its own."""

from __future__ import annotations

import random
from typing import Final

from kraftlite.sim.fault_plan import FaultPlan
from kraftlite.sim.shape import Shape
from kraftlite.sim.targets import node_ids

ONE_SEED_IN: Final = 4
RENAMES: Final = 10
"""A swap renames two to four files of each segment, three times over: the cut comes at one of the first of these."""


def draw(seed: int, shape: Shape, duration_ms: int) -> list[FaultPlan]:
    """In a quarter of the seeds."""
    rng = random.Random(f"swaps/{seed}")
    return [] if rng.randrange(ONE_SEED_IN) else cuts(rng, shape, duration_ms)


def cuts(rng: random.Random, shape: Shape, duration_ms: int) -> list[FaultPlan]:
    """On some brokers, one after another."""
    return cuts_at_renames(rng, shape, duration_ms, "power-mid-swap", for_ms=(500, 4_000), renames=RENAMES)


def cuts_at_renames(
    rng: random.Random, shape: Shape, duration_ms: int, kind: str, *, for_ms: tuple[int, int], renames: int
) -> list[FaultPlan]:
    """One to four faults of a kind that waits, for as long as `for_ms` bounds, for one of the first `renames` of something."""
    brokers = node_ids(shape, "broker")
    return sorted(
        (
            FaultPlan(
                at_ms=rng.randrange(duration_ms),
                kind=kind,
                target=rng.choice(brokers),
                for_ms=rng.randint(*for_ms),
                amount=rng.randrange(renames),
            )
            for _ in range(rng.randint(1, 4))
        ),
        key=lambda it: it.at_ms,
    )
