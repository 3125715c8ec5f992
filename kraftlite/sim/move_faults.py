"""Machines that lose power while a copy of a replica takes its place in another directory; from a random stream of its own."""

from __future__ import annotations

import random
from typing import Final

from kraftlite.sim.fault_plan import FaultPlan
from kraftlite.sim.shape import Shape
from kraftlite.sim.swap_faults import cuts_at_renames

ONE_SEED_IN: Final = 3
RENAMES: Final = 2


def draw(seed: int, shape: Shape, duration_ms: int) -> list[FaultPlan]:
    """In a third of the seeds: when the copy has its plain name, or when the old directory has lost it."""
    rng = random.Random(f"moves/{seed}")
    if rng.randrange(ONE_SEED_IN):
        return []
    return cuts_at_renames(rng, shape, duration_ms, "power-mid-move", for_ms=(1_000, 6_000), renames=RENAMES)
