"""Replica fetches that arrive late, behind those that were sent after them; from a random stream of its own.

A follower whose connection breaks opens its session anew, and may do so twice before the first request arrives. All else of a
seed is as without these.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final

from kraftlite.sim.fault_plan import FaultPlan
from kraftlite.sim.shape import Shape
from kraftlite.sim.targets import leader_with_followers, node_ids, period_ms

Scene = Callable[[random.Random, Shape, int], Sequence[FaultPlan]]
ONE_SEED_IN: Final = 6


def draw(seed: int, shape: Shape, duration_ms: int) -> list[FaultPlan]:
    """One scene, again and again, in a sixth of the seeds."""
    rng = random.Random(f"fetches/{seed}")
    if rng.randrange(ONE_SEED_IN) or len(node_ids(shape, "broker")) < 2:
        return []
    scene, at_ms = rng.choice(SCENES), rng.randint(0, 2_000)
    found: list[FaultPlan] = []
    while at_ms < duration_ms:
        found += scene(rng, shape, at_ms)
        at_ms += rng.randint(1_500, 5_000)
    return sorted((it for it in found if it.at_ms < duration_ms), key=lambda it: it.at_ms)


def late_openings(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """A follower has gone on in another session when the request arrives with which it had opened one: the last that its leader
    hears is where it was before that."""
    leader = leader_with_followers(rng, shape)
    if leader is None:
        return ()
    late_ms = period_ms(shape, "replica.fetch.backoff.ms", 1_000) * 2 + rng.randint(20, 1_500)
    return [FaultPlan(at_ms=at_ms, kind="repeat-fetch", target=it, other=leader, for_ms=late_ms) for it in _some(rng, shape)]


def former_selves(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """A follower restarts while such a request is under way, and its leader, which is told no metadata, hears of the new
    incarnation by its fetches only (KIP-903)."""
    leader = leader_with_followers(rng, shape)
    if leader is None:
        return ()
    follower, gone_ms = rng.choice(node_ids(shape, "broker")), at_ms + rng.randint(20, 400)
    gone_ms += period_ms(shape, "replica.fetch.backoff.ms", 1_000)
    late_ms = gone_ms - at_ms + rng.choice((2_000, 5_000, 8_000))
    return (
        FaultPlan(at_ms=at_ms, kind="repeat-fetch", target=follower, other=leader, for_ms=late_ms),
        *(
            FaultPlan(at_ms=gone_ms - 10, kind="cut-one-way", target=it, other=leader, for_ms=late_ms + at_ms - gone_ms + 500)
            for it in node_ids(shape, "controller")
        ),
        FaultPlan(at_ms=gone_ms, kind="stop", target=follower, for_ms=20),
    )


def _some(rng: random.Random, shape: Shape) -> list[str]:
    brokers = node_ids(shape, "broker")
    return rng.sample(brokers, rng.randint(1, len(brokers)))


SCENES: Final[tuple[Scene, ...]] = (late_openings, former_selves)
