"""The checkers of eligible leader replicas fail when they must."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kraftlite.metadata import records as r
from kraftlite.metadata.features import ELIGIBLE_LEADER_REPLICAS_VERSION
from kraftlite.metadata.registrations import PartitionRegistration
from kraftlite.model.ids import NodeId
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.sim.checkers.base import CheckerFactory
from kraftlite.sim.checkers.i74_eligible_leaders import EligibleLeaders
from kraftlite.sim.checkers.losses_keeper import LossesKeeper
from tests.harness.violations import Cases, assert_found
from tests.harness.watched_cluster import WatchedCluster, watched

CASES: Cases[WatchedCluster] = Cases()
TP = TopicPartition("orders", 0)
MIN_ISR = "min.insync.replicas"
TOPIC, BROKER = 2, 4


def made(cluster: WatchedCluster, min_isr: str = "2") -> PartitionRegistration:
    """Topic orders, of one partition on both brokers."""
    cluster.create_topic()
    cluster.write(
        r.ConfigRecord(resource_type=TOPIC, resource_name="orders", name=MIN_ISR, value=min_isr),
        r.ClearElrRecord(topic_name="orders"),
    )
    return partition(cluster)


def partition(cluster: WatchedCluster) -> PartitionRegistration:
    (info,) = cluster.controller().state.replication.topics.values()
    found: PartitionRegistration = info.partitions[0]
    return found


def change(cluster: WatchedCluster, **values: Any) -> r.PartitionChangeRecord:
    (info,) = cluster.controller().state.replication.topics.values()
    return r.PartitionChangeRecord(topic_id=info.topic_id, partition=0, **values)


def fenced(cluster: WatchedCluster, broker_id: NodeId) -> r.BrokerRegistrationChangeRecord:
    known = cluster.controller().state.cluster.brokers[broker_id]
    return r.BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=known.broker_epoch, fenced=True)


def registered(cluster: WatchedCluster, broker_id: NodeId, **values: Any) -> r.RegisterBrokerRecord:
    """A new incarnation that did not stop cleanly."""
    known = cluster.controller().state.cluster.brokers[broker_id]
    record = r.RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=type(known.incarnation_id)(int=77),
        broker_epoch=cluster.core(cluster.leader_id()).log_end_offset + 1,
        listeners=known.listeners,
        features=known.features,
        rack=None,
        fenced=True,
        in_controlled_shutdown=False,
        log_dirs=known.log_dirs,
    )
    return replace(record, **values)


@CASES.breaks(EligibleLeaders, "should have the ELR")
def who_leaves_is_not_eligible(cluster: WatchedCluster) -> None:
    it = made(cluster)
    cluster.write(change(cluster, isr=it.isr[:1]))


@CASES.breaks(EligibleLeaders, "should have the ELR")
def who_is_eligible_is_forgotten(cluster: WatchedCluster) -> None:
    it = made(cluster)
    cluster.write(change(cluster, isr=it.isr[:1], elr=it.isr[1:]), change(cluster, elr=()))


@CASES.breaks(EligibleLeaders, "has eligible leader replicas behind .*, which turns them off")
def who_was_eligible_stays_it_without_the_feature(cluster: WatchedCluster) -> None:
    it = made(cluster)
    off = r.FeatureLevelRecord(name=ELIGIBLE_LEADER_REPLICAS_VERSION, level=0)
    cluster.write(change(cluster, isr=it.isr[:1], elr=it.isr[1:]), off)


@CASES.breaks(EligibleLeaders, r"should have the ELR \(\) with a minimum of 1")
def eligible_beside_a_large_isr(cluster: WatchedCluster) -> None:
    it = made(cluster, "1")
    cluster.write(change(cluster, isr=it.isr[:1], elr=it.isr[1:]))


@CASES.breaks(EligibleLeaders, "in its ISR, which is fenced")
def the_last_member_stays(cluster: WatchedCluster) -> None:
    it = made(cluster, "1")
    other = it.isr[1]
    cluster.write(change(cluster, isr=(other,), leader=other), fenced(cluster, it.isr[0]))
    cluster.write(change(cluster, leader=None), fenced(cluster, other))


@CASES.breaks(EligibleLeaders, "in its ELR, which may have lost records")
def an_unclean_restart_stays_eligible(cluster: WatchedCluster) -> None:
    it = made(cluster)
    other = it.isr[1]
    cluster.write(change(cluster, isr=(it.isr[0],), elr=(other,)), fenced(cluster, other))
    cluster.submit(registered(cluster, other))
    cluster.go(2_000)


@CASES.breaks(EligibleLeaders, "begins in controlled shutdown")
def a_shutdown_over_a_restart(cluster: WatchedCluster) -> None:
    it = made(cluster)
    other = it.isr[1]
    cluster.write(change(cluster, isr=(it.isr[0],), elr=(other,)), fenced(cluster, other))
    cluster.submit(change(cluster, elr=()), registered(cluster, other, in_controlled_shutdown=True))
    cluster.go(2_000)


@CASES.breaks(EligibleLeaders, "are in sync and alive")
def elected_beside_an_isr(cluster: WatchedCluster) -> None:
    it = made(cluster)
    first, other = it.isr
    cluster.write(change(cluster, isr=(first,), elr=(other,)), change(cluster, isr=(other,), leader=other, elr=(first,)))


@CASES.breaks(EligibleLeaders, "could be led by")
def nobody_leads_who_could(cluster: WatchedCluster) -> None:
    it = made(cluster)
    cluster.write(change(cluster, leader=None, isr=(), elr=it.isr, last_known_elr=(it.leader,)))


@CASES.breaks(EligibleLeaders, "does not know who led last")
def the_last_leader_is_forgotten(cluster: WatchedCluster) -> None:
    it = made(cluster, "1")
    first, other = it.isr
    cluster.write(change(cluster, isr=(first,)), fenced(cluster, other))
    cluster.write(change(cluster, leader=None, isr=(), elr=(first,)), fenced(cluster, first))


@CASES.breaks(EligibleLeaders, "there is no value for the cluster")
def no_minimum_for_the_cluster(cluster: WatchedCluster) -> None:
    cluster.write(r.ConfigRecord(resource_type=BROKER, resource_name="", name=MIN_ISR, value=None))


@CASES.breaks(EligibleLeaders, "broker 4 has the value 2")
def a_minimum_for_one_broker(cluster: WatchedCluster) -> None:
    cluster.write(r.ConfigRecord(resource_type=BROKER, resource_name="4", name=MIN_ISR, value="2"))


@CASES.breaks(EligibleLeaders, "orders-0 has no ISR, and nobody knows any more who may lead")
def a_new_minimum_forgets_who_may_lead(cluster: WatchedCluster) -> None:
    it = made(cluster)
    first, other = it.isr
    gone = change(cluster, leader=None, isr=(), elr=it.isr, last_known_elr=(first,))
    cluster.write(change(cluster, isr=(first,), elr=(other,)), fenced(cluster, other))
    cluster.write(gone, fenced(cluster, first))
    config = r.ConfigRecord(resource_type=TOPIC, resource_name="orders", name=MIN_ISR, value="1")
    cluster.write(config, r.ClearElrRecord(topic_name="orders"))


@CASES.breaks(EligibleLeaders, "of orders changes, and the ELR of before stays")
def a_new_minimum_clears_nothing(cluster: WatchedCluster) -> None:
    it = made(cluster)
    config = r.ConfigRecord(resource_type=TOPIC, resource_name="orders", name=MIN_ISR, value="1")
    cluster.write(change(cluster, isr=it.isr[:1], elr=it.isr[1:]), config)


@CASES.breaks(LossesKeeper, "lost bytes of it and is registered anew")
def who_lost_bytes_stays_a_candidate(cluster: WatchedCluster) -> None:
    it = made(cluster)
    first, other = it.isr
    cluster.write(change(cluster, isr=(first,), elr=(other,)), fenced(cluster, other))
    cluster._tell(lambda it: it.on_loss(cluster.node(other), [f"/data/{TP}/00000000000000000000.log"]))
    cluster.submit(registered(cluster, other))
    cluster.go(2_000)


@pytest.mark.parametrize(("checker", "violate", "words"), CASES, ids=CASES.ids)
def test_a_violation_is_found(checker: CheckerFactory, violate: Callable[[WatchedCluster], Any], words: str) -> None:
    with watched() as start:
        assert_found(start(checker), checker, violate, words)


def test_nothing_is_found_where_all_is_well() -> None:
    with watched() as start:
        cluster = start(EligibleLeaders)
        it = made(cluster)
        first, other = it.isr
        cluster.write(change(cluster, isr=(first,), elr=(other,)), fenced(cluster, other))
        leaves = change(cluster, isr=(), leader=None, elr=(first, other), last_known_elr=(first,))
        cluster.write(leaves, fenced(cluster, first))
        off = r.FeatureLevelRecord(name=ELIGIBLE_LEADER_REPLICAS_VERSION, level=0)
        cluster.write(off, change(cluster, isr=(first,), elr=(), last_known_elr=()))
