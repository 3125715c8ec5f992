"""A driver is killed at every point of a batch and started again: nothing is lost, nothing is there twice, for any reader.

The driver is stopped (SIGSTOP) when the files say that it may be at the point, looked at while it cannot move, and killed if it
is there, else it goes on. Every start is the next victim, so that there are as few of them as can be; this process is the last.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kraftlite.testing import SyncCluster
from tests.harness.spark_driver import run
from tests.harness.spark_runs import Sent, fill, numbered, values, values_of

pytestmark = [pytest.mark.spark]

ROOT = Path(__file__).parents[2]
LIMIT_S = 240.0
FRESH = 120
"""Records for each start, of two days: at least a batch."""
TRIES = 5
"""Of a point that a busy machine lets pass unseen."""


def last(log: Path) -> int:
    """The newest batch in one of Spark's logs of files; -1: none."""
    try:
        names = [it.name for it in log.iterdir()]
    except FileNotFoundError:
        return -1
    return max((int(it.split(".")[0]) for it in names if it.split(".")[0].isdigit()), default=-1)


@dataclass(frozen=True)
class State:
    """Of one query: whether it has begun, its newest planned and committed batch, and what there is of the planned one."""

    begun: bool
    planned: int
    committed: int
    staged: bool
    """Some data is there, which no reader is to see yet."""
    shown: bool
    """Some data is there for readers to see."""


def state(at: Path, query: str) -> State:
    checkpoint = at / f"{query}-checkpoint"
    begun = (checkpoint / "metadata").exists()
    planned, committed = last(checkpoint / "offsets"), last(checkpoint / "commits")
    if query == "sink":
        shown = last(at / "sink" / "_spark_metadata") >= planned >= 0
        return State(begun, planned, committed, files(at / "sink", "part-") > recorded(at / "sink" / "_spark_metadata"), shown)
    out = at / "lake"
    staged = (out / "_staging" / f"{planned:08d}").exists()
    return State(begun, planned, committed, staged, any(files(it, f"part-{planned:08d}-") for it in out.glob("event_date=*")))


def files(directory: Path, prefix: str) -> int:
    return sum(it.name.startswith(prefix) for it in directory.iterdir()) if directory.exists() else 0


def recorded(log: Path) -> int:
    """How many files Spark's sink has committed."""
    newest = list(log.glob("[0-9]*")) if log.exists() else []
    return len({line for it in newest for line in it.read_text().splitlines() if line.startswith("{")})


Point = Callable[[State], bool]
BEFORE_OFFSETS: Point = lambda it: it.begun and it.planned < 0  # noqa: E731
PLANNED: Point = lambda it: it.planned > it.committed and not it.staged and not it.shown  # noqa: E731
STAGED: Point = lambda it: it.planned > it.committed and it.staged and not it.shown  # noqa: E731
SHOWN: Point = lambda it: it.planned > it.committed and it.shown  # noqa: E731
COMMITTED: Point = lambda it: it.planned == it.committed  # noqa: E731


class Driver:
    """A process, its JVM and their workers: all that belong to the session of the process."""

    def __init__(self, cluster: SyncCluster, topic: str, at: Path, which: str) -> None:
        command = [sys.executable, "-m", "tests.harness.spark_driver", cluster.bootstrap_servers, topic, str(at), which]
        self._log = (at / "driver.log").open("ab")
        self.process = subprocess.Popen(command, cwd=ROOT, start_new_session=True, stdout=self._log, stderr=self._log)

    def pids(self) -> list[int]:
        found = []
        for it in Path("/proc").iterdir():
            if it.name.isdigit():
                try:
                    fields = (it / "stat").read_text().rpartition(")")[2].split()
                except OSError:
                    continue
                if int(fields[3]) == self.process.pid and fields[0] != "Z":
                    found.append(int(it.name))
        return found

    def signal(self, number: int) -> None:
        for pid in self.pids():
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue

    def kill(self) -> None:
        deadline = time.monotonic() + LIMIT_S
        while self.pids():
            assert time.monotonic() < deadline
            self.signal(signal.SIGKILL)
            self.process.poll()
        self.process.wait()
        self._log.close()


def kill_at(driver: Driver, at: Path, query: str, point: Point, first: int) -> State | None:
    """Kill it at the point, in a batch from `first` on. The state that the files were left in; None: it was past all that was
    there before anybody saw it at the point, where it is for some milliseconds."""
    deadline = time.monotonic() + LIMIT_S

    def there(it: State) -> bool:
        return it.planned >= first and point(it)

    while True:
        if driver.process.poll() is not None:
            assert driver.process.returncode == 0
            return None
        assert time.monotonic() < deadline, f"{query} never got there: {state(at, query)}"
        if there(state(at, query)):
            driver.signal(signal.SIGSTOP)
            found = state(at, query)
            if there(found):
                driver.kill()
                assert state(at, query) == found
                return found
            driver.signal(signal.SIGCONT)
        time.sleep(0.001)


def on_two_days(it: Sent) -> Sent:
    return it._replace(timestamp_ms=(it.timestamp_ms or 0) // 2 * 2 + it.partition % 2 * 86_400_000)


@pytest.fixture
def drivers() -> Iterator[list[Driver]]:
    found: list[Driver] = []
    yield found
    for it in found:
        it.kill()


SHORT = [
    ("sink", BEFORE_OFFSETS, -1),
    ("sink", PLANNED, 0),
    ("lake", STAGED, 0),
    ("lake", SHOWN, 1),
    ("sink", COMMITTED, 1),
]
OTHERS = [("lake", BEFORE_OFFSETS, -1), ("lake", PLANNED, 0), ("sink", STAGED, 0), ("sink", SHOWN, 1), ("lake", COMMITTED, 1)]


@pytest.mark.parametrize("plan", [SHORT, pytest.param(OTHERS, marks=pytest.mark.slow)], ids=["short", "others"])
def test_a_driver_that_is_killed_at_every_point_of_a_batch(
    spark: Any, cluster: SyncCluster, topic: str, tmp_path: Path, drivers: list[Driver], plan: list[tuple[str, Point, int]]
) -> None:
    import pyarrow.dataset as ds

    for query, point, least in plan:
        for _ in range(1 if least < 0 else TRIES):
            fill(cluster, topic, [on_two_days(it) for it in numbered(FRESH, len(drivers) * FRESH)])
            drivers.append(Driver(cluster, topic, tmp_path, query))
            committed = state(tmp_path, query).committed
            if kill_at(drivers[-1], tmp_path, query, point, max(least, committed + 1) if least >= 0 else -1) is not None:
                break
        else:
            pytest.fail(f"{query} was never seen at the point: {state(tmp_path, query)}")
    for query in ("sink", "lake"):
        run(spark, cluster.bootstrap_servers, topic, tmp_path, query)
    wanted = values(range(FRESH * len(drivers)))
    assert values_of(spark.read.parquet(str(tmp_path / "sink"))) == wanted
    assert values_of(spark.read.parquet(str(tmp_path / "lake"))) == wanted
    lake = ds.dataset(str(tmp_path / "lake"), format="parquet", partitioning="hive").to_table(columns=["value"])
    assert sorted((it.decode() for it in lake.column("value").to_pylist()), key=lambda it: int(it[1:])) == wanted
    assert not list((tmp_path / "lake" / "_staging").glob("*")), "nothing is left over"
