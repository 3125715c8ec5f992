"""The checker of reads from followers fails when it must."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kraftlite.model.ids import Endpoint, NodeId
from kraftlite.replication.api import FetchResult
from kraftlite.sim.checkers.base import CheckerFactory
from kraftlite.sim.checkers.i55_follower_reads import FollowerReads
from kraftlite.sim.service import FETCH, FetchAsk
from kraftlite.simhost.host import SimHost
from tests.harness.orders_cluster import TP, Orders, orders
from tests.harness.violations import Cases, assert_found

CASES: Cases[Orders] = Cases()


def _placed(cluster: Orders) -> NodeId:
    """The leader stands in the west, the others in the east. One of those."""
    for node in cluster.cluster.brokers:
        rack = "west" if node is cluster.leader else "east"
        node.config = replace(node.config, values={**node.config.values, "broker.rack": rack})
    return cluster.follower.node_id


def _sends(node: SimHost, to: NodeId) -> None:
    """The node sends every consumer away."""
    assert node.node is not None and node.node.broker is not None
    consume = node.node.broker.replicas._consume
    consume._preferred_replica = lambda params, partition, offset: to  # type: ignore[method-assign]


def _fetch(cluster: Orders, node: SimHost, rack: str | None) -> FetchResult:
    result = cluster.do(
        cluster.client.call(Endpoint(f"n{node.node_id}", 9092), FETCH, FetchAsk(TP, 0, None, 0, 1 << 20, rack=rack), 3_000)
    )
    assert isinstance(result, FetchResult)
    return result


@CASES.breaks(FollowerReads, "sends a consumer in rack east to node .*, and is not the leader")
def a_follower_sends_away(cluster: Orders) -> None:
    follower = _placed(cluster)
    _sends(cluster.follower, follower)
    _fetch(cluster, cluster.follower, "east")


@CASES.breaks(FollowerReads, "sends a consumer in rack None to node .*; it is in rack west, the other in rack east")
def a_consumer_without_a_rack_is_sent_away(cluster: Orders) -> None:
    _sends(cluster.leader, _placed(cluster))
    _fetch(cluster, cluster.leader, None)


@CASES.breaks(FollowerReads, "sends a consumer in rack north to node .*, the other in rack east")
def a_consumer_is_sent_to_another_rack(cluster: Orders) -> None:
    _sends(cluster.leader, _placed(cluster))
    _fetch(cluster, cluster.leader, "north")


@CASES.breaks(FollowerReads, r"the ISR of partition epoch \d+ is \(\d+, \d+\)$")
def a_consumer_is_sent_out_of_the_isr(cluster: Orders) -> None:
    lost = _placed(cluster)
    cluster.kill(lost)
    cluster.until(lambda: lost not in cluster.isr and len(cluster.partition(cluster.leader).committed_isr) == 2)
    _sends(cluster.leader, lost)
    _fetch(cluster, cluster.leader, "east")


@CASES.breaks(FollowerReads, "with .* bytes of records")
def a_consumer_gets_records_and_is_sent_away(cluster: Orders) -> None:
    follower = _placed(cluster)
    leader = cluster.leader
    assert leader.node is not None and leader.node.broker is not None
    consume = leader.node.broker.replicas._consume
    read = consume._read

    def both(room: Any, entry: Any) -> FetchResult:
        found = read(room, entry)
        found.preferred_read_replica = follower
        return found

    consume._read = both  # type: ignore[method-assign]
    _fetch(cluster, leader, "east")


@pytest.mark.parametrize(("checker", "violate", "words"), CASES, ids=CASES.ids)
def test_a_violation_in_reads_from_followers_is_found(
    checker: CheckerFactory, violate: Callable[[Orders], Any], words: str
) -> None:
    with orders() as start:
        assert_found(start(checker), checker, violate, words)


def test_who_is_sent_to_a_follower_in_its_rack_is_no_violation() -> None:
    with orders() as start:
        cluster = start(FollowerReads)
        follower = _placed(cluster)
        _sends(cluster.leader, follower)
        found = _fetch(cluster, cluster.leader, "east")
        assert (found.preferred_read_replica, found.records) == (follower, b"")
        assert _fetch(cluster, cluster.follower, "east").records
