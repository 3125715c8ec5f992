"""The seeds that have consumer groups, and the configuration of groups that such a seed draws.

Production's times are minutes. Here a session lasts seconds, so that members are dropped and offsets expire within a run.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Final

BIDIRECTIONAL: Final = "bidirectional"
POLICIES: Final = (BIDIRECTIONAL, BIDIRECTIONAL, "upgrade", "downgrade", "disabled")


def settings(seed: int, brokers: int) -> Mapping[str, str]:
    """The keys of groups for all brokers."""
    rng = random.Random(f"groups/settings/{seed}")
    session = rng.choice((1_000, 2_000, 4_000))
    beat = rng.choice((100, 250))
    assignors = rng.choice((("uniform", "range"), ("range", "uniform")))
    return {
        "group.min.session.timeout.ms": "100",
        "group.max.session.timeout.ms": "60000",
        "group.initial.rebalance.delay.ms": str(rng.choice((0, 100, 500))),
        "group.max.size": str(rng.choice((3, 100, 100))),
        "group.consumer.min.session.timeout.ms": "500",
        "group.consumer.max.session.timeout.ms": "60000",
        "group.consumer.session.timeout.ms": str(session),
        "group.consumer.min.heartbeat.interval.ms": "50",
        "group.consumer.max.heartbeat.interval.ms": "500",
        "group.consumer.heartbeat.interval.ms": str(beat),
        "group.consumer.assignment.interval.ms": str(rng.choice((0, 0, 300, 2_000))),
        "group.consumer.max.size": str(rng.choice((3, 100, 100))),
        "group.consumer.assignors": ",".join(assignors),
        "group.consumer.migration.policy": rng.choice(POLICIES),
        "group.consumer.regex.refresh.interval.ms": "10000",
        "offsets.topic.num.partitions": str(rng.choice((1, 2, 3))),
        "offsets.topic.replication.factor": str(rng.choice((min(3, brokers), min(3, brokers), 1))),
        "offsets.topic.compression.codec": str(rng.choice((0, 0, 1))),
        "offsets.load.buffer.size": str(rng.choice((200, 5_000, 5_242_880))),
        "offsets.commit.timeout.ms": str(rng.choice((500, 2_000, 5_000))),
        "offsets.retention.minutes": str(rng.choice((1, 1, 10_080))),
        "offsets.retention.check.interval.ms": str(rng.choice((300, 1_000, 600_000))),
    }
