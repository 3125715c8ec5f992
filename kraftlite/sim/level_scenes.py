"""Faults around changes of feature levels: brokers that are away, or run older software, while an administrator raises a level.

`kraftlite sim --seed N --scene NAME` plays one again and again in a run that has no other faults, in a cluster of an older level
unless `--shape` names another. They are played by name alone: a name among others would change what every seed draws.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final

from kraftlite.sim.fault_plan import FaultPlan
from kraftlite.sim.shape import Shape
from kraftlite.sim.targets import node_ids, period_ms

Scene = Callable[[random.Random, Shape, int], Sequence[FaultPlan]]

SHAPE: Final = "3+3-old"
"""Formatted at level 16 of `metadata.version`: records name no directories, and do from the next level on."""
_ENDS: Final = ("kill", "power", "pause", "isolate")


def play(name: str, seed: int, shape: Shape, duration_ms: int) -> tuple[FaultPlan, ...]:
    """One scene, again and again. Raises KeyError for a name that there is not."""
    scene, rng = ALL[name], random.Random(f"levels/scene/{name}/{seed}")
    found: list[FaultPlan] = []
    at_ms = 1_000
    while at_ms < duration_ms:
        played = scene(rng, shape, at_ms)
        found += played
        at_ms = max(it.at_ms + it.for_ms for it in played) + rng.randint(200, 2_000)
    return tuple(sorted((it for it in found if it.at_ms < duration_ms), key=lambda it: it.at_ms))


def directories_come_while_a_broker_is_away(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """L1: `metadata.version` gets directories while a broker does not run, is not heard, or stands still, which then says for the
    first time where its replicas are; the active controller, or another broker, goes meanwhile (KAFKA-16162)."""
    away, end = rng.choice(node_ids(shape, "broker")), rng.choice((*_ENDS, "stop"))
    session_ms = period_ms(shape, "broker.session.timeout.ms", 9_000)
    away_ms = rng.choice((300, session_ms // 2, session_ms + rng.randint(100, 2_000)))
    raised_ms = at_ms + rng.randint(1, away_ms + 500)
    found = [
        FaultPlan(at_ms=at_ms, kind=end, target=away, for_ms=away_ms),
        FaultPlan(at_ms=raised_ms, kind="raise-level", amount=rng.randint(1, 3)),
    ]
    if rng.randrange(2):
        victim = rng.choice(("controller", rng.choice(node_ids(shape, "broker"))))
        when = raised_ms + rng.randint(-50, 500)
        found.append(FaultPlan(at_ms=max(0, when), kind=rng.choice(_ENDS), target=victim, for_ms=rng.choice((100, 1_500))))
    return found


def old_broker_meets_an_upgrade(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """L2: a broker comes back with older software, and registers, when its session is over, just when a level is raised that it
    does not have: it is refused, or the upgrade is, whatever the active controller did meanwhile (KIP-584)."""
    old, more = rng.choice(node_ids(shape, "broker")), rng.choice((0, 0, 1, 2))
    session_ms = period_ms(shape, "broker.session.timeout.ms", 9_000)
    away_ms = session_ms + rng.randint(2_000, 5_000)
    around = [at_ms + session_ms + rng.randint(-300, 2_500) for _ in range(rng.choice((1, 2, 4)))]
    found = [FaultPlan(at_ms=at_ms, kind="old-software", target=old, for_ms=away_ms, amount=more)]
    found += (FaultPlan(at_ms=it, kind="raise-level", amount=max(1, more + rng.choice((0, 1, 1, 2)))) for it in around)
    if rng.randrange(2):
        goes_ms = at_ms + session_ms + rng.randint(-1_000, 500)
        found.append(FaultPlan(at_ms=goes_ms, kind=rng.choice(_ENDS), target="controller", for_ms=rng.choice((100, 2_000))))
    return found


def directories_come_amid_a_failover(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """L3: `metadata.version` gets directories while brokers take over, slowly, what one that has died has led: the two updates
    become one (ML-25)."""
    brokers, dead = node_ids(shape, "broker"), rng.choice(node_ids(shape, "broker"))
    session_ms = period_ms(shape, "broker.session.timeout.ms", 9_000)
    for_ms = session_ms + rng.randint(3_000, 5_000)
    return [
        FaultPlan(at_ms=at_ms, kind="kill", target=dead, for_ms=for_ms),
        *(FaultPlan(at_ms=at_ms, kind="slow-publisher", target=it, for_ms=for_ms, amount=400) for it in brokers if it != dead),
        FaultPlan(at_ms=at_ms + session_ms + rng.randint(0, 1_500), kind="raise-level", amount=1),
    ]


ALL: Final[dict[str, Scene]] = {
    "directories-come-while-a-broker-is-away": directories_come_while_a_broker_is_away,
    "old-broker-meets-an-upgrade": old_broker_meets_an_upgrade,
    "directories-come-amid-a-failover": directories_come_amid_a_failover,
}
