"""The configuration of transactions that a seed draws.

Production's times are minutes. Here a transaction is aborted after seconds, so that coordinators do so within a run.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from kraftlite.sim.workloads import group_settings


def settings(seed: int, brokers: int) -> Mapping[str, str]:
    """The keys of transactions, of the offsets in them, and of the groups that these are of, for all brokers."""
    rng = random.Random(f"transactions/settings/{seed}")
    most = min(3, brokers)
    replication = rng.choice((most, most, most, 1))
    expiry = {}
    if rng.randrange(4) == 0:
        expiry["transactional.id.expiration.ms"] = str(rng.choice((1_000, 3_000)))
        expiry["transaction.remove.expired.transaction.cleanup.interval.ms"] = str(rng.choice((100, 700)))
    groups = {key: value for key, value in group_settings.settings(seed, brokers).items() if key.startswith("group.")}
    return (
        groups
        | expiry
        | {
            "request.timeout.ms": str(rng.choice((3_000, 10_000))),
            "transaction.state.log.num.partitions": str(rng.choice((1, 1, 2, 3))),
            "transaction.state.log.replication.factor": str(replication),
            "transaction.state.log.min.isr": str(rng.choice((1, min(2, replication)))),
            "transaction.state.log.load.buffer.size": str(rng.choice((300, 5_000, 5_242_880))),
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": str(rng.choice((100, 500, 2_000))),
            "offsets.topic.num.partitions": str(rng.choice((1, 2))),
            "offsets.topic.replication.factor": str(rng.choice((most, most, 1))),
        }
    )
