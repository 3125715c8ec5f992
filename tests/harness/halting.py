"""A sink that stands still at a marked point, in whichever process gets there, so that a test can kill it right there.

`format("halting")` is the product's sink. Only the cluster that its protocol speaks to is wrapped, in the worker of the task or
of the driver: a file says where to halt, and a file is written when a process stands there (SIGSTOP), with its pid. Another file
has a line for each attempt of a task that begins, one when it has ended well, and one for each batch that is committed.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql.types import StructType

from kraftlite.exactly_once.driver import KafkaCluster
from kraftlite.spark.sink.committing import begin_run
from kraftlite.spark.sink.datasink import BatchWriter, StreamWriter
from kraftlite.spark.sink.options import sink_settings
from kraftlite.spark.source.datasource import KraftliteDataSource

WHERE = "halt.json"
REACHED = "reached"
NOTES = "notes"
FAILURES = "failures"
FINISHED = "finished"
LEAVE = "leave"
LINGER_S = 240.0
NOT_CONNECTED = "failed to connect back"
"""On a machine with a load of many times its cores Spark loses patience with a Python process; the query is run again."""
METHODS = ("take_over", "mark", "last_decision", "record", "end", "fate", "commit", "write")


@dataclass(frozen=True)
class Point:
    """Before or after call number `call` (from 1 on) of a method, made by a task or by the driver, in a batch from `batch` on.

    The methods are those of the protocol's cluster; besides, `commit` and `write` are the sink's own. `attempt`: only in that
    attempt of a task.
    """

    who: str
    method: str
    when: str
    call: int = 1
    batch: int = 0
    attempt: int | None = None

    def __str__(self) -> str:
        return f"{self.who}-{self.when}-{self.method}-{self.call}"


def points(ends: int) -> list[Point]:
    """Before and after each call of a batch of tasks and of its commit, which ends `ends` transactions."""
    return [
        Point(who, method, when, call)
        for who, method, calls in (
            ("task", "write", 1),
            ("task", "take_over", 1),
            ("task", "mark", 1),
            ("driver", "commit", 1),
            ("driver", "take_over", 1),
            ("driver", "last_decision", 1),
            ("driver", "record", 1),
            ("driver", "end", ends),
        )
        for call in range(1, calls + 1)
        for when in ("before", "after")
    ]


def halt_at(at: Path, point: Point | None) -> None:
    """From now on; None: nowhere."""
    (at / WHERE).unlink(missing_ok=True)
    if point is not None:
        _reached(at, point).unlink(missing_ok=True)
        (at / f"{WHERE}.new").write_text(json.dumps(point.__dict__))
        (at / f"{WHERE}.new").rename(at / WHERE)


def _reached(at: Path, point: Point) -> Path:
    """Of each point its own: a process that is on its way to an earlier one does not pass for one that stands here."""
    return at / f"{REACHED}-{point}-{point.batch}-{point.attempt}"


def _wanted(at: Path) -> Point | None:
    try:
        return Point(**json.loads((at / WHERE).read_text()))
    except FileNotFoundError:
        return None


def halted(at: Path) -> int | None:
    """The process that stands at the point."""
    point = _wanted(at)
    try:
        text = "" if point is None else _reached(at, point).read_text()
    except FileNotFoundError:
        return None
    return int(text) if text.endswith("\n") else None


class Halts:
    """Counts the calls of one commit or of one attempt of a task."""

    def __init__(self, at: Path, who: str, batch: int, attempt: int | None = None) -> None:
        wanted = _wanted(at)
        self.at = at
        here = wanted is not None and wanted.who == who and wanted.batch <= batch and wanted.attempt in (None, attempt)
        self.wanted = wanted if here else None
        self.calls: dict[str, int] = {}

    def called(self, method: str) -> None:
        self.calls[method] = self.calls.get(method, 0) + 1
        self.halt(method, "before")

    def halt(self, method: str, when: str) -> None:
        it = self.wanted
        if it is None or (it.method, it.when, it.call) != (method, when, self.calls[method]) or _wanted(self.at) != it:
            return
        try:
            with _reached(self.at, it).open("x") as file:  # one process: of two tasks the first
                file.write(f"{os.getpid()}\n")
        except FileExistsError:
            return
        signal.signal(signal.SIGHUP, _stand_still)
        _stand_still()


def _stand_still(*_: object) -> None:
    """Until somebody sends SIGCONT; again when the parent dies, for the kernel lets its children go on then, with SIGHUP."""
    os.kill(os.getpid(), signal.SIGSTOP)


_current: Halts | None = None
"""Of this process, while a task or a commit runs in it."""


def _wrap(name: str) -> None:
    original = getattr(KafkaCluster, name)

    def wrapped(self: Any, *args: Any, **more: Any) -> Any:
        halts = _current
        if halts is not None:
            halts.called(name)
        found = original(self, *args, **more)
        if halts is not None:
            halts.halt(name, "after")
        return found

    setattr(KafkaCluster, name, wrapped)


for _name in METHODS[:-2]:
    _wrap(_name)


def _between(at: Path, method: str, who: str, batch: int, do: Callable[[], Any], task: dict[str, int] | None = None) -> Any:
    """Do it between two halts."""
    global _current
    _current = halts = Halts(at, who, batch, None if task is None else task["attempt"])
    try:
        halts.called(method)
        found = do()
        halts.halt(method, "after")
        return found
    finally:
        _current = None


def _in_task(at: Path, batch: int | None, do: Callable[[], Any]) -> Any:
    """`batch` None: Spark tells the batch of a stream."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    number = int(context.getLocalProperty("streaming.sql.batchId") or 0) if batch is None else batch
    task = {"batch": number, "task": context.partitionId(), "attempt": context.attemptNumber(), "id": context.taskAttemptId()}
    task |= {"stage": context.stageId(), "pid": os.getpid()}
    _note(at, {**task, "ended": False})
    found = _between(at, "write", "task", number, do, task)
    _note(at, {**task, "ended": True})
    return found


def _note(at: Path, what: dict[str, Any]) -> None:
    """In one write, so that lines of several processes do not mix."""
    with (at / NOTES).open("ab", buffering=0) as file:
        file.write(json.dumps(what).encode() + b"\n")


def notes(at: Path) -> list[dict[str, Any]]:
    """All lines so far."""
    try:
        text = (at / NOTES).read_text()
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in text.splitlines() if line.endswith("}")]


class HaltingStream(StreamWriter):
    """The sink's own writer of a micro-batch, between two halts."""

    def __init__(self, settings: Any, at: str) -> None:
        super().__init__(settings, begin_run(settings))
        self._at = Path(at)

    def write(self, iterator: Iterator[Any]) -> Any:
        return _in_task(self._at, None, lambda: super(HaltingStream, self).write(iterator))

    def commit(self, messages: Any, batchId: int) -> None:
        _between(self._at, "commit", "driver", batchId, lambda: super(HaltingStream, self).commit(messages, batchId))
        _note(self._at, {"batch": batchId, "committed": True})


class HaltingBatch(BatchWriter):
    """The sink's own writer of a job, which is number `batch` of its driver."""

    def __init__(self, settings: Any, at: str, batch: int) -> None:
        super().__init__(settings, begin_run(settings))
        self._at, self._batch = Path(at), batch

    def write(self, iterator: Iterator[Any]) -> Any:
        return _in_task(self._at, self._batch, lambda: super(HaltingBatch, self).write(iterator))

    def commit(self, messages: Any) -> None:
        _between(self._at, "commit", "driver", self._batch, lambda: super(HaltingBatch, self).commit(messages))
        _note(self._at, {"batch": self._batch, "committed": True})


class HaltingSource(KraftliteDataSource):
    """The option `halts` names the directory of the files; `number` is that of a job."""

    @classmethod
    def name(cls) -> str:
        return "halting"

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        return HaltingStream(self._settings(), dict(self.options)["halts"])

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        given = dict(self.options)
        return HaltingBatch(self._settings(), given["halts"], int(given["number"]))

    def _settings(self) -> Any:
        return sink_settings({name: it for name, it in dict(self.options).items() if name.lower() not in ("halts", "number")})


def give(at: Path, first: int, count: int) -> None:
    """One file, which is one batch: rows with the values v<first>, …"""
    (at / "in").mkdir(exist_ok=True)
    (at / "in.new").write_text("".join(f"v{it}\n" for it in range(first, first + count)))
    (at / "in.new").rename(at / "in" / f"{first:08d}.txt")


def run(
    spark: Any, bootstrap: str, out: str, at: Path, *, tasks: int = 3, form: str = "halting", kind: str = "stream", again: int = 0
) -> None:
    """The query goes on where its checkpoint says, and ends; or it is `continuous`; or each file is a job of its own (`batch`).
    Raises what it fails with for the last time, after `again` attempts more. Spark's own source needs no Python."""
    spark.dataSource.register(HaltingSource)
    options = {"kafka.bootstrap.servers": bootstrap, "topic": out, "kraftlite.sink.mode": "exactly_once"}
    options |= {"halts": str(at)} if form == "halting" else {}
    while True:
        try:
            if kind in ("stream", "continuous"):
                _stream(spark, at, tasks, form, options, ends=kind == "stream")
            else:
                _jobs(spark, at, tasks, form, {**options, "kraftlite.sink.job.id": out})
            return
        except Exception as error:
            if NOT_CONNECTED in str(error):
                continue
            with (at / FAILURES).open("a") as file:
                file.write(f"{error}\n--\n")
            if again == 0:
                raise
            again -= 1


def _stream(spark: Any, at: Path, tasks: int, form: str, options: dict[str, str], *, ends: bool) -> None:
    """What there is, or what comes until it may leave."""
    rows = spark.readStream.schema("value string").option("maxFilesPerTrigger", "1").text(str(at / "in"))
    writer = rows.repartition(tasks, "value").writeStream.format(form).options(**options)
    writer = writer.option("checkpointLocation", str(at / "checkpoint"))
    if ends:
        writer.trigger(availableNow=True).start().awaitTermination()
        return
    query = writer.trigger(processingTime="300 milliseconds").start()
    while not query.awaitTermination(1) and not (at / LEAVE).exists():
        continue
    query.processAllAvailable()
    query.stop()


def _jobs(spark: Any, at: Path, tasks: int, form: str, options: dict[str, str]) -> None:
    """All of them, also those that were complete: the sink knows them."""
    for number, file in enumerate(sorted((at / "in").iterdir())):
        rows = spark.read.schema("value string").text(str(file)).repartition(tasks, "value")
        job = {"kraftlite.sink.job.id": f"{options['kraftlite.sink.job.id']}-{number}"}
        more = {"number": str(number)} if form == "halting" else {}
        rows.write.format(form).options(**{**options, **job, **more}).mode("append").save()


def main() -> None:
    """`python -m tests.harness.halting BOOTSTRAP OUT DIR [OPTIONS]`: a driver to be killed. OPTIONS are JSON: `master`, `config`
    of Spark, `kind` and `again` as in `run`; with `linger` it stays, when all is done, until it may leave. When all is done it
    writes down how often each stage that wrote has run again."""
    import sys

    from kraftlite.spark.session import session
    from tests.harness import halting

    bootstrap, out, directory, *more = sys.argv[1:]
    at, options = Path(directory), json.loads(more[0]) if more else {}
    spark = session("test", master=options.get("master", "local[2]"), config=options.get("config"))
    halting.run(  # this module, not __main__: workers import it
        spark, bootstrap, out, at, kind=options.get("kind", "stream"), again=options.get("again", 0)
    )
    tracker = spark.sparkContext.statusTracker()
    stages = {one["stage"]: tracker.getStageInfo(one["stage"]) for one in halting.notes(at) if "stage" in one}
    attempts = {number: info.currentAttemptId for number, info in stages.items() if info is not None}
    (at / f"{FINISHED}.new").write_text(json.dumps(attempts))
    (at / f"{FINISHED}.new").rename(at / FINISHED)
    deadline = time.monotonic() + LINGER_S
    while options.get("linger") and not (at / LEAVE).exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    spark.stop()


if __name__ == "__main__":
    main()
