"""The checker of cordoned directories fails when it must."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from kraftlite.metadata.records import BrokerRegistrationChangeRecord, ConfigRecord
from kraftlite.model.ids import NodeId
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.trace.broker import ReplicaMoveStarted
from kraftlite.sim.checkers.base import CheckerFactory
from kraftlite.sim.checkers.facts import MetadataWatch
from kraftlite.sim.checkers.i100_cordons import CordonsKept
from kraftlite.sim.checkers.model import BROKER
from tests.harness.violations import Cases, assert_found
from tests.harness.watched_cluster import WatchedCluster
from tests.unit.sim.test_checkers_directories import SHAPE, broker

CASES: Cases[WatchedCluster] = Cases()


def _cordoned(cluster: WatchedCluster, paths: str) -> None:
    cluster.write(ConfigRecord(resource_type=BROKER, resource_name="4", name="cordoned.log.dirs", value=paths))
    cluster.until(lambda: all(it.unsettled() is None for it in cluster.checkers), "the controller knows it")
    cluster.go(1_000)


@CASES.breaks(CordonsKept, r"node 4 makes a log of .* in /d1, which is cordoned; \['/d2'.*\] are not")
def a_log_is_made_in_a_cordoned_directory(cluster: WatchedCluster) -> None:
    _cordoned(cluster, "/d1")
    placement = broker(cluster).log_dirs.placement
    placement.candidates = lambda tp, topic_id, assigned: placement._dirs[:1]  # type: ignore[method-assign,assignment,return-value]
    cluster.create_topic()
    cluster.go(2_000)


@CASES.breaks(CordonsKept, "node 4 copies orders-0 from /d1 to /d2, which is cordoned")
def a_replica_is_moved_into_a_cordoned_directory(cluster: WatchedCluster) -> None:
    _cordoned(cluster, "*")
    event = ReplicaMoveStarted(tp=TopicPartition("orders", 0), source="/d1", target="/d2", leo=0)
    broker(cluster)._ports.tracer.emit(event)
    cluster.go(10)


@pytest.mark.parametrize(("checker", "violate", "words"), CASES, ids=CASES.ids)
def test_a_violation_of_cordons_is_found(checker: CheckerFactory, violate: Callable[[WatchedCluster], Any], words: str) -> None:
    cluster = WatchedCluster(MetadataWatch, checker, shape=SHAPE)
    try:
        cluster.start()
        assert_found(cluster, checker, violate, words)
    finally:
        cluster.close()


def test_new_logs_go_where_nothing_is_cordoned_and_a_lifted_cordon_is_told() -> None:
    cluster = WatchedCluster(MetadataWatch, CordonsKept, shape=SHAPE)
    try:
        cluster.start()
        _cordoned(cluster, "/d1")
        cluster.create_topic()
        tp = TopicPartition("orders", 0)
        cluster.until(lambda: broker(cluster).log_dirs.directory_of(tp))
        assert broker(cluster).log_dirs.directory_of(tp) != "/d1"
        _cordoned(cluster, "")
        checker = cluster.checkers[1]
        assert checker.unsettled() is None
        epoch = checker.facts.history.latest.brokers[NodeId(4)].broker_epoch  # type: ignore[attr-defined]
        told = BrokerRegistrationChangeRecord(broker_id=NodeId(4), broker_epoch=epoch, cordoned_log_dirs=(UUID(int=5),))
        cluster.write(told)
        assert "is registered with" in (checker.unsettled() or "")
    finally:
        cluster.close()
