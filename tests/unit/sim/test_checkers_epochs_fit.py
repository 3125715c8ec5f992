"""The checker of what replicas know of leader epochs finds a log that knows others than it has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kraftlite.sim.checkers.base import CheckerFactory
from kraftlite.sim.checkers.epochs_fit import EpochsFit
from tests.harness.orders_cluster import Orders, orders
from tests.harness.violations import Cases, assert_found

CASES: Cases[Orders] = Cases()


@pytest.fixture
def make() -> Iterator[Callable[..., Orders]]:
    with orders() as start:
        yield start


@CASES.breaks(EpochsFit, r"has \[0,1\)@0 .* and knows the epochs \(\(0, 3\),\)")
def an_epoch_that_begins_behind_its_first_batch(cluster: Orders) -> None:
    epochs = cluster.log(cluster.follower)._ctx.epochs
    epochs.clear()
    epochs.assign(0, 3)
    cluster.produce()
    cluster.go(1_000)


@CASES.breaks(EpochsFit, r"knows the epochs \(\(0, 0\), \(1, 9\)\), and its log ends at [34]")
def an_epoch_beyond_the_end(cluster: Orders) -> None:
    cluster.log(cluster.leader)._ctx.epochs.assign(1, 9)
    cluster.views[cluster.leader.node_id].dirty = True
    cluster.go(1_000)


@CASES.breaks(EpochsFit, r"knows the epochs \(\(0, 0\), \(1, 2\)\), and its log ends at 2")
def an_epoch_that_a_truncation_leaves_at_the_end(cluster: Orders) -> None:
    log = cluster.log(cluster.follower)
    log.truncate_to(2, allow_below_hw=True)
    log._ctx.epochs.assign(1, 2)
    cluster.go(1_000)


@pytest.mark.parametrize(("checker", "violate", "words"), CASES, ids=CASES.ids)
def test_what_a_log_knows_wrongly_is_found(
    make: Callable[..., Orders], checker: CheckerFactory, violate: Callable[[Orders], Any], words: str
) -> None:
    assert_found(make(checker), checker, violate, words)


def test_a_change_of_leaders_and_records_of_the_next_are_right(make: Callable[..., Orders]) -> None:
    cluster = make(EpochsFit)
    cluster.kill_leader()
    cluster.go(3_000)
    cluster.produce()
    cluster.go(1_000)
    assert cluster.log(cluster.leader).epoch_entries[-1][0] > 0
