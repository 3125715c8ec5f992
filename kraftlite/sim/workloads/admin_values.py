"""Configuration values that Kafka takes, and values that it refuses, by kind of resource and key: the choice of the simulated
administrator, and the measure of the checkers. Source: Kafka's configuration reference; CM-47 to CM-51.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class Values(NamedTuple):
    """`good` values are taken, `bad` ones are refused. `items`: the key holds a list of these, so APPEND and SUBTRACT go."""

    good: tuple[str, ...]
    bad: tuple[str, ...]
    items: tuple[str, ...] = ()


HARMLESS: Final[Mapping[str, Values]] = {
    "retention.ms": Values(("2000000000000", "-1"), ("-2", "x")),
    "segment.ms": Values(("500", "3000"), ("0", "soon")),
    "flush.messages": Values(("1", "1000"), ("0",)),
    "flush.ms": Values(("1000", "500"), ("-1",)),
    "index.interval.bytes": Values(("0", "4096"), ("-1",)),
    "file.delete.delay.ms": Values(("0", "1000"), ("-1",)),
}
"""Keys of topics that other clients use: they may be changed without anybody losing a record or waiting for ever."""

OF_TOPICS: Final[Mapping[str, Values]] = {
    **HARMLESS,
    "retention.bytes": Values(("-1", "1000000000", "-2"), ("", "many")),
    "segment.bytes": Values(("1048576", "2097152"), ("13", "-1")),
    "max.message.bytes": Values(("1048588", "2000"), ("-1",)),
    "min.insync.replicas": Values(("1", "2"), ("0",)),
    "unclean.leader.election.enable": Values(("true", "false"), ("maybe",)),
    "cleanup.policy": Values(("delete", "compact", "compact,delete"), ("shred",), items=("compact", "delete")),
    "compression.type": Values(("producer", "gzip", "uncompressed"), ("rar",)),
    "message.timestamp.type": Values(("CreateTime", "LogAppendTime"), ("Never",)),
    "min.cleanable.dirty.ratio": Values(("0.1", "0.5"), ("1.5", "-0.1")),
    "delete.retention.ms": Values(("0", "86400000"), ("-1",)),
}

OF_BROKERS: Final[Mapping[str, Values]] = {
    "log.segment.delete.delay.ms": Values(("1000", "60000"), ("-1",)),
    "min.insync.replicas": Values(("1", "2"), ("0", "x")),
    "log.flush.interval.messages": Values(("1", "100000"), ("0",)),
    "log.index.interval.bytes": Values(("100", "4096"), ("-1",)),
    "message.max.bytes": Values(("1048588", "2000000"), ("-1",)),
    "log.retention.ms": Values(("3000000000000", "-1"), ("x",)),
    "producer.id.expiration.ms": Values(("86400000", "90000000"), ("0",)),
}
"""Keys that may change while a broker runs, of one broker or of all."""

INTERVALS: Final[Mapping[str, Values]] = {
    "group.consumer.assignment.interval.ms": Values(("0", "1000", "15000"), ("-1", "15001", "x")),
}
"""Keys of brokers whose values have to agree with others of their files, which `questions` sets."""

READ_ONLY: Final = ("log.dirs", "node.id", "process.roles")
"""Keys that no request may change."""

OF_GROUPS: Final[Mapping[str, Values]] = {
    "consumer.session.timeout.ms": Values(("45000", "50000"), ("1000", "x")),
    "consumer.heartbeat.interval.ms": Values(("5000", "6000"), ("1",)),
}

OF_CLIENT_METRICS: Final[Mapping[str, Values]] = {
    "interval.ms": Values(("1000", "60000"), ("50",)),
}

UNKNOWN_KEY: Final = "no.such.key"
