"""A statement of records that were cut off is found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kraftlite.sim.checkers.base import CheckerFactory
from kraftlite.sim.checkers.statements_hold import StatementsHold
from tests.harness.orders_cluster import Orders, orders
from tests.harness.violations import Cases, assert_found

CASES: Cases[Orders] = Cases()


@CASES.breaks(StatementsHold, r"was cut, its segments begin at \(0,\), and it ends at 1; a power cut would leave the statement")
def a_statement_of_what_was_cut_off(cluster: Orders) -> None:
    node, log = cluster.follower.node, cluster.log(cluster.follower)
    assert node is not None and node.broker is not None
    log.flush_sync()
    node.broker.log_dirs.write_recovery_points()
    (state,) = node.broker.log_dirs._dirs
    assert state.statements is not None
    state.statements.sync = lambda: None  # type: ignore[method-assign]
    log.truncate_to(1, allow_below_hw=True)
    cluster.go(1_000)


@pytest.mark.parametrize(("checker", "violate", "words"), CASES, ids=CASES.ids)
def test_a_violation_is_found(checker: CheckerFactory, violate: Callable[[Orders], Any], words: str) -> None:
    with orders() as start:
        assert_found(start(checker), checker, violate, words)
