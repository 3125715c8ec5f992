"""A coordinator that begins before all that it reads is committed, or that has not read all, is found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kraftlite.runtime.trace.group import GroupsLoaded
from kraftlite.runtime.trace.transaction import TransactionsLoaded
from kraftlite.sim.checkers.base import CheckerFactory
from kraftlite.sim.checkers.loads_end import LoadsEnd
from tests.harness.orders_cluster import TP, Orders, orders
from tests.harness.violations import Cases, assert_found

CASES: Cases[Orders] = Cases()


@pytest.fixture
def make() -> Iterator[Callable[..., Orders]]:
    with orders() as start:
        yield start


def loaded(cluster: Orders, end_offset: int, *, groups: bool = True, epoch: int | None = None) -> None:
    """The leader of the three records says that it has loaded so many of them."""
    partition = cluster.partition(cluster.leader)
    facts: dict[str, Any] = {
        "tp": TP,
        "leader_epoch": partition.leader_epoch if epoch is None else epoch,
        "end_offset": end_offset,
        "elapsed_ms": 1,
    }
    tracer = partition.online_log()._ctx.tracer
    tracer.emit(GroupsLoaded(groups=1, offsets=1, **facts) if groups else TransactionsLoaded(ids=1, decided=0, **facts))
    cluster.go(1)


@CASES.breaks(LoadsEnd, r"has loaded orders-0 in leader epoch \d+ up to 4; its high watermark is 3")
def groups_are_loaded_beyond_what_is_committed(cluster: Orders) -> None:
    cluster.only_leader_writes()
    loaded(cluster, 4)


@CASES.breaks(LoadsEnd, r"up to 4; its high watermark is 3")
def transactions_are_loaded_beyond_what_is_committed(cluster: Orders) -> None:
    cluster.only_leader_writes()
    loaded(cluster, 4, groups=False)


@CASES.breaks(LoadsEnd, r"up to 2; when it became the leader, the log ended at 3")
def not_all_is_loaded(cluster: Orders) -> None:
    leader = cluster.partition(cluster.leader).leader
    assert leader is not None
    leader.epoch_start_offset = 3
    loaded(cluster, 2)


@pytest.mark.parametrize(("checker", "violate", "words"), CASES, ids=CASES.ids)
def test_a_violation_is_found(
    make: Callable[..., Orders], checker: CheckerFactory, violate: Callable[[Orders], Any], words: str
) -> None:
    assert_found(make(checker), checker, violate, words)


def test_what_is_committed_may_be_loaded_and_who_leads_no_more_is_not_judged(make: Callable[..., Orders]) -> None:
    cluster = make(LoadsEnd)
    loaded(cluster, 3)
    loaded(cluster, 3, groups=False)
    loaded(cluster, 9, epoch=77)
