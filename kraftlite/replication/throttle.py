"""Bounds of the bytes that are sent to followers, and fetched from leaders, for the partitions that an operator lists, and of
those that are copied between the directories of a broker.

A replica that is in sync is never held back: it would leave the ISR. Consumers are none of this (KAFKA-13614).
Source: KIP-73, KIP-113; QU-10; Kafka's ReplicationQuotaManager.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from kraftlite.model.broker_configs import value_of
from kraftlite.model.ids import NodeId
from kraftlite.model.limits import MAX_INT64
from kraftlite.model.topic_configs import throttled_replica
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.quotas.rates import QuotaWindows, WindowedRate

LEADER_RATE: Final = "leader.replication.throttled.rate"
LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"
MOVES_RATE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"


class Throttle:
    """Bytes a second. `bound`: as many are allowed; None: any number of them."""

    def __init__(self, windows: QuotaWindows, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._rate = WindowedRate(windows)
        self.bound: int | None = None

    def exceeded(self) -> bool:
        return self.bound is not None and self.rate() > self.bound

    def rate(self) -> float:
        return self._rate.simple_rate(self._now_ms())

    def count(self, size: int) -> None:
        if size:
            self._rate.record(size, self._now_ms())


class ReplicationThrottle(Throttle):
    """One of the two between brokers: it counts the partitions that are listed."""

    def __init__(self, windows: QuotaWindows, now_ms: Callable[[], int]) -> None:
        super().__init__(windows, now_ms)
        self._topics: dict[str, frozenset[int] | None] = {}
        """The listed partitions; None: all of the topic."""

    def set_topic(self, topic: str, listed: frozenset[int] | None) -> None:
        if listed is not None and not listed:
            self._topics.pop(topic, None)
        else:
            self._topics[topic] = listed

    def lists(self, tp: TopicPartition) -> bool:
        if tp.topic not in self._topics:
            return False
        listed = self._topics[tp.topic]
        return listed is None or tp.partition in listed

    def record(self, tp: TopicPartition, size: int) -> None:
        """Count bytes of a partition, if it is listed."""
        if self._topics and self.lists(tp):
            self.count(size)


class ReplicationThrottles:
    """The throttles of a broker, and what the configuration says of them. `moves`: of copies between its directories."""

    def __init__(self, broker_id: NodeId, windows: QuotaWindows, of_moves: QuotaWindows, now_ms: Callable[[], int]) -> None:
        self._broker_id = broker_id
        self.leader = ReplicationThrottle(windows, now_ms)
        self.follower = ReplicationThrottle(windows, now_ms)
        self.moves = Throttle(of_moves, now_ms)

    def update_rates(self, values: Mapping[str, str]) -> None:
        """Take over the values in force for this broker."""
        for throttle, name in ((self.leader, LEADER_RATE), (self.follower, FOLLOWER_RATE), (self.moves, MOVES_RATE)):
            bound: float = value_of(values, name)
            throttle.bound = int(bound) if bound < MAX_INT64 else None

    def update_topic(self, topic: str, values: Mapping[str, str]) -> None:
        """Take over a topic's own configuration; empty: it has none any more."""
        for throttle, name in ((self.leader, LEADER_REPLICAS), (self.follower, FOLLOWER_REPLICAS)):
            throttle.set_topic(topic, self._listed(values.get(name, "")))

    def _listed(self, text: str) -> frozenset[int] | None:
        """The partitions of `partition:broker,...` that are this broker's; None for `*`: all of them. An item that is none, as
        controllers of earlier versions took it, lists nothing."""
        items = [item.strip() for item in text.split(",")]
        if items == ["*"]:
            return None
        replicas = (throttled_replica(item) for item in items)
        return frozenset(it[0] for it in replicas if it is not None and it[1] == self._broker_id)
