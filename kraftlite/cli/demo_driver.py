"""The driver of the demonstration's queries that is killed, and how it is caught in the middle of a batch.

It is a process of its own with a Spark of its own (`kraftlite.spark.jobs.flights_driver`). When it is killed, what its tasks have
written is in transactions that nobody has decided or that nobody has ended, for the next driver to deal with.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kraftlite.client.cluster import ClusterClient
from kraftlite.client.errors import ClientError
from kraftlite.exactly_once.listing import Stage, open_stages
from kraftlite.exactly_once.records import DEFAULT_PREFIX
from kraftlite.local.client import cluster_at
from kraftlite.local.state import LocalError
from kraftlite.spark.jobs.flights_driver import AGGREGATE, NAMES, TRIGGER, Queries

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CAUGHT_S: Final = 180.0
"""The longest time in which the driver is to be caught with transactions open."""
LOOK_EVERY_S: Final = 0.03
OnRows = Callable[[str, int], None]


class FirstDriver:
    """Both queries in another process, which ends when this one does. `on_rows` is told the rows of each job, by a thread."""

    def __init__(self, queries: Queries, log: Path, on_rows: OnRows) -> None:
        self.batches: dict[str, int] = {}
        """The batches that each job has done."""
        self._queries, self._log, self._on_rows = queries, log, on_rows
        it = queries
        command = [
            sys.executable,
            "-m",
            "kraftlite.spark.jobs.flights_driver",
            it.bootstrap,
            it.topic,
            it.results,
            str(it.directory),
        ]
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
            )
        threading.Thread(target=self._read, name="driver-progress", daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                found = json.loads(line)
                name, batches, rows = str(found["job"]), int(found["batches"]), int(found["rows"])
            except (ValueError, KeyError, TypeError):
                continue  # Spark and Java print what they like
            self.batches[name] = batches
            self._on_rows(name, rows)

    def check(self) -> None:
        """Raises LocalError when it has ended by itself."""
        if self._process.poll() is not None:
            raise LocalError(f"the driver ended by itself: see {self._log}")

    def kill_in_a_batch(self) -> list[Stage]:
        """Kill it where tasks of the aggregates have written and their transactions are open. Return these. Raises LocalError."""
        give_up = time.monotonic() + CAUGHT_S
        with cluster_at(self._queries.bootstrap) as cluster:
            while time.monotonic() < give_up:
                self.check()
                if self._open(cluster):
                    self._signal(signal.SIGSTOP)
                    found = self._open(cluster)
                    if found:
                        self.kill()
                        return found
                    self._signal(signal.SIGCONT)
                time.sleep(LOOK_EVERY_S)
        raise LocalError(f"the driver was not caught in the middle of a batch within {CAUGHT_S:.0f} s")

    def _open(self, cluster: ClusterClient) -> list[Stage]:
        query = self._queries.query_id(AGGREGATE)
        if query is None:
            return []
        try:
            return [stage for stage in open_stages(cluster, [DEFAULT_PREFIX]) if stage.query == query]
        except ClientError:
            return []  # brokers die meanwhile

    def kill(self) -> None:
        """End it with all that it has started (SIGKILL), if it is not over yet."""
        if self._process.poll() is None:
            self._signal(signal.SIGKILL)
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()

    def _signal(self, number: signal.Signals) -> None:
        for pid in _of_session(self.pid):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue


class Job(threading.Thread):
    """A thread whose error is another's to raise."""

    error: BaseException | None = None

    def run(self) -> None:
        try:
            super().run()
        except BaseException as error:
            self.error = error
            if not isinstance(error, Exception):
                raise


class Drivers:
    """The driver that is killed, and the session in this process that goes on where it was."""

    def __init__(self, queries: Queries, log: Path) -> None:
        self.left_open: list[Stage] = []
        """The transactions that were open when the driver was killed."""
        self.killed_in = -1
        """The batch in which it was killed."""
        self.seconds: dict[str, float] = {}
        """The time that each query took in the session that went on."""
        self._queries, self._log = queries, log
        self._first: FirstDriver | None = None
        self._spark: SparkSession | None = None

    def spark(self) -> SparkSession:
        from kraftlite.spark.session import session

        if self._spark is None:
            self._spark = session("job", master="local[2]", app="kraftlite pipeline demo", log_level="OFF")
        return self._spark

    def run(self, over: Callable[[], bool], say: Callable[[str], None], on_rows: Callable[[str, int], None]) -> None:
        """Run both queries in one driver, kill it, and run them in another until everything is read. Raises what they raise."""
        first = self._first = FirstDriver(self._queries, self._log, on_rows)
        say(f"started a driver of both queries, process {first.pid}")
        while not first.batches.get(AGGREGATE):
            first.check()
            time.sleep(0.05)
        spark = self.spark()  # ready before the other one dies
        self.left_open = first.kill_in_a_batch()
        self.killed_in = self._queries.planned(AGGREGATE)
        say(f"killed the driver (SIGKILL) in batch {self.killed_in}, with {len(self.left_open)} transactions open")
        jobs = [Job(target=self._go_on, args=(spark, name, over, on_rows), name=name, daemon=True) for name in NAMES]
        for job in jobs:
            job.start()
        say("another driver goes on where it was")
        while any(job.is_alive() for job in jobs) and not any(job.error for job in jobs):
            time.sleep(0.1)
        for job in jobs:
            if job.error is not None:
                raise job.error

    def _go_on(self, spark: SparkSession, name: str, over: Callable[[], bool], on_rows: Callable[[str, int], None]) -> None:
        """First beside the producer and the failures, then until the topic is read."""
        began = time.monotonic()
        for trigger, stop in ((TRIGGER, over), ("available-now", None)):
            before = self._queries.committed_rows(name)

            def note(found: Any, before: int = before) -> None:
                on_rows(name, before + found.rows)

            self._queries.run(spark, name, trigger=trigger, stop=stop, on_progress=note)
        self.seconds[name] = time.monotonic() - began

    def end(self) -> None:
        if self._first is not None:
            self._first.kill()
        if self._spark is not None:
            self._spark.stop()


def _of_session(leader: int) -> list[int]:
    """The processes of a session: where /proc tells, also those of Spark that have groups of their own."""
    found = [leader]
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == leader and int(stat.parent.name) != leader:
            found.append(int(stat.parent.name))
    return found
