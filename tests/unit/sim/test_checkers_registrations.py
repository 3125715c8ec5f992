"""The checkers of registrations beside a session, and of shutdowns that are held up, fail when they must."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kraftlite.model.ids import NodeId
from kraftlite.sim.checkers.base import CheckerFactory
from kraftlite.sim.checkers.one_incarnation import OneIncarnation
from kraftlite.sim.checkers.refused_incarnations import RefusedIncarnations
from kraftlite.sim.checkers.self_checks import SelfCheckMetadata
from kraftlite.sim.checkers.shutdowns_end import ShutdownsEnd
from tests.harness.violations import Cases, assert_found
from tests.harness.watched_cluster import WatchedCluster, watched

Make = Callable[..., WatchedCluster]
CASES: Cases[WatchedCluster] = Cases()


@pytest.fixture
def make() -> Iterator[Make]:
    with watched() as start:
        yield start


def stop(cluster: WatchedCluster, node_id: int) -> None:
    """Begin an orderly end."""

    async def stop() -> None:
        cluster.node(node_id).stop()

    cluster.do(stop())


@CASES.breaks(OneIncarnation, "registers broker 4 as incarnation .*, and has taken a heartbeat of incarnation")
def a_broker_that_comes_back_within_its_session(cluster: WatchedCluster) -> None:
    control = cluster.controller().state.cluster
    control.check_registration = lambda request, now_ms: control.brokers[request.broker_id]  # type: ignore[method-assign]
    cluster.kill(4)
    cluster.boot(4)
    cluster.go(5_000)


@CASES.breaks(RefusedIncarnations, "does not register broker 4, .* which it has told to go")
def a_broker_that_was_told_to_go(cluster: WatchedCluster) -> None:
    cluster.controller().state.cluster.live.tracker.has_session = lambda *_: True  # type: ignore[method-assign]
    stop(cluster, 4)
    cluster.until(lambda: cluster.node(4).now is None, "broker 4 has stopped")
    cluster.boot(4)


@CASES.breaks(RefusedIncarnations, "does not register broker 4, .* which was fenced when it became active")
def a_broker_that_was_fenced_before(cluster: WatchedCluster) -> None:
    former = cluster.leader_id()
    cluster.kill(4)
    cluster.until(lambda: cluster.controller().state.cluster.brokers[NodeId(4)].fenced, "broker 4 is fenced")
    cluster.go(500)  # and everybody knows it
    cluster.kill(former)
    cluster.until(lambda: cluster.leader_id() not in (0, former) and cluster.controller().activated, "another controller")
    cluster.controller().state.cluster.live.tracker.has_session = lambda *_: True  # type: ignore[method-assign]
    cluster.boot(4)


@CASES.breaks(ShutdownsEnd, "does not let broker 4 go, which leads nothing any more")
def a_broker_that_is_kept(cluster: WatchedCluster) -> None:
    for name in ("a", "b", "c", "d"):
        cluster.create_topic(name)
    heartbeats = cluster.controller().state.cluster.live
    heartbeats.lowest_active_offset = lambda: -1  # type: ignore[method-assign]
    stop(cluster, 4)
    cluster.go(20_000)


@CASES.breaks(SelfCheckMetadata, r"keeps the answer that waits for offset \d+; stable is \d+")
def an_answer_that_is_kept(cluster: WatchedCluster) -> None:
    cluster.controller().deferred.complete_up_to = lambda offset: 0  # type: ignore[method-assign]
    cluster.create_topic()


@pytest.mark.parametrize(("checker", "violate", "words"), CASES, ids=CASES.ids)
def test_a_violation_is_found(make: Make, checker: CheckerFactory, violate: Callable[[WatchedCluster], Any], words: str) -> None:
    assert_found(make(checker), checker, violate, words)
