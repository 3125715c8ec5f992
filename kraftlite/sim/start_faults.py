"""Brokers whose log starts are said too high beside damaged statements, and that lead afterwards; from a stream of its own."""

from __future__ import annotations

import random

from kraftlite.sim.fault_plan import FaultPlan
from kraftlite.sim.shape import Shape
from kraftlite.sim.targets import node_ids, period_ms

ONE_SEED_IN = 5


def draw(seed: int, shape: Shape, duration_ms: int) -> list[FaultPlan]:
    """In a fifth of the seeds, where brokers have something in common."""
    rng = random.Random(f"false-starts/{seed}")
    if rng.randrange(ONE_SEED_IN) or len(node_ids(shape, "broker")) < 2:
        return []
    return [it for it in misled_leader(rng, shape, rng.randint(200, max(201, duration_ms // 2))) if it.at_ms < duration_ms]


def misled_leader(rng: random.Random, shape: Shape, at_ms: int) -> list[FaultPlan]:
    """A broker comes back with false log starts, catches up, and the others go one after another, so that it leads."""
    brokers = node_ids(shape, "broker")
    misled = rng.choice(brokers)
    session_ms = period_ms(shape, "broker.session.timeout.ms", 9_000)
    found = [FaultPlan(at_ms=at_ms, kind="false-starts", target=misled, for_ms=rng.choice((50, 500, 2_000)))]
    later_ms = at_ms + session_ms + rng.randint(1_500, 4_000)
    for other in rng.sample([it for it in brokers if it != misled], len(brokers) - 1):
        gone_ms = rng.choice((100, session_ms + rng.randint(100, 1_000)))
        found.append(FaultPlan(at_ms=later_ms, kind=rng.choice(("kill", "stop", "isolate")), target=other, for_ms=gone_ms))
        later_ms += gone_ms + rng.randint(100, 1_500)
    return found
