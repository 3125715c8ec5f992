"""A sink that stands still at a marked point, in whichever process gets there, so that a test can kill it right there.

`format("halting")` is the product's sink. Only the cluster that its protocol speaks to is wrapped, in the worker of the task or
of the driver: a file says where to halt, and a file is written when a process stands there (SIGSTOP), with its pid.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pyspark.sql.types import StructType

from kraftlite.exactly_once.driver import KafkaCluster
from kraftlite.spark.sink.datasink import StreamWriter
from kraftlite.spark.sink.options import sink_settings
from kraftlite.spark.source.datasource import KraftliteDataSource

WHERE = "halt.json"
REACHED = "reached"
NOT_CONNECTED = "failed to connect back"
"""On a machine with a load of many times its cores Spark loses patience with a Python process; the query is run again."""
METHODS = ("take_over", "mark", "last_decision", "record", "end", "fate", "commit", "write")


@dataclass(frozen=True)
class Point:
    """Before or after call number `call` (from 1 on) of a method, made by a task or by the driver, in a batch from `batch` on.

    The methods are those of the protocol's cluster; besides, `commit` and `write` are the sink's own.
    """

    who: str
    method: str
    when: str
    call: int = 1
    batch: int = 0

    def __str__(self) -> str:
        return f"{self.who}-{self.when}-{self.method}-{self.call}"


def halt_at(at: Path, point: Point | None) -> None:
    """From now on; None: nowhere."""
    (at / REACHED).unlink(missing_ok=True)
    (at / WHERE).unlink(missing_ok=True)
    if point is not None:
        (at / f"{WHERE}.new").write_text(json.dumps(point.__dict__))
        (at / f"{WHERE}.new").rename(at / WHERE)


def halted(at: Path) -> int | None:
    """The process that stands at the point."""
    try:
        text = (at / REACHED).read_text()
    except FileNotFoundError:
        return None
    return int(text) if text.endswith("\n") else None


class Halts:
    """Counts the calls of one commit or of one attempt of a task."""

    def __init__(self, at: Path, who: str, batch: int) -> None:
        try:
            wanted = Point(**json.loads((at / WHERE).read_text()))
        except FileNotFoundError:
            wanted = None
        self.at = at
        self.wanted = wanted if wanted is not None and wanted.who == who and wanted.batch <= batch else None
        self.calls: dict[str, int] = {}

    def called(self, method: str) -> None:
        self.calls[method] = self.calls.get(method, 0) + 1
        self.halt(method, "before")

    def halt(self, method: str, when: str) -> None:
        it = self.wanted
        if it is None or (it.method, it.when, it.call) != (method, when, self.calls[method]):
            return
        try:
            with (self.at / REACHED).open("x") as file:  # one process: of two tasks the first
                file.write(f"{os.getpid()}\n")
        except FileExistsError:
            return
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


class HaltingWriter(StreamWriter):
    """The sink's own writer, between two halts."""

    def __init__(self, settings: Any, at: str) -> None:
        super().__init__(settings)
        self._at = Path(at)

    def write(self, iterator: Iterator[Any]) -> Any:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        return self._between("write", "task", int(context.getLocalProperty("streaming.sql.batchId") or 0), iterator)

    def commit(self, messages: Any, batchId: int) -> None:
        self._between("commit", "driver", batchId, messages, batchId)

    def _between(self, method: str, who: str, batch: int, *args: Any) -> Any:
        global _current
        _current = halts = Halts(self._at, who, batch)
        try:
            halts.called(method)
            found = getattr(super(), method)(*args)
            halts.halt(method, "after")
            return found
        finally:
            _current = None


class HaltingSource(KraftliteDataSource):
    """The option `halts` names the directory of the files."""

    @classmethod
    def name(cls) -> str:
        return "halting"

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        options = {name: value for name, value in dict(self.options).items() if name.lower() != "halts"}
        return HaltingWriter(replace(sink_settings(options)), dict(self.options)["halts"])


def give(at: Path, first: int, count: int) -> None:
    """One file, which is one batch: rows with the values v<first>, …"""
    (at / "in").mkdir(exist_ok=True)
    (at / "in.new").write_text("".join(f"v{it}\n" for it in range(first, first + count)))
    (at / "in.new").rename(at / "in" / f"{first:08d}.txt")


def run(spark: Any, bootstrap: str, out: str, at: Path, *, tasks: int = 3, form: str = "halting") -> None:
    """The query goes on where its checkpoint says, and ends. Raises what it fails with. Spark's own source needs no Python."""
    from pyspark.errors import StreamingQueryException

    spark.dataSource.register(HaltingSource)
    options = {"kafka.bootstrap.servers": bootstrap, "topic": out, "kraftlite.sink.mode": "exactly_once"}
    options |= {"halts": str(at)} if form == "halting" else {}
    while True:
        rows = spark.readStream.schema("value string").option("maxFilesPerTrigger", "1").text(str(at / "in"))
        writer = rows.repartition(tasks, "value").writeStream.format(form).options(**options)
        query = writer.option("checkpointLocation", str(at / "checkpoint")).trigger(availableNow=True).start()
        try:
            query.awaitTermination()
            return
        except StreamingQueryException as error:
            if NOT_CONNECTED not in str(error):
                raise


def main() -> None:
    """`python -m tests.harness.halting BOOTSTRAP OUT DIR`: a driver to be killed."""
    import sys

    from kraftlite.spark.session import session
    from tests.harness import halting

    bootstrap, out, at = sys.argv[1:]
    spark = session("test", master="local[2]")
    halting.run(spark, bootstrap, out, Path(at))  # this module, not __main__: workers import it
    spark.stop()


if __name__ == "__main__":
    main()
