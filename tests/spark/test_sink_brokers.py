"""Brokers, coordinators and the controller killed while the exactly-once sink stands at a marked point (SX-03, rows 6 to 13).

One driver goes through its batches. At each it stands still at a point of the protocol, there a node of the cluster is killed, or
only the process that stands there, and the batch goes on without it. The node comes back when the next batch has got to its
point. Streams, and batches with a name.

Every point with every victim: `pytest -m slow tests/spark/test_sink_brokers.py`, some minutes.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from kraftlite.exactly_once.records import DECISIONS_PARTITION, DEFAULT_PREFIX, STATE_TOPIC, driver_id, task_id
from kraftlite.testing import SyncCluster
from tests.harness.cluster import wait_for
from tests.harness.exactly_once import values
from tests.harness.halting import Point, give, halt_at, points
from tests.harness.sink_drivers import Driver, check_decided, queries_of, send
from tests.harness.spark_runs import run_all_again

pytestmark = [pytest.mark.spark]

FRESH = 60
"""Rows of each batch."""
PROCESS = "process"
"""The victim is the process that stands at the point: Spark's of a task, or of the commit."""
Step = tuple[Point, str]


def _leader(topic: str, partition: int) -> Callable[[SyncCluster, str, str], int | None]:
    return lambda cluster, out, query: cluster.leader(topic or out, partition)


VICTIMS: dict[str, Callable[[SyncCluster, str, str], int | None]] = {
    "rows": _leader("", 0),
    "decisions": _leader(STATE_TOPIC, DECISIONS_PARTITION),
    "the driver's coordinator": lambda cluster, out, query: cluster.transaction_coordinator(driver_id(DEFAULT_PREFIX, query)),
    "a task's coordinator": lambda cluster, out, query: cluster.transaction_coordinator(task_id(DEFAULT_PREFIX, query, 0)),
    "the controller": lambda cluster, out, query: cluster.controller(),
}
POINTS = points(2)
HALF = Point("driver", "end", "after")
HEALING = [
    Point("driver", method, when, call)
    for method, call in (("fate", 1), ("fate", 2), ("fate", 3), ("record", 1), ("end", 1), ("end", 3))
    for when in ("before", "after")
]
"""In a batch of which one of three tasks was committed before its driver's process died. The tasks that run again have taken
over the ids of the others, so that the driver finds none of their transactions open. The last end is of the copy that is not
needed."""
BIRTH = Point("task", "mark", "before")
"""In the first batch, where nothing is known of the query yet."""


def whole(victim: str) -> list[list[Step]]:
    """The steps of each batch: all points, and all of healing."""
    return [[(BIRTH, PROCESS)], *([(point, victim)] for point in POINTS), *([(HALF, PROCESS), (it, victim)] for it in HEALING)]


SHORT: list[list[Step]] = [
    [(BIRTH, PROCESS)],
    [(HALF, PROCESS), (Point("driver", "fate", "before"), "decisions")],
    [(Point("driver", "record", "after"), "the driver's coordinator")],
    [(Point("task", "take_over", "after"), "rows")],
]


@pytest.mark.parametrize(
    ("kind", "plan"),
    [
        pytest.param("batch", SHORT, id="short"),
        *(
            pytest.param(kind, whole(victim), id=f"{kind}-{victim}", marks=pytest.mark.slow)
            for kind in ("stream", "batch")
            for victim in (PROCESS, *VICTIMS)
        ),
    ],
)
def test_sx_03_nodes_that_are_killed_at_marked_points(
    faults: SyncCluster, topic: str, tmp_path: Path, kind: str, plan: Sequence[Sequence[Step]]
) -> None:
    cluster, out = faults, f"{topic}-out"
    cluster.create_topic(out, 2, 3)
    for batch in range(len(plan)):
        give(tmp_path, batch * FRESH, FRESH)
    steps = [(replace(point, batch=batch), victim) for batch, them in enumerate(plan) for point, victim in them]
    again = sum(victim == PROCESS for _, victim in steps) + 2 * len(steps)
    driver = Driver(cluster.bootstrap_servers, out, tmp_path, steps[0][0], kind=kind, again=again)
    try:
        for (point, victim), following in zip(steps, [*(point for point, _ in steps[1:]), None], strict=True):
            pid = driver.until_halted()
            run_all_again(cluster)
            halt_at(tmp_path, following)
            if victim == PROCESS:
                send(pid, signal.SIGKILL)
                continue
            query = queries_of(tmp_path, kind, out, point.batch + 1)[-1]
            chosen = partial(VICTIMS[victim], cluster, out, query)  # a busy machine may elect somebody just now
            cluster.kill(wait_for(chosen, f"somebody who is {victim}"))
            send(pid, signal.SIGCONT)
        driver.leave()
    finally:
        driver.kill()
    run_all_again(cluster)
    assert values(cluster.bootstrap_servers, out) == sorted(f"v{it}" for it in range(len(plan) * FRESH))
    check_decided(cluster.bootstrap_servers, out, queries_of(tmp_path, kind, out, len(plan)))
