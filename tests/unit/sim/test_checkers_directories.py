"""The checkers of log directories fail when they must."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from kraftlite.broker.server import BrokerServer
from kraftlite.model.ids import NodeId
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.trace.broker import LogDirFailed, ReplicaMoved
from kraftlite.sim.checkers.base import CheckerFactory
from kraftlite.sim.checkers.facts import MetadataWatch
from kraftlite.sim.checkers.i80_one_place import OnePlace
from kraftlite.sim.checkers.i83_offline_leaders import OfflineLeaders
from kraftlite.sim.log_dir_faults import KINDS, draw, several
from tests.harness.violations import Cases, assert_found
from tests.harness.watched_cluster import SMALL, WatchedCluster
from tests.unit.sim.test_checkers_elr import change, registered

CASES: Cases[WatchedCluster] = Cases()
TP = TopicPartition("orders", 0)
SHAPE = several(SMALL, seed=1)


def broker(cluster: WatchedCluster, node_id: int = 4) -> BrokerServer:
    node = cluster.node(node_id).node
    assert node is not None and node.broker is not None
    return node.broker


def made(cluster: WatchedCluster) -> str:
    """Topic orders, of one partition on both brokers; returns the directory that broker 4 has it in."""
    cluster.create_topic()
    cluster.until(lambda: all(broker(cluster, it).log_dirs.directory_of(TP) for it in (4, 5)))
    cluster.until(lambda: all(it.unsettled() is None for it in cluster.checkers), "metadata knows the directories")
    found = broker(cluster).log_dirs.directory_of(TP)
    assert found is not None
    return found


@CASES.breaks(OnePlace, "is served from /d., which has failed")
def a_failed_directory_is_served(cluster: WatchedCluster) -> None:
    path = made(cluster)
    broker(cluster)._ports.tracer.emit(LogDirFailed(log_dir=path, directory_id="x", reason="it is said"))
    cluster.go(10)


@CASES.breaks(OnePlace, "has moved to /d9; it is in ")
def a_move_ends_elsewhere(cluster: WatchedCluster) -> None:
    path = made(cluster)
    broker(cluster)._ports.tracer.emit(ReplicaMoved(tp=TP, source=path, target="/d9", leo=0))
    cluster.go(10)


@CASES.breaks(OnePlace, r"has moved to /d\d, where it is flushed up to -1, and ends at 0")
def a_copy_is_not_on_the_disk(cluster: WatchedCluster) -> None:
    path = made(cluster)
    partition = broker(cluster).replicas.partition(TP)
    assert partition is not None and partition.log is not None
    partition.log._ctx.recovery_point = -1
    broker(cluster)._ports.tracer.emit(ReplicaMoved(tp=TP, source=path, target=path, leo=0))
    cluster.go(10)


@CASES.breaks(OnePlace, "is in several directories")
def a_replica_is_in_two_directories(cluster: WatchedCluster) -> None:
    path = made(cluster)
    other = next(it for it in cluster.node(4).config.log_dirs if it != path)
    cluster.node(4).disk.makedirs(f"{other}/{TP}")
    cluster.at_end()


@CASES.breaks(OfflineLeaders, "is led by .*, which is not online")
def a_leader_is_in_a_directory_that_nobody_has(cluster: WatchedCluster) -> None:
    made(cluster)
    cluster.write(change(cluster, directories=(UUID(int=7777), UUID(int=8888))))


@pytest.mark.parametrize(("checker", "violate", "words"), CASES, ids=CASES.ids)
def test_a_violation_in_directories_is_found(
    checker: CheckerFactory, violate: Callable[[WatchedCluster], Any], words: str
) -> None:
    cluster = WatchedCluster(MetadataWatch, checker, shape=SHAPE)
    try:
        assert_found(cluster.start(), checker, violate, words)
    finally:
        cluster.close()


def test_metadata_that_names_another_directory_is_not_settled() -> None:
    cluster = WatchedCluster(MetadataWatch, OnePlace, shape=SHAPE)
    try:
        made(cluster.start())
        (checker,) = [it for it in cluster.checkers if isinstance(it, OnePlace)]
        assert checker.unsettled() is None
        for node_id in (4, 5):
            broker(cluster, node_id).assignments.close()
        ids = {spec.directory_id for spec in broker(cluster).log_dirs._config.log_dirs}
        registration = broker(cluster).cache.partition("orders", 0)
        assert registration is not None
        place = registration.replicas.index(4)
        wrong = list(registration.directories)
        wrong[place] = next(it for it in ids if it is not None and it != wrong[place])
        cluster.write(change(cluster, directories=tuple(wrong)))
        cluster.until(lambda: "metadata says" in (checker.unsettled() or ""))
    finally:
        cluster.close()


def test_a_broker_that_has_not_said_its_directories_is_not_settled() -> None:
    """ML-25, KAFKA-16162: it was registered before there were any."""
    cluster = WatchedCluster(MetadataWatch, OnePlace, shape=SHAPE)
    try:
        made(cluster.start())
        (checker,) = [it for it in cluster.checkers if isinstance(it, OnePlace)]
        for node_id in (4, 5):
            broker(cluster, node_id).publisher._on_directories_known = lambda: None
        cluster.write(registered(cluster, NodeId(4), log_dirs=()))
        cluster.until(lambda: "registered without directories" in (checker.unsettled() or ""))
    finally:
        cluster.close()


def test_directories_fail_one_at_a_time() -> None:
    for seed in range(30):
        shape = several(SMALL, seed)
        faults = draw(seed, shape, 15_000)
        assert faults == draw(seed, shape, 15_000)
        assert {it.kind for it in faults} <= {*KINDS, "dir-no-inodes"}
        failing = [it for it in faults if it.kind in KINDS]  # one without room for a replica goes on until there is to be one
        ends = [it.at_ms + it.for_ms for it in failing]
        assert all(end < it.at_ms for end, it in zip(ends, failing[1:], strict=False))
