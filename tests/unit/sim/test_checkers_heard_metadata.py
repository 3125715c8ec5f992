"""Invariant 26: a leader acts by the metadata that its broker has, and the checker finds one that does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.controller import (
    AlterPartitionItem,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionResult,
    IsrMember,
)
from kraftlite.model.messages.methods import ALTER_PARTITION
from kraftlite.replication.isr import PendingIsr
from kraftlite.sim.checkers.base import CheckerFactory
from kraftlite.sim.checkers.i26_replication_quorum import ReplicationQuorum
from kraftlite.sim.checkers.withdrawals import Withdrawals
from tests.harness.orders_cluster import Orders, orders
from tests.harness.violations import Cases, assert_found

CASES: Cases[Orders] = Cases()


@pytest.fixture
def make() -> Iterator[Callable[..., Orders]]:
    with orders() as start:
        yield start


@CASES.breaks(ReplicationQuorum, r"past node ., which fetches at up to 3 and is in the ISR \(., ., .\) of the metadata")
def a_hw_that_passes_a_member_whose_leaving_was_not_heard(cluster: Orders) -> None:
    cluster.only_leader_writes()
    state = cluster.partition(cluster.leader).leader
    assert state is not None
    state.isr.commit((cluster.leader.node_id,), recovering=False)
    cluster.partition(cluster.leader).committed_isr = (cluster.leader.node_id,)
    cluster.partition(cluster.leader).partition_epoch += 1
    checker = next(it for it in cluster.checkers if isinstance(it, ReplicationQuorum))
    checker._check_isr = lambda view: None  # type: ignore[method-assign]
    cluster.log(cluster.leader).update_hw(4)
    cluster.go(1_000)


@CASES.breaks(ReplicationQuorum, "goes by min.insync.replicas=1 and no more by 3, before it has made the change")
def a_smaller_minimum_before_the_changes_that_come_with_it(cluster: Orders) -> None:
    partition = cluster.partition(cluster.leader)
    partition.min_isr = 3
    cluster.go(1_000)
    partition.partition_epoch -= 1
    cluster.go(1_000)
    partition.min_isr = 1
    cluster.go(1_000)


@CASES.breaks(Withdrawals, r"and no more for \(.,\), whose joining was refused")
def a_leader_that_forgets_a_refused_expansion(cluster: Orders) -> None:
    out = cluster.follower.node_id
    cluster.kill(out)
    cluster.until(lambda: out not in cluster.isr)
    cluster.go(500)
    partition, node_id = cluster.partition(cluster.leader), cluster.leader.node_id
    assert partition.leader is not None
    for other in cluster.cluster.nodes:
        if other != node_id:
            cluster.cluster.network.cut(node_id, other)
    item = AlterPartitionItem(
        topic_id=cluster.key.topic_id,
        partition=0,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        new_isr=tuple(IsrMember(broker_id=it, broker_epoch=1) for it in (*cluster.isr, out)),
        recovering=False,
    )
    partition.leader.isr.propose(PendingIsr(item=item, added=(out,), removed=()), partition.replicas)
    cluster.go(3_000)
    result = AlterPartitionResult(topic_id=cluster.key.topic_id, partition=0, error=ErrorCode.INELIGIBLE_REPLICA)
    checker = next(it for it in cluster.checkers if isinstance(it, Withdrawals))
    request = AlterPartitionRequest(broker_id=node_id, broker_epoch=1, partitions=(item,))
    checker.on_answer(node_id, NodeId(1), ALTER_PARTITION, request, AlterPartitionResponse(partitions=(result,)))
    partition.leader.isr.revert()
    cluster.go(3_000)


@pytest.mark.parametrize(("checker", "violate", "words"), CASES, ids=CASES.ids)
def test_a_violation_is_found(
    make: Callable[..., Orders], checker: CheckerFactory, violate: Callable[[Orders], Any], words: str
) -> None:
    assert_found(make(checker), checker, violate, words)
