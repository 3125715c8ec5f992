"""Faults that strike at a step of a transaction: the races that independent faults meet too rarely.

A scene is named after its race in docs/TESTING.md, "Races of transactions", which says what shows that it has happened.
`kraftlite sim --theme transactions --seed N --scene NAME` plays one again and again in a run that has no other faults. In the
theme of transactions most seeds have one or two beside their other faults, from a random stream of their own.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final

from kraftlite.sim.fault_plan import FaultPlan
from kraftlite.sim.shape import Shape
from kraftlite.sim.targets import node_ids, period_ms

Scene = Callable[[random.Random, Shape, int], Sequence[FaultPlan]]
_STATE: Final = "leader __transaction_state-0"
_SOON_US: Final = (1, 50, 300, 1_000, 3_000)
"""Pauses behind a step, as long as an append, a replication, a message take."""


def draw(seed: int, shape: Shape, duration_ms: int) -> list[FaultPlan]:
    """Draw the scenes of a seed, in two thirds of the seeds."""
    rng = random.Random(f"transactions/scenes/{seed}")
    if rng.randrange(3) == 0:
        return []
    found: list[FaultPlan] = []
    for _ in range(rng.choice((1, 2, 2, 3))):
        found += rng.choice(list(SCENES.values()))(rng, shape, rng.randint(1_500, max(1_501, duration_ms * 3 // 4)))
    later = random.Random(f"transactions/later scenes/{seed}")
    if later.randrange(4) == 0:
        scene = later.choice(list(LATER.values()))
        found += scene(later, shape, later.randint(1_500, max(1_501, duration_ms * 3 // 4)))
    return [it for it in found if it.at_ms < duration_ms]


def play(name: str, seed: int, shape: Shape, duration_ms: int) -> tuple[FaultPlan, ...]:
    """One scene, again and again. Raises KeyError for a name that there is not."""
    scene, rng = ALL[name], random.Random(f"transactions/scene/{name}/{seed}")
    found: list[FaultPlan] = []
    at_ms = 1_500
    while at_ms < duration_ms:
        found += scene(rng, shape, at_ms)
        at_ms += rng.randint(1_500, 3_000)
    return tuple(sorted((it for it in found if it.at_ms < duration_ms), key=lambda it: it.at_ms))


def _ambush(rng: random.Random, at_ms: int, deeds: Sequence[str], steps: Sequence[str], for_ms: int) -> FaultPlan:
    kind = f"{rng.choice(deeds)}-at-{rng.choice(steps)}"
    return FaultPlan(at_ms=at_ms, kind=kind, for_ms=for_ms, amount=rng.choice(_SOON_US))


def coordinator_dies(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """R3: the coordinator is gone before the outcome is committed, before its markers, between them, before the id is complete,
    or before the client has its answer."""
    return (_ambush(rng, at_ms, ("kill", "power", "stop"), ("end", "end", "mark", "marked", "ended"), rng.randint(100, 3_000)),)


def coordinator_wakes(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """R4: a coordinator stands still for longer than its session, with markers that wait, or that are under way; its successor
    carries the outcome out, the next transaction begins, and then the old markers come."""
    session_ms = period_ms(shape, "broker.session.timeout.ms", 9_000)
    if rng.randrange(3) == 0:
        return (_ambush(rng, at_ms, ("pause",), ("end", "mark"), session_ms + rng.randint(500, 2_500)),)
    kind = rng.choice(("orphan-at-mark", "orphan-at-mark", "repeat-at-mark"))
    return tuple(
        FaultPlan(at_ms=at_ms + 700 * index, kind=kind, for_ms=rng.randint(300, 3_000), amount=rng.choice((1, 300, 3_000)))
        for index in range(rng.choice((1, 3, 5)))
    )


def leader_dies(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """R5: the leader of a partition is gone between question and append, between append and marker, or between the marker's
    append and its HW."""
    steps = ("question", "answer", "mark", "marker", "marker")
    plan = _ambush(rng, at_ms, ("kill", "power", "stop"), steps, rng.randint(100, 3_000))
    return (plan,)


def answer_comes_late(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """R6: between the coordinator's yes and the append the transaction ends, and the next one may begin."""
    return tuple(
        FaultPlan(at_ms=at_ms, kind="late-at-answer", for_ms=rng.choice((5, 20, 60))) for _ in range(rng.choice((4, 20, 40)))
    )


def question_is_lost(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """R7: of several batches that wait for one question the first is refused, because its question comes to nothing."""
    return (_ambush(rng, at_ms, ("kill", "stop"), ("add", "end"), rng.randint(100, 1_500)),)


def answer_is_lost(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """R9, R3 (e): the outcome is decided, the client does not hear of it, and asks the next coordinator."""
    return (FaultPlan(at_ms=at_ms, kind="orphan-at-ended", for_ms=rng.randint(1_000, 4_000), amount=rng.choice(_SOON_US)),)


def message_comes_late(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """R10: an EndTxn, an AddPartitionsToTxn or a batch arrives when its sender has given up on it and begun again."""
    return tuple(
        FaultPlan(at_ms=at_ms + 200 * index, kind=f"late-at-{step}", for_ms=rng.randint(1_600, 4_000))
        for index, step in enumerate(rng.sample(("ending", "ending", "add", "produce"), 3))
    )


def too_few_replicas(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """R11: for longer than a transaction may take, followers are away, so that the coordinator or a partition cannot write."""
    who = rng.choice((_STATE, "leader tx-in-0"))
    return tuple(
        FaultPlan(at_ms=at_ms, kind="refuse", target=it, other=who, for_ms=rng.randint(3_000, 6_000))
        for it in node_ids(shape, "broker")
    )


def offsets_move(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """R14: the group's coordinator goes between an offset and its marker; the marker may come while the next one loads."""
    return (_ambush(rng, at_ms, ("kill", "stop", "power"), ("commit",), rng.randint(100, 2_000)),)


def clock_jumps(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """R21: the wall clock of the coordinator jumps by an hour, forward or back."""
    return (FaultPlan(at_ms=at_ms, kind="wall-jump", target=_STATE, amount=rng.choice((-3_600_000, 3_600_000))),)


def everybody_dies(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """R18, R24: every broker restarts at once, with open transactions in the logs and outcomes that are decided and not carried
    out."""
    return (_ambush(rng, at_ms, ("kill-all", "power-all"), ("end", "mark"), rng.randint(100, 2_000)),)


def marker_comes_twice(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """R8: a marker is sent again, and its first copy comes when the next transaction of its producer has begun, or is about to:
    while the answer is under way that lets its first batch in."""
    found: list[FaultPlan] = []
    for index in range(rng.choice((3, 6, 10))):
        again_ms = rng.choice((rng.randint(101, 160), rng.randint(101, 160), rng.randint(160, 900)))
        now_ms = at_ms + 150 * index
        found.append(FaultPlan(at_ms=now_ms, kind="repeat-at-mark", for_ms=again_ms, amount=rng.choice((1, 300))))
        found += [FaultPlan(at_ms=now_ms + 50, kind="late-at-answer", for_ms=rng.choice((20, 60)))] * rng.choice((0, 2, 4))
    return tuple(found)


def first_question_fails(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """R7: the connection breaks over a question, whose batch is refused for now, while another batch behind it asks again. Begins
    early: only of a producer that the partition does not know any sequence would be taken."""
    gap_ms = rng.choice((50, 150))
    return tuple(
        FaultPlan(at_ms=max(0, at_ms - 1_500) + gap_ms * index, kind="repeat-at-question", for_ms=rng.randint(5, 300), amount=1)
        for index in range(20)
    )


def coordinator_is_alone(rng: random.Random, shape: Shape, at_ms: int) -> Sequence[FaultPlan]:
    """R11: for longer than the transaction may take, no other broker reaches the coordinator, which stays what it is: from the
    end on, or from the last marker on."""
    return (_ambush(rng, at_ms, ("alone",), ("end", "mark", "marked", "marked"), rng.randint(2_000, 7_000)),)


SCENES: Final[dict[str, Scene]] = {
    scene.__name__.replace("_", "-"): scene
    for scene in (
        coordinator_dies,
        coordinator_wakes,
        leader_dies,
        answer_comes_late,
        question_is_lost,
        answer_is_lost,
        message_comes_late,
        too_few_replicas,
        offsets_move,
        clock_jumps,
        everybody_dies,
    )
}
"""By their names."""
LATER: Final[dict[str, Scene]] = {
    scene.__name__.replace("_", "-"): scene for scene in (marker_comes_twice, coordinator_is_alone, first_question_fails)
}
"""Those that came later, with a random stream of their own."""
ALL: Final[dict[str, Scene]] = SCENES | LATER
