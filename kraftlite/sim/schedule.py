"""Draws the faults that a seed stands for."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

from kraftlite.sim import (
    boot_faults,
    elr_scenes,
    fetch_scenes,
    level_scenes,
    log_dir_faults,
    membership_scenes,
    move_faults,
    quorum_scenes,
    slow_publishers,
    snapshot_faults,
    start_faults,
    swap_faults,
    transaction_scenes,
    troubles,
)
from kraftlite.sim.fault_plan import ALL_FAULTS, GROUP_FAULTS, LINK_FAULTS, FaultPlan
from kraftlite.sim.scenes import draw_late_scene, draw_scenes
from kraftlite.sim.shape import NAMED, Shape
from kraftlite.sim.targets import any_node, node_ids
from kraftlite.sim.themes import DIRECTORIES, LEVELS, LOGS, MEMBERSHIP, PLAIN, SINK, TRANSACTIONS, TROUBLES


def draw_all(seed: int, shape: Shape, duration_ms: int, theme: str = PLAIN) -> tuple[FaultPlan, ...]:
    """Everything that a seed stands for, in order."""
    drawn = draw(random.Random(f"faults/{seed}"), shape, duration_ms)
    later = troubles.draw(random.Random(f"troubles/{seed}"), shape, duration_ms) if theme == TROUBLES else []
    if theme == TROUBLES:
        later += boot_faults.draw(seed) + snapshot_faults.draw(seed, shape, duration_ms)
    if theme in (PLAIN, TROUBLES):
        later += elr_scenes.draw(seed, shape, duration_ms) + quorum_scenes.draw(seed, shape, duration_ms)
        later += fetch_scenes.draw(seed, shape, duration_ms)
    if theme == DIRECTORIES:
        later = log_dir_faults.draw(seed, shape, duration_ms) + move_faults.draw(seed, shape, duration_ms)
    if theme in (LOGS, TROUBLES):
        later += start_faults.draw(seed, shape, duration_ms)
    if theme == LOGS:
        later += swap_faults.draw(seed, shape, duration_ms)
    if theme in (TRANSACTIONS, SINK):
        later = transaction_scenes.draw(seed, shape, duration_ms)
    if theme == MEMBERSHIP:
        later = membership_scenes.draw(seed, shape, duration_ms)
    later += slow_publishers.draw(seed, shape, duration_ms, theme)
    return tuple(sorted(drawn + later, key=lambda it: it.at_ms))


def scene_names(theme: str) -> Sequence[str]:
    """The scenes that can be played by their names in a theme. Those of transactions bring their theme with them."""
    if theme == MEMBERSHIP:
        return tuple(membership_scenes.ALL)
    return (*transaction_scenes.ALL, *(level_scenes.ALL if theme in LEVELS else ()))


def stage(name: str) -> Shape | None:
    """The shape for a scene that not every cluster can have; None: any."""
    return NAMED[level_scenes.SHAPE] if name in level_scenes.ALL else None


def play(theme: str, name: str, seed: int, shape: Shape, duration_ms: int) -> tuple[FaultPlan, ...]:
    """One scene of the theme, again and again, and nothing else. Raises KeyError for a name that there is not."""
    if theme == MEMBERSHIP:
        return membership_scenes.play(name, seed, shape, duration_ms)
    if name in level_scenes.ALL:
        return level_scenes.play(name, seed, shape, duration_ms)
    return transaction_scenes.play(name, seed, shape, duration_ms)


def draw(rng: random.Random, shape: Shape, duration_ms: int) -> list[FaultPlan]:
    """A mix of faults for this seed: which kinds at all, how dense, and when. Times from the start of the safety phase.

    A quarter of the seeds are such a mix only, a quarter scenes only, and half of them both.
    """
    found = _mix(rng, shape, duration_ms)
    scenes = draw_scenes(rng, shape, duration_ms)
    match rng.randrange(4):
        case 0:
            drawn = scenes or found
        case 1:
            drawn = found
        case _:
            drawn = found + scenes
    drawn = drawn + _damages(rng, shape, duration_ms)
    return sorted(drawn + draw_late_scene(rng, shape, duration_ms), key=lambda it: it.at_ms)


def _damages(rng: random.Random, shape: Shape, duration_ms: int) -> list[FaultPlan]:
    """Draw a broker whose files are lost while it is down, in a fifth of the seeds. Drawn last: all else is as without it."""
    brokers = node_ids(shape, "broker")
    if rng.randrange(5) or len(brokers) < 2 or not any(it.replication > 1 for it in shape.topics):
        return []
    return [
        FaultPlan(
            at_ms=rng.randint(0, duration_ms * 2 // 3),
            kind="damage",
            target=rng.choice(brokers),
            for_ms=rng.randint(50, 1500),
        )
        for _ in range(rng.randint(1, 2))
    ]


def _mix(rng: random.Random, shape: Shape, duration_ms: int) -> list[FaultPlan]:
    kinds = [kind for kind in ALL_FAULTS if rng.randrange(3) == 0 and _possible(kind, shape)] or ["kill"]
    gap_ms = rng.choice((700, 1500, 3000, 6000))
    found: list[FaultPlan] = []
    at_ms = rng.randint(0, gap_ms)
    while at_ms < duration_ms:
        fault = _fault(rng, shape, rng.choice(kinds), at_ms)
        if found and fault.target and found[-1].target and rng.randrange(4) == 0:
            fault = replace(fault, target=found[-1].target)  # the same again: what one fault left behind, the next one meets
        found.append(fault)
        at_ms = _next_ms(rng, found, gap_ms)
    return found


def _next_ms(rng: random.Random, found: Sequence[FaultPlan], gap_ms: int) -> int:
    """Some time later; or at the same moment; or just when an earlier fault ends."""
    now_ms, how = found[-1].at_ms, rng.randrange(8)
    ends = sorted(it.at_ms + it.for_ms for it in found if it.at_ms + it.for_ms > now_ms)
    if how == 0 and ends:
        return ends[0] + rng.randint(0, 100)
    return now_ms if how < 3 else now_ms + rng.randint(1, 2 * gap_ms)


def _possible(kind: str, shape: Shape) -> bool:
    if kind == "wipe":
        return shape.brokers > 1  # a voter that forgets its votes is no longer that voter: static quorums forbid it
    return len(shape.roles) > 1 or kind not in (*LINK_FAULTS, "isolate", "congest", "split")


def _fault(rng: random.Random, shape: Shape, kind: str, at_ms: int) -> FaultPlan:
    short, long = rng.randint(50, 1500), rng.randint(500, 8000)
    lasts = rng.choice((short, short, long))
    plan = FaultPlan(at_ms=at_ms, kind=kind, for_ms=lasts)
    if kind in GROUP_FAULTS:
        return replace(plan, amount=rng.randrange(1, 1 << 16))
    target = any_node(rng, shape)
    if kind in LINK_FAULTS:
        amount = {"lossy": rng.choice((20_000, 100_000, 400_000)), "slow": rng.choice((20_000, 200_000, 1_000_000))}.get(kind, 0)
        return replace(plan, target=target, other=any_node(rng, shape), amount=amount)
    if kind == "congest":
        return replace(plan, target=target, amount=rng.choice((200_000, 1_000_000, 3_000_000)))
    if kind == "disk-slow":
        return replace(plan, target=target, amount=rng.choice((10_000, 100_000, 400_000)))
    if kind == "wall-jump":
        return replace(plan, target=target, for_ms=0, amount=rng.choice((-3_600_000, -5000, 5000, 86_400_000)))
    if kind in ("disk-full", "disk-error"):
        return replace(plan, target=target, amount=rng.randrange(1, 1 << 16))
    return replace(plan, target=target)


def describe(faults: Sequence[FaultPlan]) -> str:
    return "\n".join(str(it) for it in faults)


def counts(faults: Sequence[FaultPlan]) -> Mapping[str, int]:
    found: dict[str, int] = {}
    for it in faults:
        found[it.kind] = found.get(it.kind, 0) + 1
    return found
