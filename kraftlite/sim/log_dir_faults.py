"""Brokers with several log directories: the shape, and directories that fail one at a time; each from a random stream."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from kraftlite.sim.fault_plan import FaultPlan
from kraftlite.sim.shape import Shape
from kraftlite.sim.targets import node_ids

KINDS: Final = ("dir-error", "dir-full", "dir-read-only")
METADATA: Final = "/meta"
REPORT_MS: Final = (300, 2_000, 30_000)
"""The time that a controller has to answer where replicas are, one of which a seed takes: in production it is the last."""
_BOUND: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
BOUNDS: Final[tuple[dict[str, str], ...]] = ({}, {}, {_BOUND: "20000"}, {_BOUND: "1000000"})
"""Bounds of what a broker copies between its directories, one of which a seed takes."""


def several(shape: Shape, seed: int) -> Shape:
    """Give every node two or three log directories; the metadata log has one of its own, and goes on when they fail."""
    count = random.Random(f"log-dirs/{seed}").choice((2, 2, 3))
    directories = ",".join(f"/d{number}" for number in range(1, count + 1))
    bound = random.Random(f"log-dirs/moves/{seed}").choice(BOUNDS)
    report_ms = random.Random(f"log-dirs/reports/{seed}").choice(REPORT_MS)
    return replace(
        shape,
        config={**shape.config, **bound, "log.dirs": directories, "metadata.log.dir": METADATA},
        tuning=replace(shape.tuning, directory_report_ms=report_ms),
    )


def draw(seed: int, shape: Shape, duration_ms: int) -> list[FaultPlan]:
    """`amount` is the place of the directory in the node's list, whose first is that of the metadata log."""
    rng = random.Random(f"log-dir-faults/{seed}")
    brokers, count = node_ids(shape, "broker"), len(shape.config["log.dirs"].split(","))
    found: list[FaultPlan] = []
    at_ms = rng.randint(500, 3_000)
    while at_ms < duration_ms:
        plan = FaultPlan(at_ms=at_ms, kind=rng.choice(KINDS), target=rng.choice(brokers), for_ms=rng.choice((300, 1_500, 4_000)))
        found.append(replace(plan, amount=rng.randint(1, count)))
        at_ms += plan.for_ms + rng.randint(200, 4_000)
    return sorted([*found, *_without_inodes(seed, brokers, count, duration_ms)], key=lambda it: it.at_ms)


def _without_inodes(seed: int, brokers: Sequence[str], count: int, duration_ms: int) -> list[FaultPlan]:
    """In a third of the seeds, and from a stream of its own."""
    rng = random.Random(f"log-dir-faults/inodes/{seed}")
    if rng.randrange(3):
        return []
    return [
        FaultPlan(
            at_ms=rng.randrange(duration_ms),
            kind="dir-no-inodes",
            target=rng.choice(brokers),
            for_ms=rng.randint(1_000, 6_000),
            amount=rng.randint(1, count),
        )
        for _ in range(rng.randint(1, 3))
    ]
