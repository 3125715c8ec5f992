"""The values that a run gives to a node's periods, limits and sizes: small ones, odd ones, the default and large ones.

Production's periods are minutes and its sizes megabytes: in a run of seconds a checkpoint, an expiry or a check at its default
would never happen. A share of the seeds draws some of the keys, from a random stream of its own, and gives the same values to
every node. A key that the shape gives keeps the shape's value. No value may make a correct cluster fail a check.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from kraftlite.model.limits import KIB, MAX_INT64, MIB
from kraftlite.sim.shape import Shape

SEEDS_WITH: Final = (2, 3)
"""The share of the seeds that draw keys: two of three."""

NEVER: Final = MAX_INT64
_DAY_MS: Final = 24 * 3600 * 1000

_QUICK_US: Final = 2_000
_ONLY_WHERE_QUICK: Final = {("replica.fetch.response.max.bytes", "0")}
"""Values with which a correct cluster does not converge where messages take longer than that: with one batch of one partition in
each answer, a follower falls further behind for as long as anybody writes."""

Values = Mapping[str, str]


def _of(key: str, *values: float | str) -> tuple[Values, ...]:
    return tuple({key: str(value)} for value in values)


def _sessions(key: str, session_ms: int, beat_ms: int) -> Values:
    """Sessions and heartbeats of consumer groups, with limits that admit them."""
    return {
        f"{key}.min.session.timeout.ms": str(session_ms),
        f"{key}.session.timeout.ms": str(session_ms),
        f"{key}.max.session.timeout.ms": str(max(60_000, session_ms)),
        f"{key}.min.heartbeat.interval.ms": str(beat_ms),
        f"{key}.heartbeat.interval.ms": str(beat_ms),
        f"{key}.max.heartbeat.interval.ms": str(max(15_000, beat_ms)),
    }


KNOBS: Final[tuple[tuple[Values, ...], ...]] = (
    # the quorum and its log
    _of("controller.quorum.election.backoff.max.ms", 0, 37, 1000, 3000),
    _of("controller.quorum.retry.backoff.ms", 1, 7, 20, 400),
    _of("metadata.log.segment.bytes", 8 * MIB, KIB * MIB),
    _of("metadata.log.segment.ms", 250, 1700, 7 * _DAY_MS),
    _of("metadata.max.retention.ms", 1, 2500, -1, 7 * _DAY_MS),
    # the controller
    _of("unclean.leader.election.interval.ms", 150, 1300, 300_000),
    _of("request.timeout.ms", 1500, 5003, 30_000),
    _of("num.partitions", 1, 3),
    _of("min.insync.replicas", 1, 2),
    # replication
    _of("replica.fetch.min.bytes", 0, 1, 333),
    _of("replica.fetch.response.max.bytes", 0, 777, 10 * MIB),
    _of("replica.socket.timeout.ms", 700, 3001, 30_000),
    _of("num.replica.fetchers", 1, 2, 5),
    _of("replica.alter.log.dirs.io.max.bytes.per.second", 20_000, 1_000_000, "1.7976931348623157E308"),
    _of("alter.log.dirs.replication.quota.window.num", 2, 5, 11),
    # logs: what is written, and when it is rolled, flushed and checkpointed
    _of("log.segment.bytes", 300, 5000, KIB * MIB),
    _of("log.roll.ms", 200, 1500, 7 * _DAY_MS),
    _of("log.roll.jitter.ms", 0, 150, 3000),
    _of("log.index.interval.bytes", 0, 1, 100, 4096),
    _of("log.index.size.max.bytes", 24, 100, 10 * MIB),
    _of("log.flush.interval.messages", 1, 7, NEVER),
    (
        {"log.flush.interval.ms": "50", "log.flush.scheduler.interval.ms": "70"},
        {"log.flush.interval.ms": "1", "log.flush.scheduler.interval.ms": "900"},
        {"log.flush.scheduler.interval.ms": str(NEVER)},
    ),
    _of("log.flush.offset.checkpoint.interval.ms", 90, 1100, 5000, 60_000),
    _of("log.flush.start.offset.checkpoint.interval.ms", 110, 1900, 60_000),
    _of("log.segment.delete.delay.ms", 0, 1, 400, 60_000),
    _of("message.max.bytes", 4096, MIB + 12, 10 * MIB),
    _of("num.recovery.threads.per.data.dir", 1, 2, 5),
    _of("compression.gzip.level", 1, 9, -1),
    _of("compression.lz4.level", 1, 9, 17),
    _of("compression.zstd.level", -5, 3, 10),
    # retention: how often it looks. Nothing is old enough; what may go is for the workloads that know when it may.
    (
        {"log.retention.check.interval.ms": "137", "log.retention.ms": "-1"},
        {"log.retention.check.interval.ms": "1000", "log.retention.ms": "-1"},
        {"log.retention.check.interval.ms": "300000"},
    ),
    # compaction
    _of("log.cleaner.backoff.ms", 60, 700, 15_000),
    _of("log.cleaner.dedupe.buffer.size", 2 * MIB, 5 * MIB + 1, 128 * MIB),
    _of("log.cleaner.io.buffer.load.factor", 0.01, 0.5, 0.9, 1),
    _of("log.cleaner.io.max.bytes.per.second", 5000, 1_000_000, "1.7976931348623157E308"),
    _of("log.cleaner.delete.retention.ms", 0, 800, _DAY_MS),
    _of("log.cleaner.min.cleanable.ratio", 0, 0.01, 0.5, 1),
    (
        *_of("log.cleaner.min.compaction.lag.ms", 0, 500),
        {"log.cleaner.min.compaction.lag.ms": "300", "log.cleaner.max.compaction.lag.ms": "900"},
    ),
    # producers
    (
        *_of("producer.id.expiration.check.interval.ms", 100, 700, 600_000),
        {"producer.id.expiration.check.interval.ms": "100", "producer.id.expiration.ms": "700"},
        {"producer.id.expiration.check.interval.ms": "300", "producer.id.expiration.ms": "4000"},
        {"producer.id.expiration.check.interval.ms": "200", "producer.id.expiration.ms": "30000"},
    ),
    # fetches and pages of clients
    _of("fetch.max.bytes", 1024, 57_671_680),
    _of("max.incremental.fetch.session.cache.slots", 0, 1, 2, 1000),
    _of("max.request.partition.size.limit", 1, 3, 2000),
    # groups
    _of("group.initial.rebalance.delay.ms", 0, 90, 3000),
    _of("group.min.session.timeout.ms", 1, 900, 6000),
    _of("group.max.session.timeout.ms", 60_000, 1_800_000),
    tuple(_sessions("group.consumer", session, beat) for session, beat in ((1500, 300), (6000, 1001), (45_000, 5000))),
    _of("group.consumer.assignment.interval.ms", 0, 170, 1000),
    _of("group.consumer.regex.refresh.interval.ms", 10_000, 600_000),
    _of("offset.metadata.max.bytes", 256, 4096),
    _of("offsets.commit.timeout.ms", 400, 5000),
    _of("offsets.load.buffer.size", 1, 500, 5 * MIB),
    (
        {"offsets.retention.check.interval.ms": "200", "offsets.retention.minutes": "30000000"},
        {"offsets.retention.check.interval.ms": "1700", "offsets.retention.minutes": "30000000"},
        {"offsets.retention.check.interval.ms": "600000"},
    ),
    _of("offsets.topic.compression.codec", 0, 1, 2, 3, 4),
    _of("offsets.topic.num.partitions", 1, 3, 7, 50),
    _of("offsets.topic.segment.bytes", 400, 6000, 100 * MIB),
)
"""Each row is drawn or not, and then gives one of its values, which sets several keys where they only make sense together."""

_ENDS_ITSELF: Final = "a node that does not get ready within it ends itself, which a run takes for a crash"
_NO_WIRE: Final = "it acts on sockets, and clients of the simulator have none"
_REMOVES: Final = "it decides what may be removed, which the workloads draw that know what must stay"
_REFUSES: Final = "it decides whom a coordinator refuses for good, which would leave a group without the member it waits for"
_PLACE: Final = "it identifies the node"
_HOST: Final = "it acts on the host of a process, and there is none"

_IN_THEME: Final = "the theme of transactions has its own values, and no other theme has transactions"
NOT_DRAWN: Final[Mapping[str, str]] = {
    "broker.id": _PLACE,
    "node.id": _PLACE,
    "connections.max.idle.ms": _NO_WIRE,
    "log.cleaner.threads": "each wants a mebibyte of the dedupe buffer, which the workload of logs draws as small as it may be",
    "controller.performance.always.log.threshold.ms": "only says when a slow event is told of, and time stands still in an event",
    "controller.performance.sample.period.ms": "only says how often a sentence is told",
    "default.replication.factor": "the number of brokers decides it, and the workloads say it for every topic",
    "group.consumer.max.assignment.interval.ms": "only bounds what a group's own config may say",
    "group.consumer.min.assignment.interval.ms": "only bounds what a group's own config may say",
    "group.consumer.max.size": _REFUSES,
    "group.max.size": _REFUSES,
    "initial.broker.registration.timeout.ms": _ENDS_ITSELF,
    "kraftlite.metrics.port": _HOST,
    "kraftlite.metrics.partitions.max": _HOST,
    "kraftlite.metrics.client.series.max": _HOST,
    "telemetry.max.bytes": _NO_WIRE,
    "kraftlite.trace.max.bytes": _HOST,
    "log.dir.failure.timeout.ms": _ENDS_ITSELF,
    "log.message.timestamp.after.max.ms": "the clocks of brokers jump by days, and the clients' do not",
    "log.message.timestamp.before.max.ms": "the clocks of brokers jump by days, and the clients' do not",
    "log.retention.bytes": _REMOVES,
    "log.retention.hours": "retention.ms in hours, and no run lasts one",
    "log.retention.minutes": "retention.ms in minutes, and few runs last one",
    "log.roll.hours": "log.roll.ms in hours, and no run lasts one",
    "log.roll.jitter.hours": "log.roll.jitter.ms in hours, and no run lasts one",
    "max.connections": _NO_WIRE,
    "max.connections.per.ip": _NO_WIRE,
    "offsets.topic.replication.factor": "the number of brokers decides it",
    "queued.max.request.bytes": _NO_WIRE,
    "server.max.startup.time.ms": _ENDS_ITSELF,
    "socket.receive.buffer.bytes": _NO_WIRE,
    "socket.request.max.bytes": _NO_WIRE,
    "socket.send.buffer.bytes": _NO_WIRE,
    **dict.fromkeys(
        (
            "add.partitions.to.txn.retry.backoff.max.ms",
            "add.partitions.to.txn.retry.backoff.ms",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms",
            "transaction.max.timeout.ms",
            "transaction.remove.expired.transaction.cleanup.interval.ms",
            "transaction.state.log.load.buffer.size",
            "transaction.state.log.min.isr",
            "transaction.state.log.num.partitions",
            "transaction.state.log.replication.factor",
            "transaction.state.log.segment.bytes",
            "transactional.id.expiration.ms",
        ),
        _IN_THEME,
    ),
    **dict.fromkeys(
        (
            "connection.failed.authentication.delay.ms",
            "connections.max.reauth.ms",
            "max.connection.creation.rate",
            "sasl.oauthbearer.clock.skew.seconds",
            "sasl.oauthbearer.jwks.endpoint.refresh.ms",
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
            "sasl.server.max.receive.size",
        ),
        _NO_WIRE,
    ),
    **dict.fromkeys(
        (
            "alter.log.dirs.replication.quota.window.size.seconds",
            "controller.quota.window.num",
            "controller.quota.window.size.seconds",
            "quota.window.num",
            "quota.window.size.seconds",
            "replication.quota.window.size.seconds",
        ),
        "no run of this theme sets a quota",
    ),
    **dict.fromkeys(
        (
            "follower.replication.throttled.rate",
            "leader.replication.throttled.rate",
            "replication.quota.window.num",
        ),
        "the workload of throttles has its own values",
    ),
    **dict.fromkeys(
        (
            "delegation.token.expiry.check.interval.ms",
            "delegation.token.expiry.time.ms",
            "delegation.token.max.lifetime.ms",
        ),
        "no run has delegation tokens",
    ),
}
"""Keys that are numbers, have an effect and are not drawn, each with the reason."""


def keys() -> dict[str, tuple[str, ...]]:
    """The values that each key of `KNOBS` may get, in the order of the table."""
    found: dict[str, dict[str, None]] = {}
    for values in KNOBS:
        for value in values:
            for key, text in value.items():
                found.setdefault(key, {})[text] = None
    return {key: tuple(texts) for key, texts in found.items()}


def draw(seed: int, given: Iterable[str] = (), max_delay_us: int = 0) -> Values:
    """The keys and values of a seed; none for a third of them, no row that has one of the `given` keys, and nothing that does not
    go with messages that take as long as `max_delay_us`.

    Each row has a random stream of its own: a row that is added or changed leaves what the others draw as it is.
    """
    rng = random.Random(f"knobs/{seed}")
    share, of = SEEDS_WITH
    if rng.randrange(of) >= share:
        return {}
    one_in, taken = rng.choice((2, 4, 8)), frozenset(given)
    found: dict[str, str] = {}
    for values in KNOBS:
        row = random.Random(f"knobs/{seed}/{next(iter(values[0]))}")
        if row.randrange(one_in) == 0:
            value = row.choice(values)
            if taken.isdisjoint(value):
                found.update(value)
    if max_delay_us > _QUICK_US:
        found = {key: text for key, text in found.items() if (key, text) not in _ONLY_WHERE_QUICK}
    return found


def turned(shape: Shape, knobs: Values) -> Shape:
    """The shape with these values beside its own."""
    return replace(shape, config={**shape.config, **knobs}, knobs=knobs) if knobs else shape
