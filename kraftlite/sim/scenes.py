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
from kraftlite.sim.targets import leader_with_followers, node_ids, period_ms

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


def draw_late_scene(rng: random.Random, shape: Shape, duration_ms: int) -> list[FaultPlan]:
    """In a quarter of the seeds one scene more, of those that came later: all else is as without it."""
    if rng.randrange(4):
        return []
    scene = rng.choice(_LATE_SCENES)(rng, shape, rng.randint(0, duration_ms // 3))
    return [it for it in scene if it.at_ms < duration_ms]


def contested_election(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """A voter that has missed something comes back just when the leader goes, and votes take so long that candidates meet (Raft
    §5.2, §5.4)."""
    voters = node_ids(shape, "controller")
    if len(voters) < 3:
        return ()
    behind_ms, gone_ms = rng.randint(300, 4000), rng.randint(500, 6000)
    why, how = (rng.choice(("kill", "isolate", "pause", "power", "cut-quorum")) for _ in range(2))
    then_ms = at_ms + max(0, behind_ms + rng.randint(-400, 200))
    slow_us = rng.choice((100_000, 500_000, 2_000_000))
    slow_ones = [rng.choice(voters)] if rng.randrange(2) else [it for it in voters if rng.randrange(2)]
    links = [(a, b) for a in slow_ones for b in voters if a != b]
    return (
        FaultPlan(at_ms=at_ms, kind=why, target=rng.choice(voters), for_ms=behind_ms),
        FaultPlan(at_ms=then_ms, kind=how, target="controller", for_ms=gone_ms),
        *(FaultPlan(at_ms=then_ms, kind="late", target=a, other=b, for_ms=gone_ms, amount=slow_us) for a, b in links),
    )


def deposed_leader(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """A leader goes on writing what it cannot commit, and comes back with the longer log and the older epoch just when its
    successor goes (Raft §5.4.1, figure 8)."""
    if len(node_ids(shape, "controller")) < 3:
        return ()
    fetch_ms = period_ms(shape, "controller.quorum.fetch.timeout.ms", 2_000)
    found: list[FaultPlan] = []
    for _ in range(rng.choice((1, 1, 2, 3))):
        alone_ms = fetch_ms + rng.randint(100, 1500)
        found.append(FaultPlan(at_ms=at_ms, kind="cut-quorum", target="controller", for_ms=alone_ms))
        at_ms += alone_ms + rng.randint(-400, 100)
        found.append(
            FaultPlan(
                at_ms=at_ms,
                kind=rng.choice(("kill", "pause", "isolate", "power", "cut-quorum")),
                target="controller",
                for_ms=rng.randint(500, 5000),
            )
        )
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
    partition = leader_with_followers(rng, shape)
    if partition is None:
        return ()
    follower = rng.choice(node_ids(shape, "broker"))
    lag_ms, session_ms = period_ms(shape, "replica.lag.time.max.ms", 30_000), period_ms(shape, "broker.session.timeout.ms", 9_000)
    late_us, late_ms = 1000 * rng.choice((session_ms // 2, session_ms, 3_000)), rng.randint(1000, 6000)
    behind_ms = lag_ms * 3 // 2 + rng.randint(100, 1000)
    away = [partition]
    late_at_ms = at_ms + behind_ms - rng.randint(0, 300)
    if rng.randrange(2):  # its leader and the controller both find it missing, about at the same time
        away += node_ids(shape, "controller")
        behind_ms = max(behind_ms, session_ms + rng.randint(100, 1000))
        late_at_ms = at_ms + min(lag_ms, session_ms) - 100
        late_ms += behind_ms
    # Refused, not cut: it comes back at once when it can, and not when it has given up on what was lost.
    found = [FaultPlan(at_ms=at_ms, kind="refuse", target=follower, other=it, for_ms=behind_ms) for it in away]
    links = ((partition, "controller"), (follower, "controller"), (follower, partition))
    for source, target in [it for it in links if rng.randrange(2)] or [rng.choice(links)]:
        found.append(FaultPlan(at_ms=late_at_ms, kind="late", target=source, other=target, for_ms=late_ms, amount=late_us))
    how = rng.choice(("kill", "kill", "power", "wipe", "stop"))
    for _ in range(rng.choice((1, 1, 2))):
        when = at_ms + behind_ms + rng.randint(0, 1500)
        found.append(FaultPlan(at_ms=when, kind=how, target=follower, for_ms=rng.randint(20, 300)))
    return found


def unheard_fencing(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """The controller takes a follower out of the ISR, and its leader, who does not hear of it, asks for the same (KIP-497)."""
    partition = leader_with_followers(rng, shape)
    if partition is None:
        return ()
    follower = rng.choice(node_ids(shape, "broker"))
    lag_ms, session_ms = period_ms(shape, "replica.lag.time.max.ms", 30_000), period_ms(shape, "broker.session.timeout.ms", 9_000)
    away_ms = max(lag_ms * 3 // 2, session_ms) + rng.randint(200, 1500)
    deaf_ms = max(0, min(lag_ms, session_ms) - rng.randint(100, 400))
    return (
        *(
            FaultPlan(at_ms=at_ms, kind="refuse", target=follower, other=it, for_ms=away_ms)
            for it in (partition, *node_ids(shape, "controller"))
        ),
        FaultPlan(at_ms=at_ms + deaf_ms, kind="cut-one-way", target="controller", other=partition, for_ms=away_ms - deaf_ms),
    )


def refused_member(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """A follower that the controller has just fenced catches up, and its leader has not heard of the fencing (KIP-841)."""
    partition = leader_with_followers(rng, shape)
    if partition is None:
        return ()
    follower = rng.choice(node_ids(shape, "broker"))
    session_ms = period_ms(shape, "broker.session.timeout.ms", 9_000)
    out_ms = period_ms(shape, "replica.lag.time.max.ms", 30_000) * 3 // 2 + rng.randint(100, 1000)
    silent_ms = at_ms + max(0, out_ms - session_ms)
    fenced_ms = silent_ms + session_ms
    heal_ms = fenced_ms + rng.randint(0, 1000)
    known_ms = fenced_ms + rng.randint(500, 3000)
    return (
        FaultPlan(at_ms=at_ms, kind="refuse", target=follower, other=partition, for_ms=heal_ms - at_ms),
        *(
            FaultPlan(at_ms=silent_ms, kind="cut-one-way", target=follower, other=it, for_ms=known_ms - silent_ms)
            for it in node_ids(shape, "controller")
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
    brokers = node_ids(shape, "broker")
    who, down_ms, slow_ms = rng.choice(brokers), rng.randint(20, 2500), rng.randint(1000, 5000)
    how = rng.choice(("kill", "power", "stop", "stop"))
    if how != "stop":  # it is not registered again before the session of its former self is over
        slow_ms += max(0, period_ms(shape, "broker.session.timeout.ms", 9_000) - down_ms)
    found = [
        FaultPlan(at_ms=at_ms, kind=how, target=who, for_ms=down_ms),
        FaultPlan(
            at_ms=at_ms + down_ms, kind="disk-slow", target=who, for_ms=slow_ms, amount=rng.choice((100_000, 400_000, 1_000_000))
        ),
    ]
    if rng.randrange(4):
        found.append(FaultPlan(at_ms=at_ms + down_ms, kind="churn", for_ms=slow_ms, amount=rng.choice((50, 200))))
    for _ in range(rng.randint(0, 3)):
        when = at_ms + down_ms + rng.randint(0, slow_ms)
        what = rng.choice(("kill", "stop", "pause", "isolate"))
        target = rng.choice((rng.choice(brokers), leader_with_followers(rng, shape) or brokers[0]))
        found.append(FaultPlan(at_ms=when, kind=what, target=target, for_ms=rng.randint(100, 3000)))
    return found


def stopped_then_dark(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """A broker stops in order, and while it is down its machine loses power: what the clean shutdown has promised is there when
    it comes back (BL-10, LG-26)."""
    who = rng.choice(node_ids(shape, "broker"))
    dark_ms = rng.randint(500, 3000)  # handing its leaderships over takes a few heartbeats
    return (
        FaultPlan(at_ms=at_ms, kind="stop", target=who, for_ms=dark_ms + rng.randint(0, 2000)),
        FaultPlan(at_ms=at_ms + dark_ms, kind="power", target=who, for_ms=rng.randint(20, 1000)),
    )


def two_failovers(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """A broker dies, and before its session is over the controller goes, and soon the next one: the last of them has never heard
    of that broker, and fences it all the same (CE-26)."""
    session_ms = period_ms(shape, "broker.session.timeout.ms", 9_000)
    fetch_ms = period_ms(shape, "controller.quorum.fetch.timeout.ms", 2_000)
    first_ms = at_ms + rng.randint(0, session_ms * 3 // 4)
    second_ms = first_ms + fetch_ms + rng.randint(200, 1500)
    how = rng.choice(("kill", "power", "isolate"))
    gone_ms = second_ms - at_ms + 2 * (fetch_ms + session_ms) + 4_000
    return (
        FaultPlan(at_ms=at_ms, kind=how, target=rng.choice(node_ids(shape, "broker")), for_ms=gone_ms),
        FaultPlan(at_ms=first_ms, kind=rng.choice(("kill", "isolate")), target="controller", for_ms=rng.randint(100, 3000)),
        FaultPlan(at_ms=second_ms, kind=rng.choice(("kill", "isolate")), target="controller", for_ms=rng.randint(100, 3000)),
    )


def overtaken_join(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """A follower that was out of the ISR catches up, and its leader asks for it to join; the request is held, and when it arrives
    the follower has stopped and is there again, with its disk or without (KIP-903)."""
    partition = leader_with_followers(rng, shape)
    if partition is None:
        return ()
    follower = rng.choice(node_ids(shape, "broker"))
    lag_ms, session_ms = period_ms(shape, "replica.lag.time.max.ms", 30_000), period_ms(shape, "broker.session.timeout.ms", 9_000)
    backoff_ms = period_ms(shape, "replica.fetch.backoff.ms", 1_000)
    heartbeat_ms = period_ms(shape, "broker.heartbeat.interval.ms", 2_000)
    behind_ms = lag_ms * 3 // 2 + rng.randint(100, 500)
    asked_ms = at_ms + behind_ms + backoff_ms + rng.randint(50, 500)
    held_ms = asked_ms - (at_ms + behind_ms) + heartbeat_ms + rng.randint(300, 1500)
    found = [
        FaultPlan(at_ms=at_ms, kind="refuse", target=follower, other=partition, for_ms=behind_ms),
        # No longer than its leader's session: a leader that is fenced meanwhile is one no more.
        FaultPlan(
            at_ms=at_ms + behind_ms - 20, kind="hold", target=partition, other="controller", for_ms=min(held_ms, session_ms)
        ),
        FaultPlan(at_ms=asked_ms, kind="stop", target=follower, for_ms=20),
    ]
    if rng.randrange(2):
        found.append(FaultPlan(at_ms=asked_ms + rng.randint(5, 100), kind="wipe", target=follower, for_ms=20))
    return found


_SCENES: Final[tuple[Scene, ...]] = (
    contested_election,
    deposed_leader,
    left_behind,
    late_requests,
    unheard_fencing,
    refused_member,
    busy_start,
)
_LATE_SCENES: Final[tuple[Scene, ...]] = (stopped_then_dark, two_failovers, overtaken_join)
