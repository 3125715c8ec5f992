"""The sink that writes exactly once, killed where it matters most (SX-03).

A driver runs in a process of its own and stands still at a marked point of the protocol, in a task or in the commit. There it is
killed: with all its processes, or all but the one that stands there, which goes on later as a zombie beside the next driver. What
readers of committed records see is compared with what was sent, and with what was decided.

The whole matrix, some minutes: `pytest -m slow tests/spark/test_sink_kills.py`.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from kraftlite.audit.sink import audit_sink
from kraftlite.client.cluster import ClusterClient
from kraftlite.client.kafka_client import client_for
from kraftlite.client.transactions import list_transactions
from kraftlite.exactly_once.listing import decisions
from kraftlite.exactly_once.records import STATE_TOPIC
from kraftlite.testing import SyncCluster
from tests.harness.exactly_once import Seen, committed, values
from tests.harness.halting import Point, give, halt_at, halted, points, run
from tests.harness.sink_drivers import ALL, LIMIT_S, ZOMBIE, Driver, send, until
from tests.spark.test_producing import settings_of

pytestmark = [pytest.mark.spark]

FRESH = 120
"""Rows for each start: a batch of three tasks."""


@pytest.fixture
def drivers() -> Iterator[list[Driver]]:
    found: list[Driver] = []
    yield found
    for it in found:
        it.kill()


@pytest.fixture
def out(cluster: SyncCluster, topic: str) -> str:
    cluster.create_topic(f"{topic}-out", 2, 3)
    return f"{topic}-out"


def check(cluster: SyncCluster, out: str, at: Path, rows: int) -> None:
    """Every row once, and everything that is visible was decided."""
    assert values(cluster.bootstrap_servers, out) == sorted(f"v{it}" for it in range(rows))
    query = json.loads((at / "checkpoint" / "metadata").read_text())["id"]
    report = audit_sink(client_for(settings_of(cluster).client), [out], STATE_TOPIC, query=query)
    assert (report.found, report.visible) == ((), rows)


def rows_of_the_first(cluster: SyncCluster, out: str, at: Path) -> list[str]:
    """The rows of the first task, as soon as readers see all that was decided of them. Nobody else's are seen. The tasks must
    have written one after the other: one that is still open and had begun before it hides what is behind its first row."""
    query = json.loads((at / "checkpoint" / "metadata").read_text())["id"]
    (decision,) = [it for it in decisions(client_for(settings_of(cluster).client), STATE_TOPIC) if it.query == query]
    first = decision.entries[0]

    def seen() -> list[Seen]:
        found = committed(cluster.bootstrap_servers, out)
        assert {it.stamp.split("/")[2] for it in found if it.stamp} <= {str(first.task)}
        return found if len(found) == first.rows else []

    return sorted((it.value or b"").decode() for it in until(f"{first.rows} rows of task {first.task}", seen))


DECIDED = Point("driver", "record", "after")
HALF = Point("driver", "end", "after")
SHORT = [(DECIDED, ZOMBIE), (HALF, ALL)]
MATRIX = [(point, how) for point in points(3) for how in (ALL, ZOMBIE)]
HEALING = [
    (HALF, ALL),
    (Point("driver", "fate", "before"), ALL),
    (Point("driver", "fate", "after", 2), ZOMBIE),
    (Point("driver", "record", "before"), ALL),
    (Point("driver", "record", "after"), ZOMBIE),
    (Point("driver", "end", "after", 2), ALL),
    (Point("driver", "commit", "after"), ALL),
]
"""Each of them in the batch that the one before it left, which is healed."""


@pytest.mark.parametrize(
    ("plan", "fresh"),
    [
        pytest.param(SHORT, True, id="short"),
        pytest.param(HEALING, False, id="healing", marks=pytest.mark.slow),
        *(
            pytest.param(MATRIX[at : at + 4], True, id=f"matrix-{at // 4}", marks=pytest.mark.slow)
            for at in range(0, len(MATRIX), 4)
        ),
    ],
)
def test_sx_03_a_driver_that_is_killed_at_marked_points(
    spark: Any,
    cluster: SyncCluster,
    out: str,
    tmp_path: Path,
    drivers: list[Driver],
    plan: list[tuple[Point, str]],
    fresh: bool,
) -> None:
    """Each start is the next victim; this process is the last. A zombie goes on when the next driver stands at its own point."""
    sent = 0
    for point, how in plan:
        if fresh or sent == 0:
            give(tmp_path, sent, FRESH)
            sent += FRESH
        drivers.append(Driver(cluster.bootstrap_servers, out, tmp_path, point))
        drivers[-1].until_halted()
        for earlier in drivers[:-1]:
            earlier.awake()
        drivers[-1].kill(how)
    halt_at(tmp_path, None)
    run(spark, cluster.bootstrap_servers, out, tmp_path)
    for it in drivers:
        it.awake()
    check(cluster, out, tmp_path, sent)


def test_sx_03_a_task_whose_driver_was_killed_wakes_behind_the_commit(
    spark: Any, cluster: SyncCluster, out: str, tmp_path: Path, drivers: list[Driver]
) -> None:
    """It has read its rows, and opens no transaction that nobody would end: readers get on."""
    give(tmp_path, 0, FRESH)
    drivers.append(Driver(cluster.bootstrap_servers, out, tmp_path, Point("task", "take_over", "before")))
    drivers[-1].until_halted()
    drivers[-1].kill(ZOMBIE)
    halt_at(tmp_path, None)
    run(spark, cluster.bootstrap_servers, out, tmp_path)
    drivers[-1].awake()
    query = json.loads((tmp_path / "checkpoint" / "metadata").read_text())["id"]
    with ClusterClient(settings_of(cluster).client) as client:
        found = list_transactions(client, states=("Ongoing",))
    assert [it.transactional_id for it in found if query in it.transactional_id] == []
    check(cluster, out, tmp_path, FRESH)


def test_sx_03_two_drivers_on_one_checkpoint(
    spark: Any, cluster: SyncCluster, out: str, tmp_path: Path, drivers: list[Driver]
) -> None:
    """The one stands still before it ends its transactions; the other one runs the same batch; then the first goes on."""
    give(tmp_path, 0, FRESH)
    drivers.append(Driver(cluster.bootstrap_servers, out, tmp_path, Point("driver", "end", "before")))
    drivers[-1].until_halted()
    first, pid = drivers[-1], halted(tmp_path)
    assert pid is not None
    halt_at(tmp_path, None)
    run(spark, cluster.bootstrap_servers, out, tmp_path)
    check(cluster, out, tmp_path, FRESH)
    send(pid, signal.SIGCONT)
    assert first.process.wait(LIMIT_S) != 0, "it did not notice that it is not alone"
    assert "cannot be committed any more" in (tmp_path / "driver.log").read_text()
    check(cluster, out, tmp_path, FRESH)


def test_sx_03_the_split_changed_in_a_batch_that_is_partly_visible(
    spark: Any, cluster: SyncCluster, out: str, tmp_path: Path, drivers: list[Driver]
) -> None:
    """It is refused in words, as often as it is tried, and nothing is written; the old options complete the batch."""
    give(tmp_path, 0, FRESH)
    drivers.append(Driver(cluster.bootstrap_servers, out, tmp_path, HALF, master="local[1]"))
    drivers[-1].until_halted()
    drivers[-1].kill()
    halt_at(tmp_path, None)
    before = rows_of_the_first(cluster, out, tmp_path)
    assert 0 < len(before) < FRESH
    for _ in range(2):
        with pytest.raises(Exception, match="is at least partly written, and its rows are others now, or split"):
            run(spark, cluster.bootstrap_servers, out, tmp_path, tasks=5)
        assert values(cluster.bootstrap_servers, out) == before
    run(spark, cluster.bootstrap_servers, out, tmp_path)
    check(cluster, out, tmp_path, FRESH)
    give(tmp_path, FRESH, FRESH)
    run(spark, cluster.bootstrap_servers, out, tmp_path, tasks=5)
    check(cluster, out, tmp_path, 2 * FRESH)
