"""A move that is taken back when only what it adds is in sync may cost records, also while nobody leads yet (CM-44)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kraftlite.metadata.records import ConfigRecord
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.sim.checkers.base import Violation
from kraftlite.sim.checkers.facts import MetadataWatch
from kraftlite.sim.checkers.losses_keeper import UNCLEAN, LossesKeeper
from kraftlite.sim.checkers.model import TOPIC
from tests.harness.watched_cluster import WatchedCluster
from tests.unit.sim.test_checkers_elr import change

TP = TopicPartition("orders", 0)


@pytest.fixture
def cluster() -> Iterator[WatchedCluster]:
    it = WatchedCluster(MetadataWatch, LossesKeeper)
    it.world.notes["power_losses"] = {}
    try:
        it.start()
        it.create_topic()
        yield it
    finally:
        it.close()


def _taken_back(cluster: WatchedCluster) -> None:
    (info,) = cluster.controller().state.replication.topics.values()
    first = info.partitions[0].replicas[:1]
    cluster.write(change(cluster, isr=first, leader=None, recovering=True, elr=(), last_known_elr=()))
    cluster.until(lambda: TP in cluster.world.losses.excused)


def test_the_replica_that_will_lead_may_lack_what_was_committed(cluster: WatchedCluster) -> None:
    cluster.write(ConfigRecord(resource_type=TOPIC, resource_name="orders", name=UNCLEAN, value="true"))
    _taken_back(cluster)
    assert "a move is taken back" in cluster.world.losses.excused[TP]


def test_a_topic_that_allows_no_unclean_election_allows_that_neither(cluster: WatchedCluster) -> None:
    with pytest.raises(Violation, match="was elected at metadata offset"):
        _taken_back(cluster)
