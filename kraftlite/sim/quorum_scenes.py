"""Scenes of the metadata quorum and of its active controller, from a stream of their own: half of the plain and troubled seeds
have one."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from kraftlite.sim.fault_plan import FaultPlan
from kraftlite.sim.shape import SHORT_LOG, Shape
from kraftlite.sim.targets import node_ids, period_ms
from kraftlite.sim.themes import PLAIN, TROUBLES

Scene = Callable[[random.Random, Shape, int], Sequence[FaultPlan]]
_SOON_US: Final = (1, 1, 50, 300)


def draw(seed: int, shape: Shape, duration_ms: int) -> list[FaultPlan]:
    scene, rng = _drawn(seed), random.Random(f"quorum/scenes/{seed}")
    return [] if scene is None else [it for it in scene(rng, shape, rng.randint(500, 3_000)) if it.at_ms < duration_ms]


def with_short_log(shape: Shape, seed: int, theme: str) -> Shape:
    """The shape with a metadata log that forgets soon, where the scene needs one."""
    if theme not in (PLAIN, TROUBLES) or _drawn(seed) is not leader_goes_amid_a_download:
        return shape
    return replace(shape, config={**shape.config, **SHORT_LOG})


def _drawn(seed: int) -> Scene | None:
    rng = random.Random(f"quorum/{seed}")
    return None if rng.randrange(2) else rng.choice(SCENES)


def fleeting_leaders(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """One leader after the other goes when it has just been elected, and is back about when the next one goes: each has a record
    that nobody else has, and their logs part from each other more than once (Raft, figure 7)."""
    if len(node_ids(shape, "controller")) < 3:
        return ()
    fetch_ms = period_ms(shape, "controller.quorum.fetch.timeout.ms", 2_000)
    election_ms = period_ms(shape, "controller.quorum.election.timeout.ms", 1_000)
    deed = rng.choice(("kill", "kill", "pause"))
    away_ms = [fetch_ms + rng.randint(election_ms // 2, 2 * election_ms) for _ in range(rng.choice((3, 4, 5)))]
    away_ms[-1] += 2 * (fetch_ms + election_ms)  # it comes back when its successor has committed something
    return (
        *(FaultPlan(at_ms=at_ms, kind=f"{deed}-at-won", for_ms=it, amount=rng.choice(_SOON_US)) for it in away_ms),
        FaultPlan(at_ms=at_ms + 10, kind="kill", target="controller", for_ms=rng.randint(100, fetch_ms)),
    )


def leaves_while_another_lags(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """A broker stops in order while the metadata goes on, and what another one says comes late: it is always behind, and not
    always behind the moves of the first one's leaderships (CM-08)."""
    controllers = node_ids(shape, "controller")
    brokers = [it for it in node_ids(shape, "broker") if it not in controllers]
    if len(brokers) < 2:
        return ()
    lags, *others = rng.sample(brokers, len(brokers))
    beat_ms = period_ms(shape, "broker.heartbeat.interval.ms", 2_000)
    late_us = 1_000 * beat_ms * rng.choice((1, 2)) + rng.randint(0, 50_000)
    stops = [at_ms + beat_ms + rng.randint(0, beat_ms) + turn * (8 * beat_ms + 1_000) for turn in range(rng.choice((1, 2, 3)))]
    for_ms = stops[-1] - at_ms + 5 * beat_ms + rng.randint(500, 2_000)
    return (
        FaultPlan(at_ms=at_ms, kind="churn", for_ms=for_ms, amount=rng.choice((20, 50, 100))),
        *(FaultPlan(at_ms=at_ms, kind="late", target=lags, other=it, for_ms=for_ms, amount=late_us) for it in controllers),
        *(FaultPlan(at_ms=it, kind="stop", target=rng.choice(others), for_ms=rng.randint(100, 1_000)) for it in stops),
    )


def leader_goes_amid_a_download(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """Whoever was away needs a snapshot, and the leader goes when it is asked for a part: the next one may have a snapshot of
    the same name (RF-44)."""
    if len(node_ids(shape, "controller")) < 3:
        return ()
    away_ms = rng.randint(3_000, 5_000)
    deed = rng.choice(("kill", "stop", "pause"))
    return (
        FaultPlan(at_ms=at_ms, kind="churn", for_ms=away_ms, amount=rng.choice((20, 50))),
        *(
            FaultPlan(at_ms=at_ms, kind=rng.choice(("isolate", "pause")), target=it, for_ms=away_ms + rng.randint(0, 500))
            for it in rng.sample(node_ids(shape, "broker"), 1)
        ),
        *(
            FaultPlan(
                at_ms=at_ms + away_ms // 2,
                kind=f"{deed}-at-part",
                for_ms=rng.choice((2_000, 6_000)),
                amount=rng.choice((1, 300, 2_000)),
            )
            for _ in range(2)
        ),
    )


SCENES: Final[tuple[Scene, ...]] = (fleeting_leaders, leaves_while_another_lags, leader_goes_amid_a_download)
