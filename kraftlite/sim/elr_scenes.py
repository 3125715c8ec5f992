"""Eligible leader replicas in a run: whether the cluster is formatted with them, and the faults they are for (KIP-966).

Both have a random stream of their own: all else of a seed is as without them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from kraftlite.metadata.features import ELIGIBLE_LEADER_REPLICAS_VERSION
from kraftlite.sim.fault_plan import FaultPlan
from kraftlite.sim.shape import Shape
from kraftlite.sim.targets import leader_with_followers, node_ids, period_ms

Scene = Callable[[random.Random, Shape, int], Sequence[FaultPlan]]
_ENDS: Final = ("kill", "power", "stop")


def with_feature(shape: Shape, seed: int) -> Shape:
    """Leave the feature off in a quarter of the seeds; in the others it is on from the release that begins with it on."""
    if random.Random(f"elr/{seed}").randrange(4):
        return shape
    return replace(shape, features={**shape.features, ELIGIBLE_LEADER_REPLICAS_VERSION: 0})


def draw(seed: int, shape: Shape, duration_ms: int) -> list[FaultPlan]:
    """One scene, in a quarter of the seeds."""
    rng = random.Random(f"elr/scenes/{seed}")
    if rng.randrange(4) or len(node_ids(shape, "broker")) < 2:
        return []
    return [
        it
        for it in rng.choice(SCENES)(rng, shape, rng.randint(min(500, duration_ms // 2), duration_ms // 2))
        if it.at_ms < duration_ms
    ]


def one_after_another(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """All brokers end, each in its own way, so far apart that the controller sees each; they come back in any order."""
    brokers = node_ids(shape, "broker")
    rng.shuffle(brokers)
    session_ms = period_ms(shape, "broker.session.timeout.ms", 9_000)
    back = list(range(len(brokers)))
    rng.shuffle(back)
    apart_ms, found = session_ms + rng.randint(100, 800), []
    last_ms = at_ms + apart_ms * len(brokers)
    for index, broker in enumerate(brokers):
        when_ms = at_ms + index * apart_ms
        until_ms = last_ms + back[index] * rng.randint(50, 2 * session_ms)
        found.append(FaultPlan(at_ms=when_ms, kind=rng.choice(_ENDS), target=broker, for_ms=until_ms - when_ms))
    return found


def dark_rack(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """Some of the brokers lose power at once, and come back one by one; now and then it is all of them."""
    brokers = node_ids(shape, "broker")
    rack = brokers if rng.randrange(3) == 0 else rng.sample(brokers, rng.randint(1, len(brokers) - 1))
    session_ms = period_ms(shape, "broker.session.timeout.ms", 9_000)
    return [
        FaultPlan(at_ms=at_ms, kind="power", target=it, for_ms=rng.randint(20, 2 * session_ms) + rng.randint(0, 1_500))
        for it in rack
    ]


def last_member(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """The followers of a partition are gone; then its leader ends uncleanly, and its disk may be a new one."""
    leader = leader_with_followers(rng, shape)
    if leader is None:
        return ()
    session_ms = period_ms(shape, "broker.session.timeout.ms", 9_000)
    gone_ms = session_ms + rng.randint(100, 1_000)
    brokers = node_ids(shape, "broker")
    stay = rng.choice(brokers)
    kind, away_ms = rng.choice(("kill", "stop", "pause", "isolate")), gone_ms + session_ms + rng.randint(200, 3_000)
    found = [FaultPlan(at_ms=at_ms, kind=kind, target=it, for_ms=away_ms) for it in brokers if it != stay]
    ends = rng.choice(("kill", "power", "power", "wipe"))
    if ends == "wipe" and stay in node_ids(shape, "controller"):
        ends = "power"
    return [*found, FaultPlan(at_ms=at_ms + gone_ms, kind=ends, target=stay, for_ms=rng.randint(20, 1_500))]


def killed_on_its_way_out(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """Brokers that are asked to stop lose power before, just when, or after they say that they stopped cleanly."""
    brokers = node_ids(shape, "broker")
    rng.shuffle(brokers)
    found = []
    for broker in brokers[: rng.randint(1, len(brokers))]:
        found.append(FaultPlan(at_ms=at_ms, kind="stop", target=broker, for_ms=rng.randint(500, 4_000)))
        found.append(
            FaultPlan(at_ms=at_ms + rng.randint(0, 1_500), kind=rng.choice(("kill", "power")), target=broker, for_ms=500)
        )
        at_ms += rng.randint(0, 2_000)
    return found


def lagging_follower(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """Followers fall out of the ISR and come back, while `workloads/minimum` changes what is enough; and what their leader
    hears of the metadata is late now and then."""
    leader = leader_with_followers(rng, shape)
    if leader is None:
        return ()
    lag_ms = period_ms(shape, "replica.lag.time.max.ms", 30_000)
    found = []
    for follower in rng.sample(node_ids(shape, "broker"), rng.randint(1, 2)):
        away_ms = lag_ms * 3 // 2 + rng.randint(100, 1_000)
        found.append(FaultPlan(at_ms=at_ms, kind="refuse", target=follower, other=leader, for_ms=away_ms))
    late_us = rng.choice((100_000, 400_000, 1_500_000))
    found.append(FaultPlan(at_ms=at_ms, kind="late", target="controller", other=leader, for_ms=lag_ms * 2, amount=late_us))
    ends_ms = at_ms + lag_ms * 3 // 2 + rng.randint(0, 2_000)
    found.append(FaultPlan(at_ms=ends_ms, kind=rng.choice(_ENDS), target=leader, for_ms=rng.randint(500, 6_000)))
    return found


SCENES: Final[tuple[Scene, ...]] = (
    one_after_another,
    dark_rack,
    last_member,
    killed_on_its_way_out,
    lagging_follower,
)
