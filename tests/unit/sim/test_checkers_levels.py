"""The checkers of feature levels fail when they must."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from kraftlite.metadata import records as r
from kraftlite.metadata.features import SUPPORTED_FEATURES
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.controller import FeatureRange
from kraftlite.sim.checkers.base import CheckerFactory
from kraftlite.sim.checkers.facts import MetadataWatch
from kraftlite.sim.checkers.i85_feature_levels import ELR, VERSION, FeatureLevels
from kraftlite.sim.checkers.i86_controllers_registered import ControllersRegistered
from kraftlite.sim.themes import KNOBS, PLAIN
from kraftlite.sim.workloads import levels
from tests.harness.violations import Cases, assert_found
from tests.harness.watched_cluster import SMALL, WatchedCluster, watched

CASES: Cases[WatchedCluster] = Cases()
OLD: Cases[WatchedCluster] = Cases()
"""On a cluster that is formatted at level 14: no controller is registered."""


def level(value: int, name: str = VERSION) -> r.FeatureLevelRecord:
    return r.FeatureLevelRecord(name=name, level=value)


def controller(node_id: int, most: int = 30) -> r.RegisterControllerRecord:
    ranges = tuple(replace(it, max_level=most) if it.name == VERSION else it for it in SUPPORTED_FEATURES)
    return r.RegisterControllerRecord(
        controller_id=NodeId(node_id), incarnation_id=UUID(int=node_id), listeners=(), features=ranges
    )


@CASES.breaks(FeatureLevels, r"goes from 30 to 29, which loses what came with \[30\]")
def a_downgrade_that_loses(cluster: WatchedCluster) -> None:
    cluster.write(level(29))


@CASES.breaks(FeatureLevels, r"metadata.version is set to 30, and controller 77 has 7 to 29")
def a_level_that_a_node_has_not(cluster: WatchedCluster) -> None:
    cluster.write(controller(77, most=29))
    cluster.write(level(30))


@CASES.breaks(FeatureLevels, r"is registered with eligible.leader.replicas.version 0 to 0; the level is 1")
def a_broker_that_has_not_the_level(cluster: WatchedCluster) -> None:
    known = next(iter(cluster.controller().state.cluster.brokers.values()))
    record = r.RegisterBrokerRecord(
        broker_id=known.broker_id,
        incarnation_id=known.incarnation_id,
        broker_epoch=known.broker_epoch,
        listeners=known.listeners,
        features=(FeatureRange(name=VERSION, min_level=7, max_level=30),),
        rack=None,
        fenced=known.fenced,
        in_controlled_shutdown=False,
        log_dirs=known.log_dirs,
    )
    cluster.write(record)


@CASES.breaks(FeatureLevels, "a shrinking ISR raises the leader epoch")
def an_epoch_for_nothing(cluster: WatchedCluster) -> None:
    cluster.create_topic()
    (info,) = cluster.controller().state.replication.topics.values()
    it = info.partitions[0]
    cluster.write(
        r.PartitionChangeRecord(topic_id=info.topic_id, partition=0, isr=(it.leader,), leader=it.leader, elr=it.isr[1:])
    )


@OLD.breaks(FeatureLevels, r"eligible.leader.replicas.version is finalized at metadata.version 14, and needs 23")
def a_level_without_what_it_needs(cluster: WatchedCluster) -> None:
    cluster.write(level(1, ELR))


@OLD.breaks(FeatureLevels, r"needs metadata.version 15, and the level is 14")
def a_record_before_its_level(cluster: WatchedCluster) -> None:
    record = controller(1)
    cluster.controller().state.features.finalized[VERSION] = 15  # so that it is encoded
    cluster.write(record)


@OLD.breaks(FeatureLevels, r"while nobody knows what controllers \[")
def an_upgrade_past_silent_controllers(cluster: WatchedCluster) -> None:
    cluster.submit(level(15), level(16))
    cluster.go(2_000)


@pytest.fixture
def old() -> Iterator[Callable[..., WatchedCluster]]:
    made: list[WatchedCluster] = []

    def start(*factories: CheckerFactory) -> WatchedCluster:
        found = WatchedCluster(MetadataWatch, *factories, shape=replace(SMALL, release="3.6-IV2"))
        made.append(found)
        return found.start()

    yield start
    for it in made:
        it.close()


@pytest.mark.parametrize(("checker", "violate", "words"), CASES, ids=CASES.ids)
def test_a_violation_is_found(checker: CheckerFactory, violate: Callable[[WatchedCluster], Any], words: str) -> None:
    with watched() as start:
        assert_found(start(checker), checker, violate, words)


@pytest.mark.parametrize(("checker", "violate", "words"), OLD, ids=OLD.ids)
def test_a_violation_at_an_older_level_is_found(
    old: Callable[..., WatchedCluster], checker: CheckerFactory, violate: Callable[[WatchedCluster], Any], words: str
) -> None:
    assert_found(old(checker), checker, violate, words)


def test_a_controller_that_is_not_registered_is_not_settled(old: Callable[..., WatchedCluster]) -> None:
    """Invariant 86."""
    cluster = old(ControllersRegistered)
    (checker,) = [it for it in cluster.checkers if isinstance(it, ControllersRegistered)]
    cluster.go(2_000)
    assert checker.unsettled() is None, "nobody can be registered at this level"
    for node in cluster.cluster.controllers:
        if node.node is not None and node.node.controller is not None:
            node.node.controller.registrar.stop()
    cluster.write(level(15))
    cluster.go(2_000)
    assert "runs at metadata.version 15 and is not registered" in str(checker.unsettled())


def test_the_level_of_a_cluster_is_drawn_beside_everything_else() -> None:
    seed = next(seed for seed in range(100) if levels.comes_with(seed))
    shape = replace(SMALL, features={ELR: 0, "group.version": 1})
    made = levels.with_beginning(shape, seed, PLAIN)
    assert made.release is not None and made.features == {ELR: 0}
    assert levels.with_beginning(shape, seed, KNOBS) is shape
    other = next(seed for seed in range(100) if not levels.comes_with(seed))
    assert levels.with_beginning(shape, other, PLAIN) is shape
