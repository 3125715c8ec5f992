"""The checkers of what followers and leaders tell each other fail when they must."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kraftlite.runtime.trace.partition import FetchPaused
from kraftlite.sim.checkers.base import CheckerFactory
from kraftlite.sim.checkers.fetches_fit import FetchesFit
from tests.harness.orders_cluster import TP, Orders, orders
from tests.harness.violations import Cases, assert_found

CASES: Cases[Orders] = Cases()


@CASES.breaks(FetchesFit, r"node \d refuses what node \d gave it of orders-0")
def a_follower_that_gets_what_it_has_not_asked_for(cluster: Orders) -> None:
    tracer = cluster.log(cluster.follower)._ctx.tracer
    tracer.emit(FetchPaused(tp=TP, leader_id=cluster.leader.node_id, error="INVALID_RECORD", delay_ms=1_000))
    cluster.go(1)


@pytest.mark.parametrize(("checker", "violate", "words"), CASES, ids=CASES.ids)
def test_a_violation_is_found(checker: CheckerFactory, violate: Callable[[Orders], Any], words: str) -> None:
    with orders() as start:
        assert_found(start(checker), checker, violate, words)
