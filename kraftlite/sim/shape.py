"""The shape of a simulated cluster: nodes, configuration, topics. Drawn from a seed or given by name."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from kraftlite.model.broker_configs import BROKER_CONFIGS
from kraftlite.model.tuning import Tuning
from kraftlite.sim.quorum import Forming

_SHOWN: Final = 4
USUAL_TUNING: Final = Tuning(metadata_cleaning_interval_ms=1_500, elements_per_turn=3)
"""Production looks for metadata to remove once a minute, which is longer than most runs, and no operation of a run has a thousand
elements: none would take a second turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    name: str
    partitions: int
    replication: int
    config: Mapping[str, str] = field(default_factory=dict)

    @property
    def min_isr(self) -> int:
        return int(self.config.get("min.insync.replicas", "1"))

    @property
    def unclean(self) -> bool:
        return self.config.get("unclean.leader.election.enable", "false") == "true"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """`controllers` and `brokers` are nodes of one role, `combined` of both. `config` goes to every node."""

    controllers: int
    brokers: int
    combined: int = 0
    config: Mapping[str, str] = field(default_factory=dict)
    topics: tuple[TopicPlan, ...] = ()
    min_delay_us: int = 50
    max_delay_us: int = 500
    wire: bool = False
    """Messages between nodes go through the production codec."""
    release: str | None = None
    """The `metadata.version` with which the cluster is formatted; None: the latest."""
    features: Mapping[str, int] = field(default_factory=dict)
    """The levels with which the cluster is formatted, where they are not those of its release."""
    drift_ppm: int = 0
    """The difference in speed between real time and a node's monotonic clock, at most, in parts per million."""
    tuning: Tuning = USUAL_TUNING
    """The numbers that the nodes are built with beside their configuration."""
    knobs: Mapping[str, str] = field(default_factory=dict)
    """The keys of `config` that were drawn beside the shape: see `sim.knobs`."""
    forming: Forming | None = None
    """The beginning of a quorum whose voters change; None: all controllers are its voters, for ever."""

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles of node 1, 2, …"""
        return ("broker,controller",) * self.combined + ("controller",) * self.controllers + ("broker",) * self.brokers

    def __str__(self) -> str:
        nodes = f"{self.combined} combined" if self.combined else f"{self.controllers}+{self.brokers}"
        if self.combined and (self.controllers or self.brokers):
            nodes += f", {self.controllers}+{self.brokers}"
        topics = " ".join(
            f"{it.name}({it.partitions}x{it.replication} min {it.min_isr}{' unclean' if it.unclean else ''})"
            for it in self.topics
        )
        release = "" if self.release is None else f" of {self.release}"
        release += "".join(f" with {name}={level}" for name, level in self.features.items())
        forming = "" if self.forming is None else f", voters {self.forming}"
        found = f"{nodes} nodes{release}{forming}, delays {self.min_delay_us}-{self.max_delay_us} us; {topics or 'no topics'}"
        odd = [f"{key}={text}" for key, text in self.knobs.items() if text != BROKER_CONFIGS[key].default]
        more = f" and {len(odd) - _SHOWN} more keys" if len(odd) > _SHOWN else ""
        return f"{found}; {' '.join(odd[:_SHOWN])}{more}" if odd else found


QUICK: Final[Mapping[str, str]] = {
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
    "replica.lag.time.max.ms": "5000",
    "replica.fetch.wait.max.ms": "500",
    "replica.fetch.backoff.ms": "100",
    "controller.quorum.election.timeout.ms": "1000",
    "controller.quorum.fetch.timeout.ms": "2000",
}
"""Failure detection in a few seconds, so that a run of a minute sees many."""


SHORT_LOG: Final[Mapping[str, str]] = {
    "metadata.log.max.record.bytes.between.snapshots": "2000",
    "metadata.log.segment.ms": "300",
    "metadata.max.retention.bytes": "4000",
}


def _orders(replication: int) -> TopicPlan:
    return TopicPlan(
        name="orders",
        partitions=2,
        replication=replication,
        config={"min.insync.replicas": str(max(1, replication - 1)), "segment.bytes": str(1 << 20)},
    )


NAMED: Final[Mapping[str, Shape]] = {
    "3+3": Shape(controllers=3, brokers=3, config=QUICK, topics=(_orders(3),)),
    "1+1": Shape(controllers=1, brokers=1, config=QUICK, topics=(_orders(1),)),
    "1+3": Shape(controllers=1, brokers=3, config=QUICK, topics=(_orders(3),)),
    "3c": Shape(controllers=0, brokers=0, combined=3, config=QUICK, topics=(_orders(3),)),
    "5+5": Shape(controllers=5, brokers=5, config=QUICK, topics=(_orders(3),)),
    "3+3-old": Shape(controllers=3, brokers=3, config=QUICK, topics=(_orders(3),), release="3.7-IV1"),
    "defaults": Shape(controllers=3, brokers=3, topics=(_orders(3),)),
}


def draw(rng: random.Random) -> Shape:
    """A shape that production may have: every value within what the configuration allows."""
    controllers, brokers, combined = _draw_nodes(rng)
    broker_count = brokers + combined
    heartbeat = rng.choice((100, 250, 500, 1000))
    lag = rng.choice((1000, 3000, 5000, 10_000))
    election = rng.choice((200, 500, 1000))
    config = {
        "broker.heartbeat.interval.ms": str(heartbeat),
        "broker.session.timeout.ms": str(heartbeat * rng.choice((3, 6, 9))),
        "replica.lag.time.max.ms": str(lag),
        "replica.fetch.wait.max.ms": str(min(lag, rng.choice((50, 200, 500)))),
        "replica.fetch.backoff.ms": str(rng.choice((50, 200, 1000))),
        "replica.fetch.max.bytes": str(rng.choice((512, 4096, 1 << 20))),
        "replica.high.watermark.checkpoint.interval.ms": str(rng.choice((200, 1000, 5000))),
        "controller.quorum.election.timeout.ms": str(election),
        "controller.quorum.fetch.timeout.ms": str(election * rng.choice((2, 4))),
        "controller.quorum.append.linger.ms": str(rng.choice((0, 5, 25))),
        "controller.quorum.request.timeout.ms": str(rng.choice((500, 2000))),
        "metadata.max.idle.interval.ms": str(rng.choice((250, 500, 500))),
        "metadata.log.max.record.bytes.between.snapshots": str(rng.choice((2000, 8000, 20_971_520))),
        "metadata.log.max.snapshot.interval.ms": str(rng.choice((0, 5000, 3_600_000))),
        "metadata.max.retention.bytes": str(rng.choice((4_000, 20_000, 104_857_600))),
        "leader.imbalance.check.interval.seconds": str(rng.choice((5, 300))),
        "auto.leader.rebalance.enable": rng.choice(("true", "true", "false")),
        "controlled.shutdown.enable": rng.choice(("true", "true", "true", "false")),
        "auto.create.topics.enable": "false",
    }
    topics = tuple(_draw_topic(rng, f"t{number}", broker_count) for number in range(1, rng.randint(1, 3) + 1))
    fast = rng.randrange(4) > 0
    shape = Shape(
        controllers=controllers,
        brokers=brokers,
        combined=combined,
        config=config,
        topics=topics,
        min_delay_us=50 if fast else 2000,
        max_delay_us=rng.choice((500, 2000)) if fast else rng.choice((10_000, 40_000)),
        wire=rng.randrange(8) == 0,
        drift_ppm=rng.choice((0, 0, 200, 20_000, 80_000)),
    )
    config |= _draw_segments(rng, "metadata.log.segment.ms")
    topics = _with_segments(rng, topics)
    return replace(shape, config={**config, **_draw_short_log(rng)}, topics=topics)


OLD_RELEASES: Final = ("3.6-IV2", "3.9-IV0", "4.0-IV3", "4.2-IV1", "4.2-IV1")
"""Before controllers register; before `group.version`; and two from which nothing forbids the way up."""


def of_release(shape: Shape, seed: int) -> Shape:
    """The shape, in a third of the seeds of an older `metadata.version`, which an administrator may raise."""
    rng = random.Random(f"release/{seed}")
    return replace(shape, release=rng.choice(OLD_RELEASES)) if rng.randrange(3) == 0 else shape


def _draw_short_log(rng: random.Random) -> Mapping[str, str]:
    """A metadata log that forgets so soon that whoever was away for seconds needs a snapshot."""
    return SHORT_LOG if rng.randrange(4) == 1 else {}


def _with_segments(rng: random.Random, topics: tuple[TopicPlan, ...]) -> tuple[TopicPlan, ...]:
    return tuple(replace(it, config={**it.config, **_draw_segments(rng, "segment.ms")}) for it in topics)


def _draw_segments(rng: random.Random, key: str) -> dict[str, str]:
    """Kafka allows no segment below a mebibyte: time is what rolls them here."""
    return {key: str(rng.choice((300, 2000)))} if rng.randrange(2) else {}


def _draw_nodes(rng: random.Random) -> tuple[int, int, int]:
    if rng.randrange(4) == 0:
        return 0, rng.choice((0, 0, 1)), rng.choice((1, 3, 3, 4))
    return rng.choice((1, 2, 3, 3, 3, 4, 5)), rng.choice((1, 2, 3, 3, 3, 4, 5)), 0


def _draw_topic(rng: random.Random, name: str, brokers: int) -> TopicPlan:
    replication = rng.randint(1, min(3, brokers)) if rng.randrange(3) == 0 else min(3, brokers)
    config = {"min.insync.replicas": str(rng.randint(1, replication)), "segment.bytes": str(1 << 20)}
    if rng.randrange(6) == 0:
        config["unclean.leader.election.enable"] = "true"
    return TopicPlan(name=name, partitions=rng.randint(1, 3), replication=replication, config=config)
