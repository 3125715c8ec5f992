"""The clusters whose voters change: three to five voters, one or two spare controllers, and few brokers; in a third of the seeds
one more than there are replicas, so that a broker can leave (`workloads/brokers`).

Where a quorum begins with one voter, or with fewer than it will have, `workloads/membership` adds the others.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final

from kraftlite.sim.quorum import INITIAL, STANDALONE, STATIC, Forming
from kraftlite.sim.shape import SHORT_LOG, Shape, TopicPlan

_WAIT_MS: Final = 500
_IDLE_MS: Final = 500


def vary(shape: Shape, seed: int) -> Shape:
    """The shape, with such a quorum, and lean beside it: a seed spends its time on the quorum."""
    rng = random.Random(f"membership/shape/{seed}")
    voters, spares = rng.choice((3, 3, 3, 4, 5)), rng.choice((1, 1, 2))
    brokers = rng.choice((1, 2, 2, 3))
    combined = rng.randint(1, 2) if rng.randrange(6) == 0 else 0
    spare = int(random.Random(f"membership/brokers/{seed}").randrange(3) == 0)
    how = rng.choice((STANDALONE, INITIAL, INITIAL, STATIC))
    first = 1 if how == STANDALONE else voters
    everybody = range(1, voters + spares + 1)
    joins = tuple(it for it in everybody if it > voters or rng.randrange(2)) if rng.randrange(4) == 0 else ()
    config = dict(shape.config)
    config["replica.fetch.wait.max.ms"] = str(min(_WAIT_MS, int(config["replica.lag.time.max.ms"])))
    config["broker.heartbeat.interval.ms"] = str(int(config["broker.session.timeout.ms"]) // 3)
    config["metadata.max.idle.interval.ms"] = str(_IDLE_MS)
    if rng.randrange(2):
        config |= SHORT_LOG
    return replace(
        shape,
        controllers=voters + spares - combined,
        combined=combined,
        brokers=brokers + spare,
        config=config,
        topics=(_small(shape.topics[0], brokers + combined),),
        forming=Forming(how=how, voters=tuple(range(1, first + 1)), joins=joins),
    )


def _small(topic: TopicPlan, brokers: int) -> TopicPlan:
    """One partition, with as many replicas as there is room for."""
    replication = min(brokers, topic.replication)
    config = {**topic.config, "min.insync.replicas": str(min(replication, topic.min_isr))}
    return replace(topic, partitions=1, replication=replication, config=config)
