"""The checkers of what followers and leaders tell each other fail when they must."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kraftlite.model.ids import Endpoint
from kraftlite.model.messages.methods import REPLICA_FETCH
from kraftlite.runtime.trace.partition import FetchPaused
from kraftlite.sim.checkers.base import CheckerFactory
from kraftlite.sim.checkers.fetches_fit import FetchesFit
from kraftlite.sim.checkers.sessions_agree import SessionsAgree
from tests.harness.orders_cluster import TP, Orders, orders
from tests.harness.violations import Cases, assert_found

CASES: Cases[Orders] = Cases()


def _sessions(cluster: Orders) -> Any:
    node = cluster.leader.node
    assert node is not None and node.broker is not None
    return node.broker.replicas._service


def _progress(cluster: Orders) -> Any:
    leader = cluster.partition(cluster.leader).leader
    assert leader is not None
    return leader.followers[cluster.follower.node_id]


@CASES.breaks(FetchesFit, r"node \d refuses what node \d gave it of orders-0")
def a_follower_that_gets_what_it_has_not_asked_for(cluster: Orders) -> None:
    tracer = cluster.log(cluster.follower)._ctx.tracer
    tracer.emit(FetchPaused(tp=TP, leader_id=cluster.leader.node_id, error="INVALID_RECORD", delay_ms=1_000))
    cluster.go(1)


@CASES.breaks(SessionsAgree, "the replica ends at 3, its session says 3, and the leader goes by 2")
def a_leader_that_has_forgotten_where_its_follower_is(cluster: Orders) -> None:
    _progress(cluster).leo = 2
    cluster.go(3_000)


@CASES.breaks(SessionsAgree, r"it fetches in broker epoch \d+, the leader has 1")
def a_leader_that_goes_by_another_incarnation(cluster: Orders) -> None:
    _progress(cluster).replica_epoch = 1
    cluster.go(3_000)


@CASES.breaks(SessionsAgree, "the replica has the HW 1 and ends at 3, the leader's HW is 3")
def a_follower_that_was_not_told_the_hw(cluster: Orders) -> None:
    cluster.log(cluster.follower)._ctx.hw = 1
    cluster.go(3_000)


@CASES.breaks(SessionsAgree, "the replica begins at 0, its HW is 3, and the leader begins at 2")
def a_leader_that_does_not_tell_its_log_start(cluster: Orders) -> None:
    log = cluster.partition(cluster.leader).log
    assert log is not None and log.increment_log_start(2, "retention.ms")
    cluster.go(3_000)


@CASES.breaks(SessionsAgree, r"goes by a fetch of node \d in broker epoch 1, .* in broker epoch \d+ before")
def a_late_fetch_of_a_former_incarnation_that_counts(cluster: Orders) -> None:
    partition, server = cluster.partition(cluster.leader), _sessions(cluster)._server
    server._checked = lambda session, entry: entry.attach(partition) or partition
    asks = replace(cluster.ask_fetch(partition.leader_epoch), cluster_id=_sessions(cluster)._cluster_id)
    cluster.do(cluster.client.call(Endpoint(f"n{cluster.leader.node_id}", 9192), REPLICA_FETCH, asks, 1_000))


@pytest.mark.parametrize(("checker", "violate", "words"), CASES, ids=CASES.ids)
def test_a_violation_is_found(checker: CheckerFactory, violate: Callable[[Orders], Any], words: str) -> None:
    with orders() as start:
        assert_found(start(checker), checker, violate, words)
