"""Drivers of the exactly-once sink that are processes of their own, and a Spark with executors, to be killed where they stand."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from kraftlite.audit.sink import audit_sink
from kraftlite.client.kafka_client import KafkaClient
from kraftlite.client.settings import ClientSettings
from kraftlite.exactly_once.records import STATE_TOPIC
from kraftlite.local.ports import reserve
from tests.harness.halting import FAILURES, FINISHED, LEAVE, Point, halt_at, halted, notes

ROOT = Path(__file__).parents[2]
LIMIT_S = 240.0
"""For a start of Spark on a machine with a load of many times its cores."""
ALL, ZOMBIE = "all", "zombie"


def until(what: str, check: Callable[[], Any], told: Callable[[], str] = str) -> Any:
    """What is found, as soon as there is something."""
    deadline = time.monotonic() + LIMIT_S
    while not (found := check()):
        assert time.monotonic() < deadline, f"never seen: {what}; {told()}"
        time.sleep(0.05)
    return found


class Driver:
    """A process, its JVM and their workers. `options`: as tests/harness/halting.py takes them."""

    def __init__(self, bootstrap: str, out: str, at: Path, point: Point | None, **options: Any) -> None:
        halt_at(at, point)
        for name in (FINISHED, LEAVE):
            (at / name).unlink(missing_ok=True)
        self.at = at
        command = [sys.executable, "-m", "tests.harness.halting", bootstrap, out, str(at), json.dumps(options)]
        self._log = (at / "driver.log").open("ab")
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=environment(), start_new_session=True, stdout=self._log, stderr=self._log
        )
        self.zombie: int | None = None

    def until_halted(self) -> int:
        """The process that stands at the point, and does not move any more."""

        def there() -> int | None:
            ended = self.process.poll()
            assert ended is None, f"it came to its end ({ended}), and never stood there: {self.tail()}"
            pid = halted(self.at)
            return pid if pid is not None and state_of(pid) == "T" else None

        return int(until("the point is reached", there, self.tail))

    def until_finished(self) -> None:
        """All is committed; with `linger` the driver is there yet."""

        def finished() -> bool:
            assert self.process.poll() in (None, 0), f"it failed: {self.tail()}"
            return (self.at / FINISHED).exists()

        until("the driver has done everything", finished, self.tail)

    def runs_again(self, batch: int) -> int:
        """How often the stage of a batch that writes has run again. When all is done."""
        stages = json.loads((self.at / FINISHED).read_text())
        return max(int(stages[str(it["stage"])]) for it in self.attempts(batch))

    def leave(self) -> None:
        """Let it end in order."""
        self.until_finished()
        (self.at / LEAVE).touch()
        until("the driver has ended", lambda: self.process.poll() is not None, self.tail)
        assert self.process.returncode == 0, self.tail()

    def tail(self) -> str:
        return (self.at / "driver.log").read_text()[-2_000:]

    @property
    def failures(self) -> list[str]:
        """The errors with which the query or a job has failed, and was begun again."""
        with suppress(FileNotFoundError):
            return (self.at / FAILURES).read_text().split("\n--\n")[:-1]
        return []

    def attempts(self, batch: int) -> list[dict[str, Any]]:
        """Of tasks, in the order in which they began and ended."""
        return [it for it in notes(self.at) if it["batch"] == batch and "task" in it]

    def until_committed(self, batch: int) -> None:
        until("the batch is committed", lambda: {"batch": batch, "committed": True} in notes(self.at), self.tail)

    def kill(self, how: str = ALL) -> None:
        """All of it; with ZOMBIE, all but the process that stands at the point."""
        self.zombie = halted(self.at) if how == ZOMBIE else None
        deadline = time.monotonic() + LIMIT_S
        while left := [pid for pid in session_of(self.process.pid) if pid != self.zombie]:
            assert time.monotonic() < deadline
            for pid in left:
                send(pid, signal.SIGKILL)
            self.process.poll()
        self.process.wait()
        self._log.close()

    def awake(self) -> None:
        """Let the zombie go on, and wait for its end."""
        if self.zombie is None:
            return
        send(self.zombie, signal.SIGCONT)
        until("the zombie has ended", lambda: self.zombie not in session_of(self.process.pid))
        self.zombie = None


def queries_of(at: Path, kind: str, out: str, count: int) -> list[str]:
    """The names under which the first batches are written."""
    if kind == "batch":
        return [f"{out}-{number}" for number in range(count)]
    return [str(json.loads((at / "checkpoint" / "metadata").read_text())["id"])]


def check_decided(bootstrap: str, out: str, queries: Sequence[str]) -> None:
    """Everything that is visible of these queries was decided, and everything that was decided is visible."""
    client = KafkaClient(ClientSettings(bootstrap=tuple(bootstrap.split(",")), retry_backoff_ms=20))
    for query in queries:
        assert [it for it in audit_sink(client, [out], STATE_TOPIC, query=query).found if not it.is_note] == []
    client.close()


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}


def send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _fields(pid: int) -> list[str]:
    """State, parent, group, session and so on; none for a process that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def state_of(pid: int) -> str:
    """Z too when it is gone."""
    return next(iter(_fields(pid)), "Z")


def is_gone(pid: int) -> bool:
    return state_of(pid) in "ZX"


def _living() -> dict[int, list[str]]:
    found = {int(it.name): _fields(int(it.name)) for it in Path("/proc").glob("[0-9]*")}
    return {pid: fields for pid, fields in found.items() if fields and fields[0] not in "ZX"}


def session_of(leader: int) -> list[int]:
    """The living processes of a session."""
    return [pid for pid, fields in _living().items() if int(fields[3]) == leader]


class SparkCluster:
    """A master and two workers with one core each, on loopback addresses of their own: Spark gives the twin of a slow task, and a
    task that has failed there, to another host only."""

    def __init__(self, folder: Path) -> None:
        import pyspark

        (folder / ".starting").touch()  # the mark of a directory whose ports are taken
        port = reserve(folder, [27_077])[0]
        self.folder, self.master = folder, f"spark://127.0.0.1:{port}"
        self._home = Path(pyspark.__file__).parent
        self.processes = [self._start("master.Master", "127.0.0.1", "--port", str(port))]
        self.processes += [
            self._start("worker.Worker", host, "--cores", "1", "--memory", "1g", "--work-dir", str(folder / host), self.master)
            for host in ("127.0.0.2", "127.0.0.3")
        ]

    def _start(self, what: str, host: str, *more: str) -> subprocess.Popen[bytes]:
        command = [str(self._home / "bin" / "spark-class"), f"org.apache.spark.deploy.{what}"]
        command += ["--host", host, "--webui-port", "0", *more]
        own = {"SPARK_HOME": str(self._home), "SPARK_LOCAL_IP": host, "SPARK_DAEMON_MEMORY": "256m"}
        own["SPARK_DAEMON_JAVA_OPTS"] = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dspark.master.rest.enabled=false"
        with (self.folder / f"{host}.log").open("ab") as log:
            return subprocess.Popen(command, env={**environment(), **own}, start_new_session=True, stdout=log, stderr=log)

    def close(self) -> None:
        for it in self.processes:
            while left := session_of(it.pid):
                for pid in left:
                    send(pid, signal.SIGKILL)
                it.poll()
            it.wait()

    def config(self, more: Mapping[str, str]) -> dict[str, str]:
        """Of a driver: a short patience with executors that say nothing, and files that are cut into several tasks."""
        return {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
            "spark.executorEnv.PYTHONPATH": environment()["PYTHONPATH"],
            "spark.executor.heartbeatInterval": "1s",
            "spark.network.timeout": "12s",
            "spark.network.timeoutInterval": "2s",
            "spark.python.task.killTimeout": "10min",
            "spark.shuffle.io.maxRetries": "0",
            "spark.sql.files.maxPartitionBytes": "200",
            "spark.sql.files.openCostInBytes": "1",
            "spark.task.maxFailures": "8",
            **more,
        }

    def executor_of(self, pid: int) -> list[int]:
        """The executor that a process of Python belongs to, and all of its processes: the JVM is the first one."""
        living = _living()
        jvm = pid
        while "CoarseGrainedExecutorBackend" not in _command(jvm):
            jvm = int(living[jvm][1])
            assert jvm > 1, f"process {pid} belongs to no executor"
        return _family(jvm, living)

    def executors(self) -> list[list[int]]:
        """All that live, each with all its processes."""
        living = _living()
        sessions = {it.pid for it in self.processes}
        jvms = [pid for pid, it in living.items() if int(it[3]) in sessions and "CoarseGrainedExecutorBackend" in _command(pid)]
        return [_family(jvm, living) for jvm in jvms]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def _family(pid: int, living: Mapping[int, list[str]]) -> list[int]:
    """A process and its descendants."""
    found = [pid]
    for one in found:
        found += [child for child, fields in living.items() if int(fields[1]) == one]
    return found


@contextmanager
def spark_cluster() -> Iterator[SparkCluster]:
    with tempfile.TemporaryDirectory(prefix="spark-") as folder:
        found = SparkCluster(Path(folder))
        try:
            yield found
        finally:
            found.close()
