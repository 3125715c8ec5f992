"""Scenes that no seed draws: with them a run of seconds reaches what a mutant breaks."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

from kraftlite.sim.fault_plan import FaultPlan
from kraftlite.sim.shape import Shape
from kraftlite.sim.targets import leader_with_followers, node_ids, period_ms


def lagging_followers(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """The followers of a leader go on fetching, and everything takes so long that they cannot keep up (KIP-16)."""
    partition = leader_with_followers(rng, shape)
    if partition is None:
        return ()
    for_ms = period_ms(shape, "replica.lag.time.max.ms", 30_000) * 2 + rng.randint(1000, 4000)
    slow_us = rng.choice((200_000, 500_000, 1_000_000))
    return [
        FaultPlan(at_ms=at_ms, kind="late", target=source, other=target, for_ms=for_ms, amount=slow_us)
        for it in node_ids(shape, "broker")
        for source, target in ((it, partition), (partition, it))
    ]


def slow_followers(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """The followers of a leader are always behind, and with each fetch where the log ended at the fetch before (KIP-16)."""
    partition = leader_with_followers(rng, shape)
    if partition is None:
        return ()
    for_ms = period_ms(shape, "replica.lag.time.max.ms", 30_000) * 4 + rng.randint(1000, 4000)
    slow_us = rng.choice((200_000, 300_000, 400_000))
    return [
        FaultPlan(at_ms=at_ms, kind="late", target=partition, other=it, for_ms=for_ms, amount=slow_us)
        for it in node_ids(shape, "broker")
    ]


def two_histories(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """A follower that is a little behind becomes the leader, writes alone what is never committed, and goes; its successor has
    more of the epoch before, and has never heard of that of the leader between (KIP-279)."""
    partition = leader_with_followers(rng, shape)
    brokers = node_ids(shape, "broker")
    if partition is None or len(brokers) < 3:
        return ()
    heartbeat_ms = period_ms(shape, "broker.heartbeat.interval.ms", 2_000)
    behind_ms = rng.randint(50, 500)
    parted_ms = at_ms + behind_ms
    alone_ms = heartbeat_ms + rng.randint(200, 1200)
    healed_ms = parted_ms + alone_ms + heartbeat_ms + rng.randint(200, 800)
    first, second = (rng.choice(("stop", "stop", "kill")) for _ in range(2))
    pairs = itertools.combinations(brokers, 2)
    return (
        FaultPlan(at_ms=at_ms, kind="refuse", target=rng.choice(brokers), other=partition, for_ms=behind_ms),
        FaultPlan(at_ms=parted_ms, kind=first, target=partition, for_ms=healed_ms - parted_ms + rng.randint(500, 2000)),
        *(FaultPlan(at_ms=parted_ms, kind="refuse", target=a, other=b, for_ms=healed_ms - parted_ms) for a, b in pairs),
        FaultPlan(at_ms=parted_ms + alone_ms, kind=second, target=partition, for_ms=heartbeat_ms + rng.randint(200, 2000)),
    )


def deaf_controllers(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """Nothing that brokers and controllers say to each other arrives, for less than a session: what is said once is lost, what is
    said again is not, and nobody is fenced, so that no change of a partition brings it up again."""
    for_ms = rng.randint(200, period_ms(shape, "broker.session.timeout.ms", 9_000) // 3)
    controllers = node_ids(shape, "controller")
    pairs = [(broker, it) for broker in node_ids(shape, "broker") for it in controllers if it != broker]
    return [FaultPlan(at_ms=at_ms, kind="cut", target=a, other=b, for_ms=for_ms) for a, b in pairs]


def failing_while_fenced(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """No broker reaches a controller until all are fenced and nobody leads, and a directory of each fails meanwhile: who comes
    back says with one heartbeat that it is there and that the directory is not."""
    away_ms = period_ms(shape, "broker.session.timeout.ms", 9_000) + rng.randint(500, 2_000)
    controllers, found = node_ids(shape, "controller"), []
    for broker in node_ids(shape, "broker"):
        found += [
            FaultPlan(at_ms=at_ms, kind="cut", target=broker, other=it, for_ms=away_ms) for it in controllers if it != broker
        ]
        fails_ms = at_ms + rng.randint(away_ms // 2, away_ms)
        found.append(FaultPlan(at_ms=fails_ms, kind="dir-error", target=broker, for_ms=away_ms, amount=rng.randint(1, 2)))
    return sorted(found, key=lambda it: it.at_ms)


def lonely_leaders(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """A leader reaches no other node, and clients reach it: what it writes it has to give up when it is back (KIP-101)."""
    partition = leader_with_followers(rng, shape)
    if partition is None:
        return ()
    away_ms = period_ms(shape, "broker.session.timeout.ms", 9_000) + rng.randint(500, 2_500)
    return (FaultPlan(at_ms=at_ms, kind="isolate", target=partition, for_ms=away_ms),)


def failing_places(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """A broker starts with all of its directories, and one of them has no room for the replica that is to be made next there."""
    broker, for_ms = rng.choice(node_ids(shape, "broker")), rng.randint(1_500, 3_000)
    return (
        FaultPlan(at_ms=at_ms, kind="stop", target=broker, for_ms=rng.randint(50, 200)),
        FaultPlan(at_ms=at_ms + 300, kind="dir-no-inodes", target=broker, for_ms=for_ms, amount=rng.randint(1, 2)),
    )


def parted_replicas(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """Brokers hear the controllers and not each other, for less than anybody is put out of an ISR: produces wait."""
    for_ms = rng.randint(1_000, 2_500)
    brokers = [it for it in node_ids(shape, "broker") if it not in node_ids(shape, "controller")]
    return [FaultPlan(at_ms=at_ms, kind="cut", target=a, other=b, for_ms=for_ms) for a, b in itertools.combinations(brokers, 2)]


def failing_under_produces(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """A directory fails while produces wait there."""
    parted = parted_replicas(rng, shape, at_ms)
    broker, fails_ms = rng.choice(node_ids(shape, "broker")), at_ms + rng.randint(50, 600)
    return [*parted, FaultPlan(at_ms=fails_ms, kind="dir-error", target=broker, for_ms=1_500, amount=rng.randint(1, 2))]


def small_sides(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """Two of five controllers are parted from all others, for much longer than a leader that is among them may lead on."""
    fetch_ms = period_ms(shape, "controller.quorum.fetch.timeout.ms", 2_000)
    apart = rng.sample(node_ids(shape, "controller"), 2)
    bits = sum(1 << int(it) for it in apart)
    return (FaultPlan(at_ms=at_ms, kind="split", for_ms=4 * fetch_ms + rng.randint(500, 1_500), amount=bits),)


def leaders_one_after_another(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """Whoever leads a partition dies when the one before it has been fenced, until it has no replica left; other brokers live."""
    topic = rng.choice(shape.topics)
    partition, apart_ms = (
        f"leader {topic.name}-{rng.randrange(topic.partitions)}",
        period_ms(shape, "broker.session.timeout.ms", 9_000),
    )
    times = [at_ms + index * (apart_ms + rng.randint(300, 600)) for index in range(topic.replication)]
    until_ms = times[-1] + apart_ms + rng.randint(1_500, 3_000)
    return [FaultPlan(at_ms=it, kind="kill", target=partition, for_ms=until_ms - it) for it in times]


def long_absences(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """A broker is away until it has been fenced for a while, and others make what it would be part of."""
    away_ms = period_ms(shape, "broker.session.timeout.ms", 9_000) + rng.randint(1_500, 4_000)
    return (FaultPlan(at_ms=at_ms, kind="kill", target=rng.choice(node_ids(shape, "broker")), for_ms=away_ms),)


def held_on_its_way_out(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """A broker stops while another one stands still, for less than a session: it has to wait until all have heard who leads."""
    brokers = [it for it in node_ids(shape, "broker") if it not in node_ids(shape, "controller")]
    if len(brokers) < 2:
        return ()
    leaving, still = rng.sample(brokers, 2)
    for_ms = period_ms(shape, "broker.session.timeout.ms", 9_000) * 2 // 3
    return (
        FaultPlan(at_ms=at_ms, kind="pause", target=still, for_ms=for_ms),
        FaultPlan(at_ms=at_ms + rng.randint(50, 300), kind="stop", target=leaving, for_ms=for_ms + 500),
    )


def taking_turns(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """One broker lives at a time, for long enough to lead alone; it dies when those that were away come back."""
    brokers = [it for it in node_ids(shape, "broker") if it not in node_ids(shape, "controller")]
    if len(brokers) < 2:
        return ()
    turn_ms = period_ms(shape, "broker.session.timeout.ms", 9_000) + rng.randint(800, 2_500)
    alone = rng.sample(brokers, 2)
    return [
        FaultPlan(at_ms=at_ms + turn * turn_ms, kind="kill", target=it, for_ms=turn_ms)
        for turn, lives in enumerate(alone)
        for it in brokers
        if it != lives
    ]


def deposed_while_asking(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """A leader hears no other broker, and for a shorter time no controller: what it asks a coordinator is not answered before it
    learns that it leads no more."""
    controllers = node_ids(shape, "controller")
    brokers = [it for it in node_ids(shape, "broker") if it not in controllers]
    if len(brokers) < 2:
        return ()
    leader, away_ms = rng.choice(brokers), period_ms(shape, "broker.session.timeout.ms", 9_000) + rng.randint(200, 800)
    deaf = [
        FaultPlan(at_ms=at_ms, kind="hold", target=it, other=leader, for_ms=away_ms + 1_500) for it in brokers if it != leader
    ]
    return [*deaf, *(FaultPlan(at_ms=at_ms, kind="cut", target=leader, other=it, for_ms=away_ms) for it in controllers)]


def late_registrations(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """A controller starts twice, and what it said at the first start comes behind what it says at the second one."""
    controllers = node_ids(shape, "controller")
    if len(controllers) < 2:
        return ()
    who, first_ms, again_ms = rng.choice(controllers), at_ms + 200, rng.randint(600, 1_500)
    late_us = 1_000 * (again_ms + rng.randint(1_000, 2_500))
    return [
        FaultPlan(at_ms=at_ms, kind="kill", target=who, for_ms=200),
        *(
            FaultPlan(at_ms=first_ms - 20, kind="late", target=who, other=it, for_ms=again_ms, amount=late_us)
            for it in controllers
            if it != who
        ),
        FaultPlan(at_ms=first_ms + again_ms, kind="kill", target=who, for_ms=100),
    ]


def slow_controllers(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """The active controller is slower than some of its callers have patience for: their requests are too old when their turn
    comes."""
    return (
        FaultPlan(
            at_ms=at_ms, kind="slow-cpu", target="controller", for_ms=rng.randint(1_500, 4_000), amount=rng.choice((2_000, 5_000))
        ),
    )


def quick_restarts(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """A broker stops in order and is back at once."""
    return (FaultPlan(at_ms=at_ms, kind="stop", target=rng.choice(node_ids(shape, "broker")), for_ms=rng.randint(50, 300)),)


def long_absences_and_failovers(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """A broker is away until it has been fenced, and comes back when the active controller has been replaced."""
    brokers = [it for it in node_ids(shape, "broker") if it not in node_ids(shape, "controller")]
    if not brokers:
        return ()
    fenced_ms = period_ms(shape, "broker.session.timeout.ms", 9_000) * 5 // 4 + 500
    elected_ms = 2 * period_ms(shape, "controller.quorum.fetch.timeout.ms", 2_000) + rng.randint(200, 600)
    return (
        FaultPlan(at_ms=at_ms, kind="kill", target=rng.choice(brokers), for_ms=fenced_ms + elected_ms),
        FaultPlan(at_ms=at_ms + fenced_ms, kind="kill", target="controller", for_ms=elected_ms + 3_000),
    )


def suspended_controllers(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """The machine of the active controller is suspended for longer than a session lasts."""
    for_ms = period_ms(shape, "broker.session.timeout.ms", 9_000) + rng.randint(500, 2_000)
    return (FaultPlan(at_ms=at_ms, kind="pause", target="controller", for_ms=for_ms),)
