"""Faults that belong together: situations which independent faults meet too rarely.

Each scene is a few faults whose times depend on each other and on the shape's timeouts; what they are about is in their
docstrings. They are ordinary faults afterwards: printed, shortened and replayed like all others.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final

from kraftlite.sim.fault_plan import FaultPlan
from kraftlite.sim.shape import Shape

Scene = Callable[[random.Random, Shape, int], Sequence[FaultPlan]]


def draw_scenes(rng: random.Random, shape: Shape, duration_ms: int) -> list[FaultPlan]:
    """Scene after scene, as many as fit."""
    found: list[FaultPlan] = []
    at_ms = rng.randint(0, 1500)
    while at_ms < duration_ms:
        scene = rng.choice(_SCENES)(rng, shape, at_ms)
        found += scene
        at_ms = max((it.at_ms + it.for_ms for it in scene), default=at_ms) + rng.randint(200, 2500)
    return sorted((it for it in found if it.at_ms < duration_ms), key=lambda it: it.at_ms)


def contested_election(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """A voter that has missed something, or a leader that could commit nothing, comes back just when the leader goes; votes take
    so long that candidates meet (Raft §5.2 to §5.4)."""
    voters = _ids(shape, "controller")
    if len(voters) < 3:
        return ()
    behind_ms, gone_ms = rng.randint(300, 4000), rng.randint(500, 6000)
    who = rng.choice((rng.choice(voters), "controller"))
    found = [
        FaultPlan(
            at_ms=at_ms,
            kind=rng.choice(("kill", "isolate", "pause", "power", "cut-quorum", "cut-quorum")),
            target=who,
            for_ms=behind_ms,
        )
    ]
    then_ms = at_ms + max(0, behind_ms + rng.randint(-400, 200))
    how = rng.choice(("kill", "pause", "isolate", "power", "cut-quorum"))
    found.append(FaultPlan(at_ms=then_ms, kind=how, target="controller", for_ms=gone_ms))
    slow_us = rng.choice((100_000, 500_000, 2_000_000))
    slow_ones = [rng.choice(voters)] if rng.randrange(2) else [it for it in voters if rng.randrange(2)]
    links = [(a, b) for a in slow_ones for b in voters if a != b]
    found += [FaultPlan(at_ms=then_ms, kind="late", target=a, other=b, for_ms=gone_ms, amount=slow_us) for a, b in links]
    return found


def left_behind(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """A node misses so many topics that come and go that it has to load a snapshot, in which some of what it knows is not."""
    away_ms = rng.randint(3000, 9000)
    kind = rng.choice(("isolate", "pause", "kill"))
    return (
        FaultPlan(at_ms=at_ms, kind="churn", for_ms=away_ms, amount=rng.choice((20, 100, 300))),
        FaultPlan(at_ms=at_ms + rng.randint(0, 1500), kind=kind, target=str(rng.randint(1, len(shape.roles))), for_ms=away_ms),
    )


def late_requests(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """A follower falls out of the ISR and comes back, and restarts while what it, or its leader, had said is still on its way
    (KIP-380, KIP-497, KIP-903)."""
    partition = _partition(rng, shape)
    if partition is None:
        return ()
    follower = rng.choice(_ids(shape, "broker"))
    lag_ms, session_ms = _ms(shape, "replica.lag.time.max.ms", 30_000), _ms(shape, "broker.session.timeout.ms", 9_000)
    late_us, late_ms = rng.choice((500_000, 1_500_000, 3_000_000)), rng.randint(1000, 6000)
    if rng.randrange(2):
        behind_ms = lag_ms * 3 // 2 + rng.randint(100, 1000)
        found = [FaultPlan(at_ms=at_ms, kind="cut", target=follower, other=partition, for_ms=behind_ms)]
        late_at_ms = at_ms + behind_ms - rng.randint(0, 300)
    else:  # its leader and the controller both find it missing, about at the same time
        behind_ms = max(lag_ms * 3 // 2, session_ms) + rng.randint(100, 1000)
        found = [FaultPlan(at_ms=at_ms, kind="isolate", target=follower, for_ms=behind_ms)]
        late_at_ms = at_ms + min(lag_ms, session_ms) - 100
        late_ms += behind_ms
    back_ms = at_ms + behind_ms
    for source, target in ((partition, "controller"), (follower, "controller"), (follower, partition)):
        if rng.randrange(3):
            found.append(FaultPlan(at_ms=late_at_ms, kind="late", target=source, other=target, for_ms=late_ms, amount=late_us))
    how = rng.choice(("kill", "kill", "power", "wipe", "stop"))
    for _ in range(rng.choice((1, 1, 2))):
        when = back_ms + rng.randint(0, 1500)
        found.append(FaultPlan(at_ms=when, kind=how, target=follower, for_ms=rng.randint(20, 300)))
    return found


def refused_member(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """A follower that the controller has just fenced catches up, and its leader has not heard of the fencing (KIP-841)."""
    partition = _partition(rng, shape)
    if partition is None:
        return ()
    follower = rng.choice(_ids(shape, "broker"))
    session_ms = _ms(shape, "broker.session.timeout.ms", 9_000)
    out_ms = _ms(shape, "replica.lag.time.max.ms", 30_000) * 3 // 2 + rng.randint(100, 1000)
    silent_ms = at_ms + max(0, out_ms - session_ms)
    fenced_ms = silent_ms + session_ms
    heal_ms = fenced_ms + rng.randint(0, 1000)
    known_ms = fenced_ms + rng.randint(500, 3000)
    return (
        FaultPlan(at_ms=at_ms, kind="cut", target=follower, other=partition, for_ms=heal_ms - at_ms),
        *(
            FaultPlan(at_ms=silent_ms, kind="cut-one-way", target=follower, other=it, for_ms=known_ms - silent_ms)
            for it in _ids(shape, "controller")
        ),
        FaultPlan(
            at_ms=max(0, fenced_ms - 500),
            kind="late",
            target="controller",
            other=partition,
            for_ms=known_ms - fenced_ms + 500,
            amount=rng.choice((1_000_000, 3_000_000)),
        ),
    )


def busy_start(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """A broker loads its logs for seconds, and the metadata goes on meanwhile."""
    brokers = _ids(shape, "broker")
    who, down_ms, slow_ms = rng.choice(brokers), rng.randint(20, 2500), rng.randint(500, 4000)
    found = [
        FaultPlan(at_ms=at_ms, kind=rng.choice(("kill", "kill", "power", "stop")), target=who, for_ms=down_ms),
        FaultPlan(
            at_ms=at_ms + down_ms, kind="disk-slow", target=who, for_ms=slow_ms, amount=rng.choice((100_000, 400_000, 1_000_000))
        ),
    ]
    for _ in range(rng.randint(1, 3)):
        when = at_ms + down_ms + rng.randint(0, slow_ms)
        what = rng.choice(("kill", "stop", "pause", "isolate"))
        target = rng.choice((rng.choice(brokers), _partition(rng, shape) or brokers[0]))
        found.append(FaultPlan(at_ms=when, kind=what, target=target, for_ms=rng.randint(100, 3000)))
    return found


_SCENES: Final[tuple[Scene, ...]] = (
    contested_election,
    contested_election,
    left_behind,
    late_requests,
    refused_member,
    busy_start,
)


def _ids(shape: Shape, role: str) -> list[str]:
    return [str(number) for number, roles in enumerate(shape.roles, 1) if role in roles]


def _ms(shape: Shape, key: str, default: int) -> int:
    return int(shape.config.get(key, default))


def _partition(rng: random.Random, shape: Shape) -> str | None:
    """The leader of a partition that has followers."""
    topics = [it for it in shape.topics if it.replication > 1]
    if not topics:
        return None
    topic = rng.choice(topics)
    return f"leader {topic.name}-{rng.randrange(topic.partitions)}"
