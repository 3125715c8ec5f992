"""The checker of replication throttles fails when it must, and its bounds of a rate enclose the rate that a broker measures."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from kraftlite.metadata.records import ConfigRecord
from kraftlite.model.ids import NodeId
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.quotas.rates import QuotaWindows, WindowedRate
from kraftlite.sim.checkers.base import CheckerFactory
from kraftlite.sim.checkers.i99_throttles import ThrottlesKept
from kraftlite.sim.checkers.model import BROKER, TOPIC, MetadataState
from kraftlite.sim.checkers.throttle_rates import FOLLOWER, LEADER, Tally, throttle_of
from kraftlite.simhost.host import SimHost
from tests.harness.orders_cluster import Orders, orders
from tests.harness.violations import Cases, assert_found

CASES: Cases[Orders] = Cases()
RATE = "{}.replication.throttled.rate"
REPLICAS = "{}.replication.throttled.replicas"


def _set(cluster: Orders, kind: int, name: str, key: str, value: str) -> None:
    cluster.submit(ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value))


def _throttled(cluster: Orders, side: str, rate: int = 1) -> None:
    for node in cluster.cluster.brokers:
        _set(cluster, BROKER, str(node.node_id), RATE.format(side), str(rate))
    _set(cluster, TOPIC, "orders", REPLICAS.format(side), "*")
    cluster.go(500)


def _replicas(node: SimHost) -> Any:
    assert node.node is not None and node.node.broker is not None
    return node.node.broker.replicas


@CASES.breaks(ThrottlesKept, r"keeps the records of orders-0 .* back from node \d, and it is in the ISR")
def a_leader_holds_the_isr_back(cluster: Orders) -> None:
    _throttled(cluster, LEADER)
    _replicas(cluster.leader)._service._server._held_back = lambda session, partition: True
    cluster.produce()
    cluster.go(3_000)


@CASES.breaks(ThrottlesKept, "and no throttle is in force for it")
def a_leader_holds_back_without_a_throttle(cluster: Orders) -> None:
    _set(cluster, TOPIC, "orders", REPLICAS.format(LEADER), "*")
    cluster.go(500)
    server = _replicas(cluster.leader)._service._server
    server._throttle.bound = 1
    server._held_back = lambda session, partition: True
    cluster.produce()
    cluster.go(3_000)


@pytest.mark.parametrize(("checker", "violate", "words"), CASES, ids=CASES.ids)
def test_a_violation_of_throttles_is_found(checker: CheckerFactory, violate: Callable[[Orders], Any], words: str) -> None:
    with orders() as start:
        assert_found(start(checker), checker, violate, words)


def test_members_of_the_isr_are_not_held_back() -> None:
    with orders() as start:
        cluster = start(ThrottlesKept)
        for side in (LEADER, FOLLOWER):
            _throttled(cluster, side)
        for _ in range(5):
            cluster.produce()
        cluster.until(lambda: {(it.leo, it.hw) for it in cluster.views.values()} == {(8, 8)})


def test_a_throttle_is_that_of_the_broker_and_of_what_its_topics_list() -> None:
    state = MetadataState(
        configs={
            (BROKER, "2"): {RATE.format(LEADER): "500"},
            (TOPIC, "a"): {REPLICAS.format(LEADER): "0:2,1:3", REPLICAS.format(FOLLOWER): "*"},
        }
    )
    leader, follower = (throttle_of(state, {}, NodeId(2), side) for side in (LEADER, FOLLOWER))
    assert (leader.bound, follower.bound) == (500, None)
    assert [leader.holds_for(TopicPartition("a", index)) for index in (0, 1)] == [True, False]
    assert follower.lists(TopicPartition("a", 7)) and not follower.holds_for(TopicPartition("a", 7))
    assert not leader.lists(TopicPartition("b", 0))


@pytest.mark.parametrize("seed", range(20))
def test_the_bounds_of_a_rate_enclose_it(seed: int) -> None:
    rng = random.Random(seed)
    windows = QuotaWindows(rng.randint(1, 4), 1_000)
    rate, tally, now_ms = WindowedRate(windows), Tally(*windows), 10_000
    for _ in range(300):
        now_ms += rng.choice((0, 3, 90, 400, 2_500))
        size = rng.randint(1, 5_000)
        rate.record(size, now_ms)
        tally.note(now_ms, size, surely=True)
        now_ms += rng.choice((0, 50, 1_100))
        assert tally.at_least(now_ms) <= rate.simple_rate(now_ms) <= tally.at_most(now_ms)
