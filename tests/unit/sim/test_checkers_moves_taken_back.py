"""A move that is taken back when only what it adds is in sync may cost records, also while nobody leads yet (CM-44); one that
ends with an unclean election is over all the same (CM-42)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kraftlite.metadata.records import ConfigRecord
from kraftlite.metadata.registrations import PartitionRegistration
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.sim.checkers.base import Violation
from kraftlite.sim.checkers.facts import MetadataWatch
from kraftlite.sim.checkers.losses_keeper import UNCLEAN, LossesKeeper
from kraftlite.sim.checkers.model import TOPIC, completes_a_move, ends_a_move_uncleanly
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


def _partition(leader: int | None, isr: tuple[int, ...], adding: tuple[int, ...] = (), **values: bool) -> PartitionRegistration:
    return PartitionRegistration(
        replicas=(4, 2, 3), isr=isr, leader=leader, leader_epoch=5, partition_epoch=6, adding_replicas=adding, **values
    )


@pytest.mark.parametrize(
    ("old", "new", "ends"),
    [
        (_partition(None, (3,), (3,), recovering=True), _partition(4, (4,), recovering=True), True),
        (_partition(None, (2,), (3,), recovering=True), _partition(4, (4,), recovering=True), False),
        (_partition(None, (3,), (3,), recovering=True), _partition(4, (4, 2), recovering=True), False),
        (_partition(None, (3,), (3,), recovering=True), _partition(4, (4,)), False),
    ],
)
def test_a_move_ends_uncleanly_when_what_it_adds_was_in_sync(
    old: PartitionRegistration, new: PartitionRegistration, ends: bool
) -> None:
    assert ends_a_move_uncleanly(old, new) is ends
    assert not completes_a_move(old, new), "the election is unclean"
