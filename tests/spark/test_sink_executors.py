"""The exactly-once sink on executors: slow tasks with a twin, executors that are lost or come back as zombies, and stages that
run again (SX-03, rows 1 to 4).

A Spark of one master and two workers, which are hosts of their own as far as Spark knows. A task stands still at a marked point
of the protocol, is left there, killed, or its whole executor is, and goes on when another attempt of it has been committed. Every
test goes through its batches with one driver, and at last a reader of committed records sees every row once.

All points: `pytest -m slow tests/spark/test_sink_executors.py`, some minutes.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("pyspark")

from kraftlite.testing import SyncCluster
from tests.harness.exactly_once import values
from tests.harness.halting import Point, give, halt_at
from tests.harness.sink_drivers import Driver, SparkCluster, check_decided, is_gone, queries_of, send, spark_cluster, until

pytestmark = [pytest.mark.spark]

FRESH = 120
"""Rows of each batch."""
AGAIN = 6
HEAD_START_S = 2.0
"""The time that the worker of a zombie has for itself. A stage takes a tenth of it."""
TWINS = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "1s",
}


class Scene(NamedTuple):
    """One batch: the process that stands at its point, its attempt of a task, and all that the deed needs. `following`: the point
    of the next batch."""

    driver: Driver
    spark: SparkCluster
    batch: int
    following: Point | None
    pid: int
    attempt: dict[str, Any]

    def others(self) -> list[dict[str, Any]]:
        """The attempts of the same task that have ended well, but for this one."""
        there = [it for it in self.driver.attempts(self.batch) if it["task"] == self.attempt["task"] and it["ended"]]
        return [it for it in there if it["id"] != self.attempt["id"]]

    def another_ends(self) -> None:
        until("another attempt of the task has ended", self.others, self.driver.tail)

    def goes_on(self) -> None:
        """As a zombie, behind the commit of the batch."""
        self.driver.until_committed(self.batch)
        send(self.pid, signal.SIGCONT)


Deed = Callable[[Scene], None]


def twin_wins(it: Scene) -> None:
    """The slow attempt wakes when the batch is committed with its twin: fenced, or too late to begin."""
    it.another_ends()
    it.goes_on()


def twin_comes_too_late(it: Scene) -> None:
    """The slow one reports what it has staged when its twin has fenced it and stands still: the batch fails, and runs again."""
    failed = len(it.driver.failures)
    halt_at(it.driver.at, Point("task", "mark", "before", batch=it.batch, attempt=1))
    twin = it.driver.until_halted()
    assert twin != it.pid
    halt_at(it.driver.at, it.following)
    send(it.pid, signal.SIGCONT)
    until("the batch fails", lambda: len(it.driver.failures) > failed, it.driver.tail)
    assert "cannot be committed any more" in it.driver.failures[failed]
    it.driver.until_committed(it.batch)
    send(twin, signal.SIGCONT)


def python_dies(it: Scene) -> None:
    send(it.pid, signal.SIGKILL)
    it.another_ends()


def executor_dies(it: Scene) -> None:
    for pid in it.spark.executor_of(it.pid):
        send(pid, signal.SIGKILL)
    it.another_ends()


def executor_is_a_zombie(it: Scene) -> None:
    """It stands still until Spark takes it for dead, and goes on when the batch is committed without it: at first the worker that
    has the task, which may do what it likes until the executor hears that it is lost."""
    family = it.spark.executor_of(it.pid)
    for pid in family:
        send(pid, signal.SIGSTOP)
    it.another_ends()
    it.driver.until_committed(it.batch)
    send(it.pid, signal.SIGCONT)
    time.sleep(HEAD_START_S)
    for pid in family:
        send(pid, signal.SIGCONT)
    until("the zombie has ended", lambda: is_gone(it.pid), it.driver.tail)


def stage_runs_again(it: Scene) -> None:
    """The other executor dies, with rows that were shuffled: tasks that come after that do not find them."""
    own = it.spark.executor_of(it.pid)
    others = [family for family in it.spark.executors() if family[0] != own[0]]
    assert others, "all tasks run in one executor"
    for pid in (pid for family in others for pid in family):
        send(pid, signal.SIGKILL)
    send(it.pid, signal.SIGCONT)
    it.driver.until_committed(it.batch)


def under_way(driver: Driver, batch: int, pid: int) -> dict[str, Any]:
    """The attempt that a process is at."""
    found = driver.attempts(batch)
    ended = {it["id"] for it in found if it["ended"]}
    return next(it for it in found if it["pid"] == pid and it["id"] not in ended)


STAGED = Point("task", "write", "after")
POINTS = [Point("task", method, when) for method in ("write", "take_over", "mark") for when in ("before", "after")]
LOST = [(point, deed) for deed in (python_dies, executor_dies) for point in POINTS]
ZOMBIES = [(point, executor_is_a_zombie) for point in POINTS]
SLOW_ONES = [(point, twin_wins) for point in POINTS] + [(STAGED, twin_comes_too_late)]
AGAIN_STAGES = [(Point("task", "write", "before"), stage_runs_again), (Point("task", "take_over", "after"), stage_runs_again)]


@pytest.fixture(scope="module")
def spark_nodes() -> Iterator[SparkCluster]:
    with spark_cluster() as found:
        yield found


@pytest.mark.parametrize(
    ("kind", "plan", "config"),
    [
        pytest.param("stream", [(STAGED, twin_wins), (STAGED, twin_comes_too_late)], TWINS, id="short", marks=pytest.mark.slow),
        *(
            pytest.param(kind, plan, config, id=f"{name}-{kind}", marks=pytest.mark.slow)
            for kind in ("stream", "batch")
            for name, plan, config in (
                ("twins", SLOW_ONES, TWINS),
                ("lost", LOST, {}),
                ("zombies", ZOMBIES, {}),
                ("stages", AGAIN_STAGES, {}),
            )
        ),
    ],
)
def test_sx_03_tasks_on_executors(
    cluster: SyncCluster,
    topic: str,
    spark_nodes: SparkCluster,
    tmp_path: Path,
    kind: str,
    plan: list[tuple[Point, Deed]],
    config: dict[str, str],
) -> None:
    out = f"{topic}-out"
    cluster.create_topic(out, 2, 3)
    points = [replace(point, batch=batch) for batch, (point, _) in enumerate(plan)]
    for batch in range(len(plan)):
        give(tmp_path, batch * FRESH, FRESH)
    options = {"master": spark_nodes.master, "config": spark_nodes.config(config), "kind": kind, "again": AGAIN, "linger": True}
    driver = Driver(cluster.bootstrap_servers, out, tmp_path, points[0], **options)
    try:
        for batch, (_, deed) in enumerate(plan):
            following = points[batch + 1] if batch + 1 < len(points) else None
            pid = driver.until_halted()
            halt_at(tmp_path, following)
            deed(Scene(driver, spark_nodes, batch, following, pid, under_way(driver, batch, pid)))
        driver.until_finished()
        again = [driver.runs_again(batch) for batch, (_, deed) in enumerate(plan) if deed is stage_runs_again]
        assert all(again), f"how often stages have run again: {again}"
        driver.leave()
    finally:
        driver.kill()
    assert values(cluster.bootstrap_servers, out) == sorted(f"v{it}" for it in range(len(plan) * FRESH))
    check_decided(cluster.bootstrap_servers, out, queries_of(tmp_path, kind, out, len(plan)))
