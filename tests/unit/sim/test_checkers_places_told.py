"""A broker that leaves the controller in the belief that a replica is elsewhere is found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from kraftlite.model.ids import NodeId
from kraftlite.model.messages.controller import AssignReplicasToDirsRequest, ReplicaDirectory
from kraftlite.model.messages.methods import ASSIGN_REPLICAS_TO_DIRS
from kraftlite.sim.checkers.base import CheckerFactory
from kraftlite.sim.checkers.facts import MetadataWatch
from kraftlite.sim.checkers.places_told import PlacesTold
from tests.harness.violations import Cases, assert_found
from tests.harness.watched_cluster import WatchedCluster
from tests.unit.sim.test_checkers_directories import SHAPE, broker, made

CASES: Cases[WatchedCluster] = Cases()


def _report(cluster: WatchedCluster, directory_id: UUID) -> None:
    """Broker 4 names the directory of its replica, and takes nothing back."""
    (topic,) = broker(cluster).cache.image.topics
    item = ReplicaDirectory(topic_id=topic.topic_id, partition=0, directory_id=directory_id)
    request = AssignReplicasToDirsRequest(broker_id=NodeId(4), broker_epoch=1, replicas=(item,))
    (checker,) = [it for it in cluster.checkers if isinstance(it, PlacesTold)]
    checker.on_call(NodeId(4), NodeId(1), ASSIGN_REPLICAS_TO_DIRS, request)


def _others(cluster: WatchedCluster, path: str) -> list[UUID]:
    return [it.directory_id for it in broker(cluster).log_dirs._dirs if it.path != path]


@CASES.breaks(PlacesTold, r"instead of None; it has said before that it is in .*, where it never was")
def a_move_that_is_taken_back_unsaid(cluster: WatchedCluster) -> None:
    path = made(cluster)
    _report(cluster, _others(cluster, path)[0])
    _report(cluster, UUID(int=9))


@CASES.breaks(PlacesTold, r"orders-0 on node 4 is in .*; the controller is told .*, and metadata says")
def a_place_that_is_not_told_again(cluster: WatchedCluster) -> None:
    path = made(cluster)
    _report(cluster, _others(cluster, path)[0])
    cluster.go(3_000)


@pytest.mark.parametrize(("checker", "violate", "words"), CASES, ids=CASES.ids)
def test_a_violation_is_found(checker: CheckerFactory, violate: Callable[[WatchedCluster], Any], words: str) -> None:
    cluster = WatchedCluster(MetadataWatch, checker, shape=SHAPE)
    try:
        assert_found(cluster.start(), checker, violate, words)
    finally:
        cluster.close()
