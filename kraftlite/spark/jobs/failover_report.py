"""`failover-report`: how long failures lasted, over one run or many.

    from kraftlite.spark.jobs.failover_report import failover_report
    report = failover_report([Path("run-1"), Path("run-2")], out=Path("report"))

Per failure when it was detected, another leader or controller elected, everything written again, the ISRs whole; per partition
its unavailability and what its ISR did; percentiles over all. On Spark a task reads a run. In `out`: `failures/`, `outages/`,
`isr/` and `percentiles/` as Parquet, `report.json`, and `report.html`, which needs nothing else.

A run is a violation when a partition had no leader although others were in its ISR, was not written again, was led by a node from
outside of its ISR, when a node came back and its ISRs did not become whole, or when something took longer than was allowed.
"""

from __future__ import annotations

import json
import pickle
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kraftlite.failover.analysis import RunReport, analyse, summary
from kraftlite.failover.inputs import read_run
from kraftlite.local.history import HistoryError
from kraftlite.segments.directories import AuditInputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENGINES: Final = ("spark", "local")
OnProgress = Callable[[str, int, int], None]
_SCHEMAS: Final[dict[str, str]] = {
    "failures": (
        "run string, number int, node int, kind string, event string, source string, began_ms long, led int, affected int, "
        "detected_ms long, elected_ms long, written_ms long, caught_up_ms long, problems array<string>"
    ),
    "outages": (
        "run string, failure int, topic string, partition int, role string, leader_before int, leader_after int, "
        "leader_epoch int, moved_ms long, last_ack_ms long, first_ack_ms long, unavailable_ms long, source string, errors long"
    ),
    "isr": (
        "run string, topic string, partition int, shrinks int, expands int, flaps int, leader_changes int, unclean int, "
        "short_ms long, leaderless_ms long"
    ),
    "percentiles": "kind string, metric string, count long, min_ms long, p50_ms long, p90_ms long, p99_ms long, max_ms long",
}
"""Tables and their columns, which are the fields of the dataclasses in `failover_analysis`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverReport:
    """The measurements of all runs together. `problems` says in words what is wrong with them."""

    engine: str
    runs: tuple[RunReport, ...]
    percentiles: tuple[dict[str, Any], ...]
    problems: tuple[str, ...]
    seconds: float

    @property
    def ok(self) -> bool:
        return not self.problems

    def tables(self) -> dict[str, list[dict[str, Any]]]:
        """Rows by table, as they are written."""
        return {
            "failures": [{**asdict(row), "problems": list(row.problems)} for run in self.runs for row in run.failures],
            "outages": [asdict(row) for run in self.runs for row in run.outages],
            "isr": [asdict(row) for run in self.runs for row in run.isr],
            "percentiles": list(self.percentiles),
        }

    def as_json(self) -> dict[str, Any]:
        runs = [
            {
                "run": run.run,
                "began_ms": run.began_ms,
                "end_ms": run.end_ms,
                "acknowledged": run.acknowledged,
                "refused": run.refused,
                "planned_shutdowns": run.planned,
            }
            for run in self.runs
        ]
        tables = self.tables()
        tables["isr"] = [row for row in tables["isr"] if row["shrinks"] or row["expands"] or row["leader_changes"]]
        head = {"ok": self.ok, "problems": list(self.problems), "engine": self.engine, "seconds": round(self.seconds, 3)}
        return {**head, "runs": runs, **tables}


def failover_report(
    runs: Sequence[Path | str],
    *,
    out: Path | None = None,
    history: Sequence[str] = (),
    max_unavailable_ms: int | None = None,
    engine: str = "spark",
    spark: SparkSession | None = None,
    on_progress: OnProgress | None = None,
) -> FailoverReport:
    """Read `runs`, and write what is found to `out` unless it is None.

    `history`: patterns of client histories, relative to each run. `max_unavailable_ms`: a partition that was unavailable for
    longer is a problem. Raises AuditInputError, HistoryError, ValueError (engine), OSError, and what Spark raises.
    """
    if engine not in ENGINES:
        raise ValueError(f"engine is {engine!r}; allowed are {', '.join(ENGINES)}")
    if not runs:
        raise AuditInputError("no run is given")
    began = time.monotonic()
    say = on_progress or (lambda what, done, total: None)
    tasks = [(str(Path(run).absolute()), tuple(history)) for run in runs]
    if engine == "local":
        found = []
        for done, task in enumerate(tasks):
            say("reading runs", done, len(tasks))
            found.append(_one_run(task))
    else:
        spark = spark or _session()
        say("reading runs", 0, len(tasks))
        found = _on_spark(spark, tasks)
    report = FailoverReport(
        engine=engine,
        runs=tuple(found),
        percentiles=tuple(summary(found)),
        problems=tuple(_problems(found, max_unavailable_ms)),
        seconds=time.monotonic() - began,
    )
    if out is not None:
        say("writing", 0, 0)
        _write(report, out, spark if engine == "spark" else None)
    return report


def _one_run(task: tuple[str, tuple[str, ...]]) -> RunReport:
    directory, history = task
    return analyse(read_run(directory, history))


def _problems(runs: Sequence[RunReport], limit: int | None) -> Iterator[str]:
    for run in runs:
        name = Path(run.run).name
        for failure in run.failures:
            yield from (f"{name}, failure {failure.number}: {problem}" for problem in failure.problems)
        for outage in run.outages:
            if limit is not None and outage.unavailable_ms is not None and outage.unavailable_ms > limit:
                what = f"{outage.topic}-{outage.partition} was unavailable for {outage.unavailable_ms} ms, allowed are {limit}"
                yield f"{name}, failure {outage.failure}: {what}"


# Spark


def _session() -> SparkSession:
    from kraftlite.spark.session import session

    return session("job", app="kraftlite failover-report")


def _on_spark(spark: SparkSession, tasks: Sequence[tuple[str, tuple[str, ...]]]) -> list[RunReport]:
    """One task per run. What a task refuses to read comes back as its answer, not as Spark's own error."""
    rows = [(index, bytearray(pickle.dumps(task))) for index, task in enumerate(tasks)]
    frame = spark.createDataFrame(spark.sparkContext.parallelize(rows, len(rows)), "number int, body binary")
    found: dict[int, RunReport] = {}
    for row in frame.mapInArrow(_read_runs, "number int, body binary").collect():
        answer = pickle.loads(bytes(row.body))
        if isinstance(answer, Exception):
            raise answer
        found[row.number] = answer
    return [found[index] for index in range(len(tasks))]


def _read_runs(batches: Iterator[Any]) -> Iterator[Any]:
    import pyarrow as pa

    schema = pa.schema([("number", pa.int32()), ("body", pa.binary())])
    for batch in batches:
        for number, body in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
            answer: RunReport | AuditInputError | HistoryError
            try:
                answer = _one_run(pickle.loads(body))
            except (AuditInputError, HistoryError) as error:
                answer = error
            yield pa.RecordBatch.from_arrays(
                [pa.array([number], pa.int32()), pa.array([pickle.dumps(answer)], pa.binary())], schema=schema
            )


# writing


def _write(report: FailoverReport, out: Path, spark: SparkSession | None) -> None:
    from kraftlite.failover.page import page

    out.mkdir(parents=True, exist_ok=True)
    for name, rows in report.tables().items():
        directory = out / name
        if spark is not None:
            ordered = [tuple(row[column.split(" ")[0]] for column in _columns(name)) for row in rows]
            frame = spark.createDataFrame(ordered, _SCHEMAS[name])
            frame.coalesce(1).write.mode("overwrite").parquet(str(directory))
        else:
            _write_here(name, rows, directory)
    (out / "report.json").write_text(json.dumps(report.as_json(), ensure_ascii=False, indent=2) + "\n")
    (out / "report.html").write_text(page(report.runs, report.percentiles, report.problems))


def _columns(name: str) -> list[str]:
    return _SCHEMAS[name].split(", ")


def _write_here(name: str, rows: list[dict[str, Any]], directory: Path) -> None:
    """The same table by pyarrow alone."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = {"string": pa.string(), "int": pa.int32(), "long": pa.int64(), "array<string>": pa.list_(pa.string())}
    schema = pa.schema([(column.split(" ")[0], types[column.split(" ")[1]]) for column in _columns(name)])
    if directory.exists():
        shutil.rmtree(directory)
    directory.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), directory / "part-0.parquet")


__all__ = ["AuditInputError", "FailoverReport", "HistoryError", "failover_report"]
