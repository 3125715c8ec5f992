"""Metadata snapshots that are damaged, on a node that is down or runs, while others need one; from a stream of its own.

In a fifth of the seeds of `troubles`. There the metadata log forgets so soon that whoever was away needs a snapshot, which goes
over the network in parts.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final

from kraftlite.sim.fault_plan import FaultPlan
from kraftlite.sim.shape import SHORT_LOG, Shape
from kraftlite.sim.targets import any_node

ONE_SEED_IN: Final = 5
PARTS_BYTES: Final = (100, 400, 3_000)


def comes_with(seed: int) -> bool:
    return random.Random(f"snapshots/{seed}").randrange(ONE_SEED_IN) == 0


def draw(seed: int, shape: Shape, duration_ms: int) -> list[FaultPlan]:
    """Two to four times a node is away for seconds, and meanwhile the snapshot goes bad of whom it will ask, or of anybody."""
    if not comes_with(seed):
        return []
    rng, found = random.Random(f"snapshots/faults/{seed}"), []
    for _ in range(rng.randint(2, 4)):
        at_ms, gone_ms = rng.randint(0, duration_ms * 2 // 3), rng.choice((1_500, 3_000, 5_000))
        found += [
            FaultPlan(at_ms=at_ms, kind=rng.choice(("isolate", "pause", "kill")), target=any_node(rng, shape), for_ms=gone_ms),
            FaultPlan(
                at_ms=at_ms + rng.randint(0, gone_ms),
                kind="rot-snapshot",
                target=rng.choice(("controller", "controller", any_node(rng, shape))),
                for_ms=rng.randint(50, 1_500),
                amount=rng.randrange(4),
            ),
        ]
    return [it for it in found if it.at_ms < duration_ms]


def vary(shape: Shape, seed: int) -> Shape:
    """The shape with the log and the parts that such a seed needs."""
    if not comes_with(seed):
        return shape
    parts = random.Random(f"snapshots/parts/{seed}").choice(PARTS_BYTES)
    return replace(shape, config={**shape.config, **SHORT_LOG}, tuning=replace(shape.tuning, snapshot_chunk_bytes=parts))
