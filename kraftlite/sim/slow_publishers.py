"""Brokers that apply metadata in small steps, and slowly, so that updates come while others are applied and become one with them;
from a random stream of its own.

Updates with configurations never do, so the topics that come and go meanwhile have none.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final

from kraftlite.sim.fault_plan import FaultPlan
from kraftlite.sim.shape import Shape
from kraftlite.sim.targets import node_ids, period_ms
from kraftlite.sim.themes import GROUPS, TRANSACTIONS

THEMES: Final = (GROUPS, TRANSACTIONS)
"""Those in which coordinators have something to do."""
ONE_SEED_IN: Final = 5
TURNS_MS: Final = (20, 100, 300)
"""The times between two steps of a publisher, one of which a scene has."""


def comes_with(seed: int, theme: str) -> bool:
    return theme in THEMES and random.Random(f"slow-publishers/{seed}").randrange(ONE_SEED_IN) == 0


def vary(shape: Shape, seed: int, theme: str) -> Shape:
    """One replica is made, deleted or told its role in each step."""
    if not comes_with(seed, theme):
        return shape
    return replace(shape, tuning=replace(shape.tuning, partitions_per_step=1, roles_per_step=1))


def draw(seed: int, shape: Shape, duration_ms: int, theme: str) -> list[FaultPlan]:
    """One scene after the other: most brokers are slow for a while, in which topics come and go, and mostly another one dies, so
    that they get what it has led."""
    if not comes_with(seed, theme):
        return []
    rng, brokers = random.Random(f"slow-publishers/faults/{seed}"), node_ids(shape, "broker")
    session_ms = period_ms(shape, "broker.session.timeout.ms", 9_000)
    found: list[FaultPlan] = []
    at_ms = rng.randint(200, 2_000)
    while at_ms < duration_ms:
        turn_ms, for_ms = rng.choice(TURNS_MS), session_ms + rng.randint(1_000, 3_000)
        dead = rng.sample(brokers, min(rng.choice((0, 1, 1)), len(brokers) - 1))
        found += (FaultPlan(at_ms=at_ms + rng.randint(0, 600), kind="kill", target=it, for_ms=for_ms) for it in dead)
        slow = [it for it in brokers if it not in dead and rng.randrange(4)]
        found += (FaultPlan(at_ms=at_ms, kind="slow-publisher", target=it, for_ms=for_ms, amount=turn_ms) for it in slow)
        found.append(FaultPlan(at_ms=at_ms, kind="churn", for_ms=for_ms, amount=rng.choice((30, 150))))
        at_ms += for_ms + rng.randint(200, 2_000)
    return sorted((it for it in found if it.at_ms < duration_ms), key=lambda it: it.at_ms)
