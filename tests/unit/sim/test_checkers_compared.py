"""The checkers of what a controller keeps, and of two ways to one answer, fail when they must, and not where all is well."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kraftlite.log import scan
from kraftlite.log.batch import Record, build_batch
from kraftlite.log.config import LogConfig
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.sim.checkers.base import CheckerFactory, Violation
from kraftlite.sim.checkers.past_forgotten import PastForgotten
from kraftlite.sim.checkers.records_shown import RecordsShown
from kraftlite.sim.checkers.two_scanners import TwoScanners
from kraftlite.sim.service import ProduceAsk
from tests.harness.orders_cluster import Orders, orders
from tests.harness.violations import Cases, assert_found

CASES: Cases[Orders] = Cases()


@CASES.breaks(PastForgotten, "is stable")
def a_controller_remembers_all(cluster: Orders) -> None:
    registry: Any = cluster.controller().state.registry
    registry.delete_snapshots_up_to = lambda epoch: None
    cluster.produce()
    cluster.create_topic("another")
    cluster.go(3_000)


@CASES.breaks(PastForgotten, "and never will")
def a_standby_can_go_back(cluster: Orders) -> None:
    core = cluster.controller()
    core.claim_epoch = None
    cluster.at_end()


@CASES.breaks(RecordsShown, "without its last byte is read as")
def a_record_without_its_end_is_read(cluster: Orders) -> None:
    checker: Any = next(it for it in cluster.checkers if isinstance(it, RecordsShown))
    checker.facts = SimpleNamespace(serde=SimpleNamespace(decode=lambda data: data))
    checker._cut(object(), 8, b"value")


@pytest.mark.parametrize(("checker", "violate", "words"), CASES, ids=CASES.ids)
def test_a_violation_is_found(checker: CheckerFactory, violate: Callable[[Orders], Any], words: str) -> None:
    with orders() as start:
        assert_found(start(checker), checker, violate, words)


def test_a_cluster_that_is_well_is_compared_and_passes() -> None:
    with orders() as start:
        cluster = start(PastForgotten, RecordsShown, TwoScanners)
        cluster.go(2_000)
        cluster.at_end()
        judged = {type(it).__name__: it.judged for it in cluster.checkers if hasattr(it, "judged")}
        assert all(judged[it.__name__] for it in (PastForgotten, RecordsShown)), judged


class _Lying(scan.PythonScanner):
    """It finds too few records in every batch."""

    def finish(self) -> int:
        return scan.TOO_FEW


def test_scanners_that_differ_are_found() -> None:
    world: Any = SimpleNamespace(nodes={1: SimpleNamespace(now=None, boots=1)}, notes={}, cluster=SimpleNamespace())
    checker = TwoScanners(world)
    tp, good = TopicPartition("t", 0), bytes(build_batch([Record(None, b"v")], timestamp_ms=1))
    for batch in (good, b"no batch"):
        checker.judge(ProduceAsk(tp, -1, 0, batch), LogConfig(), 0)
    assert checker.judged == 2
    checker.other = _Lying
    with pytest.raises(Violation, match=f"{scan.IMPLEMENTATION} says"):
        checker.judge(ProduceAsk(tp, -1, 0, good), LogConfig(), 0)
