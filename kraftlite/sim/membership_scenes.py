"""Faults around changes of the voters: the races that independent faults and a random administrator meet too rarely.

A scene is named after its race in docs/TESTING.md, "Races of voters". `kraftlite sim --theme membership --seed N --scene NAME`
plays one again and again in a run that has no other faults. In the theme of membership most seeds have one or two beside their
other faults, from a random stream of their own; where the voters are configured ones, three quarters have the one in which the
upgrade is undone, and all others the one in which a newcomer leads.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Final

from kraftlite.sim.fault_plan import FaultPlan
from kraftlite.sim.quorum import STATIC
from kraftlite.sim.shape import Shape
from kraftlite.sim.targets import node_ids, period_ms

Scene = Callable[[random.Random, Shape, int], Sequence[FaultPlan]]
_ENDS: Final = ("kill", "power", "pause", "isolate", "cut-quorum")
_SOON_US: Final = (1, 50, 300, 1_000, 5_000)


def draw(seed: int, shape: Shape, duration_ms: int) -> list[FaultPlan]:
    """Draw the scenes of a seed, in three quarters of the seeds; and a controller that moves, and disks that are replaced."""
    rng = random.Random(f"membership/scenes/{seed}")
    found: list[FaultPlan] = []
    if rng.randrange(4):
        for _ in range(rng.choice((1, 2, 2, 3))):
            found += rng.choice(list(SCENES.values()))(rng, shape, rng.randint(1_000, max(1_001, duration_ms * 3 // 4)))
    controllers = node_ids(shape, "controller")
    mover = rng.choice(controllers)  # always the same: the others find the quorum at the servers that they were told
    if rng.randrange(2) == 0:
        found.append(FaultPlan(at_ms=rng.randint(2_000, 10_000), kind="new-port", target=mover, for_ms=rng.randint(50, 2_000)))
    at_ms = rng.randint(2_000, 8_000)
    while rng.randrange(2) and at_ms < duration_ms:
        found.append(FaultPlan(at_ms=at_ms, kind="new-disk", target=rng.choice(controllers), for_ms=rng.randint(50, 2_000)))
        at_ms += rng.randint(2_000, 6_000)
    if shape.forming is not None and shape.forming.how == STATIC:
        undone = random.Random(f"membership/upgrades/{seed}")
        if undone.randrange(4):
            found += upgrade_is_undone(undone, shape, 0)
        else:
            found += led_by_a_newcomer(undone, shape, undone.randint(500, 2_000))
    return [it for it in found if it.at_ms < duration_ms]


def play(name: str, seed: int, shape: Shape, duration_ms: int) -> tuple[FaultPlan, ...]:
    """One scene, again and again. Raises KeyError for a name that there is not."""
    scene, rng = ALL[name], random.Random(f"membership/scene/{name}/{seed}")
    found: list[FaultPlan] = []
    at_ms = 1_000
    while at_ms < duration_ms:
        played = scene(rng, shape, at_ms)
        found += played
        at_ms = max((it.at_ms + it.for_ms for it in played), default=at_ms) + rng.randint(500, 2_000)
    return tuple(sorted((it for it in found if it.at_ms < duration_ms), key=lambda it: it.at_ms))


def _some(rng: random.Random, shape: Shape) -> list[str]:
    """The controllers, in any order."""
    found = node_ids(shape, "controller")
    rng.shuffle(found)
    return found


def _alone_ms(rng: random.Random, shape: Shape) -> int:
    """The time after which a leader that nobody fetches from resigns, or a little less or more."""
    return period_ms(shape, "controller.quorum.fetch.timeout.ms", 2_000) + rng.randint(-200, 1_500)


def _all_but_the_last(controllers: Sequence[str], rng: random.Random, at_ms: int) -> list[FaultPlan]:
    """These controllers are removed from the voters, one after the other, but for the last."""
    found: list[FaultPlan] = []
    for it in controllers[:-1]:
        at_ms += rng.randint(150, 500)
        found.append(FaultPlan(at_ms=at_ms, kind="remove-voter", target=it))
    return found


def added_alone(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """V1: a leader that only the new voter reaches appends its addition, and is gone before anybody else has it."""
    new, *others = _some(rng, shape)
    alone_ms = _alone_ms(rng, shape)
    kind = rng.choice(("cut", "cut-one-way"))
    return (
        FaultPlan(at_ms=max(0, at_ms - 800), kind="remove-voter", target=new),
        *(FaultPlan(at_ms=at_ms, kind=kind, target=it, other="controller", for_ms=alone_ms) for it in others),
        FaultPlan(at_ms=at_ms + rng.randint(0, 300), kind="add-voter", target=new),
        FaultPlan(at_ms=at_ms + rng.randint(100, alone_ms), kind=rng.choice(_ENDS), target="controller", for_ms=2 * alone_ms),
    )


def removed_alone(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """V2: a leader that no other controller reaches appends a removal; the voter that it removes may be elected, and cuts it
    off."""
    alone_ms = _alone_ms(rng, shape)
    gone = rng.choice([*node_ids(shape, "controller"), "controller"])
    return (
        FaultPlan(at_ms=at_ms, kind="cut-quorum", target="controller", for_ms=alone_ms),
        FaultPlan(at_ms=at_ms + rng.randint(0, 300), kind="remove-voter", target=gone),
        FaultPlan(at_ms=at_ms + alone_ms + rng.randint(-400, 100), kind=rng.choice(_ENDS), target="controller", for_ms=1_500),
    )


def leader_goes_amid_a_change(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """V3: the leader goes when a change reaches it, when it asks the new voter, or when that has answered."""
    deed = rng.choice(("kill", "kill", "power", "pause", "stop"))
    step = rng.choice(("adding", "probe", "probed", "probed", "removing"))
    kind = "remove-voter" if step == "removing" else "add-voter"
    who = rng.choice(node_ids(shape, "controller"))
    first = [] if kind == "remove-voter" else [FaultPlan(at_ms=max(0, at_ms - 800), kind="remove-voter", target=who)]
    return (
        *first,
        FaultPlan(at_ms=at_ms, kind=f"{deed}-at-{step}", for_ms=rng.randint(100, 4_000), amount=rng.choice(_SOON_US)),
        FaultPlan(at_ms=at_ms + 20, kind=kind, target=who),
    )


def asked_twice(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """V4: what the followers fetch is late, so that the caller's time is over before the change is committed, and it is asked
    for again."""
    who, *others = _some(rng, shape)
    late_us = 1000 * period_ms(shape, "controller.quorum.request.timeout.ms", 2_000) * rng.choice((1, 2)) // 2
    kind = rng.choice(("add-voter", "remove-voter"))
    times = sorted(rng.randint(50, 2_000) for _ in range(3))
    return (
        *(
            FaultPlan(at_ms=at_ms, kind="late", target=it, other="controller", for_ms=2_500, amount=late_us)
            for it in others
            if rng.randrange(3)
        ),
        *(FaultPlan(at_ms=at_ms + it, kind=kind, target=who) for it in times),
    )


def removed_leader_waits(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """V5: the leader is removed while others that its commit needs are cut off; and it, or one of them, may go then."""
    cut = _some(rng, shape)[: rng.choice((1, 2, 2))]
    away_ms = _alone_ms(rng, shape) + rng.randint(-500, 1_000)
    found = [FaultPlan(at_ms=at_ms, kind="isolate", target=it, for_ms=max(100, away_ms + rng.randint(-200, 200))) for it in cut]
    found.append(FaultPlan(at_ms=at_ms + rng.randint(10, 400), kind="remove-voter", target="controller"))
    if rng.randrange(2):
        kind, when_ms = rng.choice(("kill", "power", "stop")), at_ms + rng.randint(100, 2_000)
        found.append(FaultPlan(at_ms=when_ms, kind=kind, target="controller", for_ms=rng.randint(100, 4_000)))
    return found


def disk_replaced_amid_changes(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """V6: a voter's disk is replaced while the leader changes and another controller is added."""
    wiped, new, *_ = _some(rng, shape)
    return (
        FaultPlan(at_ms=at_ms, kind="new-disk", target=wiped, for_ms=rng.randint(20, 1_000)),
        FaultPlan(at_ms=at_ms + rng.randint(0, 1_500), kind="add-voter", target=new),
        FaultPlan(
            at_ms=at_ms + rng.randint(0, 1_500), kind=rng.choice(_ENDS), target="controller", for_ms=rng.randint(300, 3_000)
        ),
    )


def upgrade_meets_a_failover(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """V7: configured voters come into the log while one of them is down, or while their leader is cut off and goes."""
    down = rng.choice(node_ids(shape, "controller"))
    how = rng.choice(("kill", "isolate", "pause"))
    found = [FaultPlan(at_ms=at_ms, kind=how, target=down, for_ms=rng.randint(300, 4_000))] if rng.randrange(2) else []
    for _ in range(3):
        if rng.randrange(2):
            found.append(FaultPlan(at_ms=at_ms, kind="cut-quorum", target="controller", for_ms=_alone_ms(rng, shape)))
        at_ms += rng.randint(10, 200)
        found.append(FaultPlan(at_ms=at_ms, kind="upgrade-voters"))
        at_ms += rng.randint(1, 600)
        found.append(FaultPlan(at_ms=at_ms, kind=rng.choice(("kill", "power", "stop")), target="controller", for_ms=800))
        at_ms += rng.randint(500, 2_500)
    return found


def snapshot_amid_a_change(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """V8: so much is written while changes of the voters wait for their commit that snapshots are made, the log is cut at its
    start, and whoever was away has to load one."""
    away, who, *others = _some(rng, shape)
    late_us = rng.choice((200_000, 500_000, 1_000_000))
    how = rng.choice(("isolate", "kill", "pause", "new-disk"))
    return (
        FaultPlan(at_ms=at_ms, kind="churn", for_ms=5_000, amount=rng.choice((20, 100))),
        FaultPlan(at_ms=at_ms + rng.randint(0, 500), kind=how, target=away, for_ms=rng.randint(2_000, 5_000)),
        *(FaultPlan(at_ms=at_ms, kind="late", target=it, other="controller", for_ms=5_000, amount=late_us) for it in others),
        *(
            FaultPlan(at_ms=at_ms + index * 900 + rng.randint(0, 400), kind=kind, target=who)
            for index, kind in enumerate(("remove-voter", "add-voter", "remove-voter", "add-voter"))
        ),
    )


def new_disk_votes(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """V9: a voter is cut off and misses something; another one loses its disk; then the leader goes, who alone has what is
    committed together with it. Nobody may win with the vote of the new disk."""
    behind, wiped, *_ = _some(rng, shape)
    gone_ms = _alone_ms(rng, shape) + rng.randint(1_000, 3_000)
    wiped_ms = at_ms + rng.randint(300, 900)
    return (
        FaultPlan(at_ms=at_ms, kind="cut-quorum", target=behind, for_ms=wiped_ms + 500 - at_ms),
        FaultPlan(at_ms=wiped_ms, kind="new-disk", target=wiped, for_ms=20),
        FaultPlan(
            at_ms=wiped_ms + rng.randint(100, 500), kind=rng.choice(("kill", "isolate")), target="controller", for_ms=gone_ms
        ),
    )


def few_are_left(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """V10: voters are removed until one or two are left, who lose power; others come back."""
    everybody = _some(rng, shape)
    found = _all_but_the_last(everybody, rng, at_ms)
    at_ms = found[-1].at_ms if found else at_ms
    quiet_ms = rng.choice((200, 4_000))
    found.append(FaultPlan(at_ms=at_ms + quiet_ms, kind="power", target=rng.choice(everybody), for_ms=rng.randint(50, 1_000)))
    found.append(FaultPlan(at_ms=at_ms + quiet_ms + rng.randint(0, 1_500), kind="add-voter", target=everybody[0]))
    return found


def asked_before_a_commit(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """V11: messages take long, the leader goes, and the next one is asked for changes before it has heard of any follower."""
    controllers = _some(rng, shape)
    late_us = 1000 * rng.choice((100, 200, 400))
    kinds = [rng.choice(("add-voter", "remove-voter")) for _ in range(30)]
    return (
        *(
            FaultPlan(at_ms=at_ms, kind="late", target=one, other=another, for_ms=5_000, amount=late_us)
            for one, another in combinations(controllers, 2)
        ),
        FaultPlan(at_ms=at_ms + 300, kind="kill", target="controller", for_ms=rng.choice((50, 2_000, 4_000))),
        *(FaultPlan(at_ms=at_ms + 400 + 150 * n, kind=it, target=rng.choice(controllers)) for n, it in enumerate(kinds)),
    )


def broker_leaves(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """V12: a broker is taken out while voters are changed, and the active controller, or another broker, goes meanwhile."""
    brokers = [it for it in node_ids(shape, "broker") if it not in node_ids(shape, "controller")]
    if not brokers:
        return (FaultPlan(at_ms=at_ms, kind="kill", target="controller", for_ms=500),)
    controllers, end = _some(rng, shape), rng.choice(("kill", "power", "pause", "isolate"))
    victim = rng.choice(("controller", "controller", rng.choice(brokers)))
    return (
        FaultPlan(at_ms=at_ms, kind="retire-broker", target=rng.choice(brokers)),
        FaultPlan(at_ms=at_ms + rng.randint(1, 800), kind=rng.choice(("add-voter", "remove-voter")), target=controllers[0]),
        FaultPlan(at_ms=at_ms + rng.randint(1, 1_500), kind=end, target=victim, for_ms=rng.choice((200, 2_500))),
    )


def upgrade_is_undone(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """V13: a leader that is asked to raise the kraft.version is cut off from the other controllers; its successor cuts the record
    off, and is asked, too, and so on: one of them has been asked before."""
    kinds = ["cut-quorum-at-upgrading"] * rng.choice((2, 3, 4))
    return [
        FaultPlan(at_ms=at_ms, kind=it, for_ms=_alone_ms(rng, shape) + rng.randint(0, 2_500), amount=rng.choice(_SOON_US))
        for it in kinds
    ]


def led_by_a_newcomer(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """V14: configured voters come into the log, a controller joins them that no configuration names, and they are removed until
    it leads. Then one begins with an empty disk, or a broker does, and knows its configuration alone."""
    configured = () if shape.forming is None else shape.forming.voters
    controllers = node_ids(shape, "controller")
    removed = [it for it in controllers if int(it) in configured]
    rng.shuffle(removed)
    newcomer = next((it for it in controllers if it not in removed), removed[-1])
    found = [FaultPlan(at_ms=at_ms, kind="upgrade-voters")]
    for kind, target in (("add-voter", newcomer), *(("remove-voter", it) for it in removed if it != newcomer)):
        at_ms += rng.randint(400, 900)
        found.append(FaultPlan(at_ms=at_ms, kind=kind, target=target))
    at_ms += rng.randint(300, 1_500)
    if rng.randrange(2):
        found.append(FaultPlan(at_ms=at_ms, kind="new-disk", target=removed[0], for_ms=rng.randint(50, 1_000)))
    else:
        found.append(FaultPlan(at_ms=at_ms, kind="wipe", target=rng.choice(node_ids(shape, "broker")), for_ms=50))
    return found


def alone_no_more(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """V15: voters are removed until one is left, and another one joins it. When that has answered, the leader is cut off from all
    other controllers: it can commit nothing any more, and has to go."""
    everybody = _some(rng, shape)
    found = _all_but_the_last(everybody, rng, at_ms)
    at_ms = found[-1].at_ms if found else at_ms
    at_ms, away_ms = at_ms + rng.randint(500, 1_500), 2 * _alone_ms(rng, shape) + 1_000
    return [
        *found,
        FaultPlan(at_ms=at_ms, kind="cut-quorum-at-probed", for_ms=away_ms, amount=rng.choice(_SOON_US)),
        FaultPlan(at_ms=at_ms + 20, kind="add-voter", target=everybody[0]),
    ]


SCENES: Final[dict[str, Scene]] = {
    "added-alone": added_alone,
    "removed-alone": removed_alone,
    "leader-goes-amid-a-change": leader_goes_amid_a_change,
    "asked-twice": asked_twice,
    "removed-leader-waits": removed_leader_waits,
    "disk-replaced-amid-changes": disk_replaced_amid_changes,
    "upgrade-meets-a-failover": upgrade_meets_a_failover,
    "snapshot-amid-a-change": snapshot_amid_a_change,
    "new-disk-votes": new_disk_votes,
    "few-are-left": few_are_left,
}
LATER: Final[dict[str, Scene]] = {
    "asked-before-a-commit": asked_before_a_commit,
    "broker-leaves": broker_leaves,
    "upgrade-is-undone": upgrade_is_undone,
    "led-by-a-newcomer": led_by_a_newcomer,
    "alone-no-more": alone_no_more,
}
"""Scenes that are played by name alone, or drawn apart: a name among the others would change what every seed draws."""
ALL: Final[dict[str, Scene]] = SCENES | LATER
