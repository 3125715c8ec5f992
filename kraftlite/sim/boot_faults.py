"""Controllers that die while the first records of the cluster are written (CE-14 to CE-16); from a stream of its own.

In a fifth of the seeds of `troubles`. There the first records, which are one metadata transaction, go into several batches, and
the processors are so slow meanwhile that the quorum has some of them when the active controller dies.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final

from kraftlite.sim.fault_plan import FaultPlan
from kraftlite.sim.shape import Shape

ONE_SEED_IN: Final = 5
_FIRST_BATCHES: Final = (1, 2, 4)
_AFTER_MS: Final = (20, 1_200)


def comes_with(seed: int) -> bool:
    return _stream(seed).randrange(ONE_SEED_IN) == 0


def draw(seed: int) -> list[FaultPlan]:
    """One to three deaths: also of who aborts what another one has left open."""
    if not comes_with(seed):
        return []
    rng = random.Random(f"boot-faults/deaths/{seed}")
    return [
        FaultPlan(at_ms=0, kind="kill-amid-bootstrap", for_ms=rng.choice((50, 500, 3_000)), amount=rng.randint(*_AFTER_MS))
        for _ in range(rng.choice((1, 1, 2, 3)))
    ]


def vary(shape: Shape, seed: int) -> Shape:
    """The shape with the sizes that such a seed needs."""
    if not comes_with(seed):
        return shape
    batch = random.Random(f"boot-faults/sizes/{seed}").choice(_FIRST_BATCHES)
    return replace(shape, tuning=replace(shape.tuning, elements_per_turn=1, first_records_per_batch=batch))


def _stream(seed: int) -> random.Random:
    return random.Random(f"boot-faults/{seed}")
