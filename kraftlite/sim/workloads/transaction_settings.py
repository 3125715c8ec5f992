"""The configuration of transactions that a seed draws.

Production's times are minutes. Here a transaction is aborted after seconds, so that coordinators do so within a run.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from kraftlite.sim.shape import Shape
from kraftlite.sim.workloads import group_settings

_LEAST: Final = {
    "metadata.max.idle.interval.ms": 5_000,
    "replica.high.watermark.checkpoint.interval.ms": 1_000,
    "replica.fetch.wait.max.ms": 500,
}
"""The shortest periods of a lean shape."""


def vary(shape: Shape, seed: int) -> Shape:
    """The shape, lean in most seeds; and in a quarter of them with ids that begin near the end of their epochs, so that a run
    gets there."""
    rng = random.Random(f"transactions/shape/{seed}")
    shape = replace(shape, tuning=replace(shape.tuning, producer_epochs=_epochs(rng)))
    shape = _lean(shape, rng) if rng.randrange(8) else shape
    return _forgetful(shape, random.Random(f"transactions/expiry/{seed}"))


def _epochs(rng: random.Random) -> int:
    return rng.choice((32_767, 32_767, 32_767, rng.choice((1, 2, 5, 20))))


def _forgetful(shape: Shape, rng: random.Random) -> Shape:
    """In some seeds partitions forget a producer that was quiet for less than some transactions take."""
    if rng.randrange(8):
        return shape
    config = {"producer.id.expiration.ms": str(rng.choice((500, 2_000))), "producer.id.expiration.check.interval.ms": "100"}
    return replace(shape, config={**shape.config, **config})


def _lean(shape: Shape, rng: random.Random) -> Shape:
    """A cluster that spends its time on transactions: one or three controllers, three brokers at most, one topic for everybody
    else, and no more beats and fetches than its timeouts need."""
    config = dict(shape.config)
    for key, least in _LEAST.items():
        config[key] = str(max(least, int(config.get(key, least))))
    config["replica.fetch.wait.max.ms"] = str(min(500, int(config["replica.lag.time.max.ms"])))
    config["broker.heartbeat.interval.ms"] = str(int(config["broker.session.timeout.ms"]) // 3)
    return replace(
        shape,
        controllers=0 if not shape.controllers else rng.choice((1, 1, 3)),
        brokers=min(3, shape.brokers),
        combined=min(3, shape.combined),
        config=config,
        topics=tuple(replace(it, partitions=1, replication=min(3, it.replication)) for it in shape.topics[:1]),
    )


def settings(seed: int, brokers: int) -> Mapping[str, str]:
    """The keys of transactions, of the offsets in them, and of the groups that these are of, for all brokers."""
    rng = random.Random(f"transactions/settings/{seed}")
    most = min(3, brokers)
    replication = rng.choice((most, most, most, 1))
    expiry = _expiry(rng)
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
            "log.cleaner.backoff.ms": str(rng.choice((100, 500, 15_000))),
        }
    )


def _expiry(rng: random.Random) -> dict[str, str]:
    """In a quarter of the seeds ids are forgotten that were not used for seconds."""
    if rng.randrange(4):
        return {}
    return {
        "transactional.id.expiration.ms": str(rng.choice((1_000, 3_000))),
        "transaction.remove.expired.transaction.cleanup.interval.ms": str(rng.choice((100, 700))),
    }
