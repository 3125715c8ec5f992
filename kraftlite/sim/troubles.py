"""Draws the faults that came later, for a third of the seeds: slow nodes, disks that lie, damaged files, wrong clocks.

The stream is their own, so the other faults of a seed are as without them. Half of the draws are a mix, half are scenes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from kraftlite.sim.fault_plan import TROUBLES, FaultPlan
from kraftlite.sim.shape import Shape
from kraftlite.sim.targets import any_node, node_ids, period_ms

Scene = Callable[[random.Random, Shape, int], Sequence[FaultPlan]]


def draw(rng: random.Random, shape: Shape, duration_ms: int) -> list[FaultPlan]:
    """Times from the start of the safety phase."""
    found: list[FaultPlan] = []
    if rng.randrange(2):
        kinds = rng.sample(TROUBLES, rng.randint(1, 3))
        latest_ms = duration_ms * 3 // 4
        found += [_one(rng, shape, rng.choice(kinds), rng.randint(0, latest_ms)) for _ in range(rng.randint(1, 5))]
    else:
        found += rng.choice(SCENES)(rng, shape, rng.randint(0, duration_ms // 2))
    return [it for it in found if it.at_ms < duration_ms]


def _one(rng: random.Random, shape: Shape, kind: str, at_ms: int) -> FaultPlan:
    plan = FaultPlan(at_ms=at_ms, kind=kind, target=any_node(rng, shape), for_ms=rng.choice((rng.randint(20, 1500), 4000)))
    match kind:
        case "slow-cpu":
            return replace(plan, amount=rng.choice((500, 2_000, 10_000, 50_000)))
        case "stutter":
            return replace(plan, amount=rng.choice((50, 600, 3_000)))
        case "drift":
            return replace(plan, amount=rng.choice((-500_000, -50_000, 50_000, 1_000_000)))
        case "short-io":
            return replace(plan, amount=rng.choice((1, 3, 20)))
        case "disk-flaky":
            return replace(plan, amount=rng.choice((20, 300, 1_500)))
        case "clocks":
            return replace(plan, target="", amount=rng.choice((3_000, 600_000, 90_000_000)))
        case "client-clock":
            return replace(plan, target="", amount=rng.choice((-90_000_000, -5_000, 5_000, 90_000_000)))
        case "hold":
            return replace(plan, other=any_node(rng, shape))
        case _:
            return replace(plan, amount=rng.randrange(1, 1 << 16))


def lying_voter(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """A flush of a voter fails and takes the pages with it; just then the other voters lose power."""
    voters = node_ids(shape, "controller")
    liar = rng.choice(voters)
    dark_ms = at_ms + rng.randint(0, 300)
    return (
        FaultPlan(at_ms=at_ms, kind="fsync-lost", target=liar, for_ms=rng.randint(50, 800), amount=rng.randrange(3)),
        *(
            FaultPlan(at_ms=dark_ms + rng.randint(0, 200), kind="power", target=it, for_ms=rng.randint(50, 1500))
            for it in voters
            if it != liar
        ),
    )


def failing_directory(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """A log directory of a broker fails and comes back, and a peer dies or slows down meanwhile."""
    brokers = node_ids(shape, "broker")
    kind, other = rng.choice(("dir-error", "dir-full", "dir-read-only", "dir-empty")), rng.choice(("kill", "slow-cpu", "power"))
    for_ms = rng.randint(200, 3000)
    return (
        FaultPlan(at_ms=at_ms, kind=kind, target=rng.choice(brokers), for_ms=for_ms, amount=rng.randrange(1, 3)),
        FaultPlan(at_ms=at_ms + rng.randint(0, for_ms), kind=other, target=rng.choice(brokers), for_ms=for_ms, amount=2_000),
    )


def sleeping_leader(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """A leader stands still for longer than its session and the quorum's patience, and wakes up while what it was sent, and what
    it had sent, is still on its way."""
    session_ms = period_ms(shape, "broker.session.timeout.ms", 9_000)
    who = "controller" if rng.randrange(2) or not shape.topics else f"leader {rng.choice(shape.topics).name}-0"
    asleep_ms = session_ms + rng.randint(100, 2000)
    return (
        FaultPlan(at_ms=at_ms, kind="hold", target=who, other=any_node(rng, shape), for_ms=asleep_ms + rng.randint(0, 1000)),
        FaultPlan(at_ms=at_ms + 1, kind="pause", target=who, for_ms=asleep_ms),
        FaultPlan(at_ms=at_ms + asleep_ms + 1, kind="slow-cpu", target=who, for_ms=2_000, amount=rng.choice((500, 5_000))),
    )


def backward_election(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """All wall clocks jump, and some run at another speed, while a leader is elected; then they jump back."""
    gone_ms = rng.randint(500, 4000)
    return (
        FaultPlan(at_ms=at_ms, kind=rng.choice(("kill", "isolate", "pause")), target="controller", for_ms=gone_ms),
        FaultPlan(at_ms=at_ms + rng.randint(0, 1500), kind="clocks", for_ms=rng.randint(200, 3000), amount=86_400_000),
        *(
            FaultPlan(at_ms=at_ms, kind="drift", target=it, for_ms=gone_ms + 1000, amount=rng.choice((-300_000, 300_000)))
            for it in node_ids(shape, "controller")
            if rng.randrange(2)
        ),
    )


def torn_and_stale(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """A node loses power in the middle of a write, comes back, and next time finds older checkpoints, or damaged files."""
    who = rng.choice(node_ids(shape, rng.choice(("broker", "controller"))))
    kind = rng.choice(("stale", "rot", "old-files"))
    return (
        FaultPlan(at_ms=at_ms, kind="power-mid-write", target=who, for_ms=rng.randint(50, 800), amount=rng.randrange(2)),
        FaultPlan(at_ms=at_ms + rng.randint(1500, 3000), kind=kind, target=who, for_ms=500, amount=rng.randrange(1, 9)),
    )


SCENES: Final[tuple[Scene, ...]] = (lying_voter, failing_directory, sleeping_leader, backward_election, torn_and_stale)
