"""A broker that does not act by the metadata that it has applied is found."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from kraftlite.model.ids import NodeId
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.sim.checkers.base import CheckerFactory
from kraftlite.sim.checkers.facts import MetadataWatch
from kraftlite.sim.checkers.metadata_acted_on import MetadataActedOn
from tests.harness.violations import Cases, assert_found
from tests.harness.watched_cluster import WatchedCluster
from tests.unit.sim.test_checkers_directories import SHAPE, TP, broker, made
from tests.unit.sim.test_checkers_elr import registered

CASES: Cases[WatchedCluster] = Cases()


@CASES.breaks(MetadataActedOn, r"and has no replica orders-0")
def a_replica_that_is_not_made(cluster: WatchedCluster) -> None:
    for node_id in (4, 5):
        broker(cluster, node_id).replicas.apply_delta_steps = lambda delta, image: iter(())  # type: ignore[method-assign]
    cluster.create_topic()
    cluster.go(3_000)


@CASES.breaks(MetadataActedOn, r"and orders-0 is in partition epoch -1, not \d+")
def a_change_that_a_replica_does_not_hear_of(cluster: WatchedCluster) -> None:
    made(cluster)
    cluster.go(2_000)
    partition = broker(cluster).replicas.partition(TP)
    assert partition is not None
    partition.partition_epoch = -1
    cluster.create_topic("others")
    cluster.go(3_000)


@CASES.breaks(
    MetadataActedOn, r"coordinates \(partition, topic id, leader epoch\) \[\(0, .*, 3\)\] of __consumer_offsets; it leads \[\]"
)
def a_coordinator_that_leads_no_more(cluster: WatchedCluster) -> None:
    held = SimpleNamespace(tp=TopicPartition("__consumer_offsets", 0), topic_id=UUID(int=1), leader_epoch=3, close=lambda: None)
    held.tell = lambda event: None
    broker(cluster).groups.led._drivers[0] = cast(Any, held)
    cluster.create_topic()
    cluster.go(3_000)


@CASES.breaks(MetadataActedOn, r"and its groups go by the topics of offset \d+")
def a_coordinator_that_is_told_nothing(cluster: WatchedCluster) -> None:
    broker(cluster).groups.replicas_applied = lambda delta, image: None  # type: ignore[method-assign]
    cluster.create_topic()
    cluster.go(3_000)


@CASES.breaks(MetadataActedOn, "in which it is registered without directories, and does not register again")
def a_broker_that_does_not_say_its_directories(cluster: WatchedCluster) -> None:
    made(cluster)
    broker(cluster).publisher._on_directories_known = lambda: None
    cluster.write(registered(cluster, NodeId(4), log_dirs=()))
    cluster.go(3_000)


@pytest.mark.parametrize(("checker", "violate", "words"), CASES, ids=CASES.ids)
def test_a_violation_is_found(checker: CheckerFactory, violate: Callable[[WatchedCluster], Any], words: str) -> None:
    cluster = WatchedCluster(MetadataWatch, checker, shape=SHAPE)
    try:
        assert_found(cluster.start(), checker, violate, words)
    finally:
        cluster.close()
