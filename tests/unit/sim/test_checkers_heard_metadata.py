"""Invariant 26: a leader acts by the metadata that its broker has, and the checker finds one that does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kraftlite.sim.checkers.i26_replication_quorum import ReplicationQuorum
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


@pytest.mark.parametrize(("checker", "violate", "words"), CASES, ids=CASES.ids)
def test_a_violation_is_found(
    make: Callable[..., Orders], checker: type[ReplicationQuorum], violate: Callable[[Orders], Any], words: str
) -> None:
    assert_found(make(checker), checker, violate, words)
