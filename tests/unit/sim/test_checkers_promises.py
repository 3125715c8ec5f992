"""What a disk has promised is there after any end of its broker, or the checker says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kraftlite.log import checkpoints
from kraftlite.log.statements import Statement
from kraftlite.sim.checkers.base import CheckerFactory
from kraftlite.sim.checkers.catalog_replication import REPLICATION_AND_HISTORY
from kraftlite.sim.checkers.i36_promises_kept import PromisesKept
from tests.harness.orders_cluster import TP, Orders, orders
from tests.harness.violations import Cases, assert_found

CASES: Cases[Orders] = Cases()


@pytest.fixture
def make() -> Iterator[Callable[..., Orders]]:
    with orders() as start:
        yield start


@CASES.breaks(PromisesKept, r"a flush promises everything below offset 3, and a power cut would leave the log without \[0,1\)")
def a_flush_that_reached_no_disk(cluster: Orders) -> None:
    node = cluster.follower
    cluster.log(node)._ctx.recovery_point = 3
    cluster.kill(node.node_id)
    cluster.go(1)


@CASES.breaks(PromisesKept, "recovery-point-offset-checkpoint promises everything below offset 3")
def a_checkpoint_ahead_of_the_flush(cluster: Orders) -> None:
    node = cluster.follower
    checkpoints.write_offset_checkpoint(node.disk, f"/data/{checkpoints.RECOVERY_POINT_CHECKPOINT}", {TP: 3})
    cluster.kill(node.node_id)
    cluster.go(1)


@CASES.breaks(PromisesKept, "log-statements promises everything below offset 3")
def a_statement_ahead_of_the_flush(cluster: Orders) -> None:
    node = cluster.follower
    assert node.node is not None and node.node.broker is not None
    statements = node.node.broker.log_dirs._dirs[0].statements
    assert statements is not None
    statements.note({(cluster.key.topic_id, 0): Statement(0, 3, 0)})
    cluster.kill(node.node_id)
    cluster.go(1)


@CASES.breaks(PromisesKept, ".kafka_cleanshutdown promises everything below offset 3")
def a_clean_shutdown_that_flushed_nothing(cluster: Orders) -> None:
    node = cluster.follower
    checkpoints.write_clean_shutdown(node.disk, "/data", 1)
    cluster.kill(node.node_id)
    cluster.go(1)


@CASES.breaks(PromisesKept, "power: a flush promises everything below offset 3, and a power cut has left the log without")
def a_power_cut_that_takes_what_was_flushed(cluster: Orders) -> None:
    node = cluster.follower
    cluster.log(node)._ctx.recovery_point = 3
    node.power_cut()
    cluster.world.notes["power_losses"][node.node_id] = []
    cluster._tell(lambda it: it.on_death(node, "power"))
    cluster.go(1)


@CASES.breaks(PromisesKept, "ends at offset 0 when it is opened again; it ended at 3")
def a_start_that_finds_less_than_was_written(cluster: Orders) -> None:
    node = cluster.follower
    cluster.kill(node.node_id)
    node.disk.write_file_atomically("/data/orders-0/00000000000000000000.log", b"")
    cluster.boot(node.node_id)


def test_what_was_flushed_survives_a_power_cut_and_what_was_not_is_no_loss(make: Callable[..., Orders]) -> None:
    cluster = make(*REPLICATION_AND_HISTORY)
    node = cluster.follower
    assert cluster.do(cluster.log(node).flush()) == 3
    cluster.produce()
    cluster.until(lambda: cluster.log(node).leo == 4)
    cluster.world.notes["power_losses"][node.node_id] = node.power_cut()
    cluster._tell(lambda it: it.on_death(node, "power"))
    cluster.until(lambda: node.node_id not in cluster.isr)
    cluster.boot(node.node_id)
    cluster.until(lambda: node.node_id in cluster.isr)
    assert cluster.log(node).leo == 4


def test_a_replica_whose_files_were_damaged_has_promised_nothing(make: Callable[..., Orders]) -> None:
    cluster = make(PromisesKept)
    node = cluster.follower
    cluster.kill(node.node_id)
    cluster.world.losses.damaged.add((node.node_id, TP))
    node.disk.write_file_atomically("/data/orders-0/00000000000000000000.log", b"")
    cluster.boot(node.node_id)


@pytest.mark.parametrize(("checker", "violate", "words"), CASES, ids=CASES.ids)
def test_a_violation_is_found(
    make: Callable[..., Orders], checker: CheckerFactory, violate: Callable[[Orders], Any], words: str
) -> None:
    assert_found(make(checker), checker, violate, words)


def test_files_that_were_damaged_after_the_end_of_their_broker_promise_nothing_at_the_next_end(
    make: Callable[..., Orders],
) -> None:
    cluster = make(PromisesKept)
    node = cluster.follower
    assert cluster.do(cluster.log(node).flush()) == 3
    cluster.kill(node.node_id)
    node.disk.write_file_atomically("/data/orders-0/00000000000000000000.log", b"")
    cluster.world.losses.damaged.add((node.node_id, TP))
    cluster._tell(lambda it: it.on_death(node, "power"))  # of an incarnation that opened no log
    cluster.go(1)
