"""The checkers of sessions fail when they must: those of brokers with the controller, and of followers with their leaders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kraftlite.log.validation import AppendOrigin
from kraftlite.sim.checkers.base import CheckerFactory
from kraftlite.sim.checkers.fetch_answers import FetchAnswers
from kraftlite.sim.checkers.i37_fencing_liveness import FencingLiveness
from tests.harness.orders_cluster import Orders, orders
from tests.harness.violations import Cases, assert_found
from tests.harness.watched_cluster import WatchedCluster, watched

OF_BROKERS: Cases[WatchedCluster] = Cases()
OF_FOLLOWERS: Cases[Orders] = Cases()


@OF_BROKERS.breaks(FencingLiveness, "ends the session of broker 4, whose heartbeat it has taken .* ms ago")
def a_session_that_no_heartbeat_renews(cluster: WatchedCluster) -> None:
    tracker = cluster.controller().state.cluster.tracker
    assert tracker is not None
    contact_ms = tracker._contact_ms
    tracker.touch = lambda broker_id, epoch, now_ms: contact_ms.setdefault((broker_id, epoch), now_ms)  # type: ignore[method-assign,assign]
    cluster.kill(5)
    cluster.go(20_000)


@OF_FOLLOWERS.breaks(FetchAnswers, "without records, which fetches orders-0 from 3 and could have it up to 4")
def an_append_that_no_session_hears_of(cluster: Orders) -> None:
    log, epoch, wall_ms = cluster.log(cluster.leader), cluster.partition(cluster.leader).leader_epoch, cluster.cluster.wall_ms()
    log.append_as_leader(bytearray(cluster.batch()), leader_epoch=epoch, wall_ms=wall_ms, origin=AppendOrigin.CLIENT)
    cluster.go(3_000)


@pytest.mark.parametrize(("checker", "violate", "words"), OF_BROKERS, ids=OF_BROKERS.ids)
def test_a_violation_in_sessions_of_brokers_is_found(
    checker: CheckerFactory, violate: Callable[[WatchedCluster], Any], words: str
) -> None:
    with watched() as start:
        assert_found(start(checker), checker, violate, words)


@pytest.mark.parametrize(("checker", "violate", "words"), OF_FOLLOWERS, ids=OF_FOLLOWERS.ids)
def test_a_violation_in_sessions_of_followers_is_found(
    checker: CheckerFactory, violate: Callable[[Orders], Any], words: str
) -> None:
    with orders() as start:
        assert_found(start(checker), checker, violate, words)


def test_a_leader_that_waits_for_metadata_may_answer_without_records() -> None:
    """As after the append that no session hears of, but each session says that its follower is ahead of the leader's metadata."""
    with orders() as start:
        cluster = start(FetchAnswers)
        leader = cluster.leader
        assert leader.node is not None and leader.node.broker is not None
        log, epoch, wall_ms = cluster.log(leader), cluster.partition(leader).leader_epoch, cluster.cluster.wall_ms()
        log.append_as_leader(bytearray(cluster.batch()), leader_epoch=epoch, wall_ms=wall_ms, origin=AppendOrigin.CLIENT)
        for session in leader.node.broker.replicas._service.sessions._sessions.values():
            session.ahead.update(dict.fromkeys(session.entries.values()))
        cluster.until(lambda: {it.leo for it in cluster.views.values()} == {4})
