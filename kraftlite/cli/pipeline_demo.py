"""`kraftlite pipeline demo`, which `scripts/run --pipeline` calls: every job, on real data, while nodes are killed.

The flights are produced to a replicated topic. Meanwhile `ingest` and `aggregate` read it, the broker that leads most is killed,
and then the active controller. Afterwards every acknowledged record is read back, `audit` verifies the files of all replicas,
`failover-report` says what the failures cost, and the aggregates are compared with the same computation on the CSV file.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from kraftlite.cli.common import output_option
from kraftlite.cli.pipeline import spark_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.console import Console
    from rich.progress import Progress

    from kraftlite.local.chaos import Chaos
    from kraftlite.local.state import LocalCluster
    from kraftlite.local.stream import Streamer

TOPIC: Final = "flights"
RESULTS: Final = "flight-delays"
PARTITIONS: Final = 6
PACE: Final = 8_000.0
TRIGGER: Final = "5s"


@dataclass
class Run:
    """One demonstration. `checks`: what was looked at, whether it holds, and what it says."""

    directory: Path
    console: Console
    checks: list[tuple[str, bool, str]] = field(default_factory=list)
    rows: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def path(self, *names: str) -> str:
        return str(self.directory.joinpath(*names))

    def check(self, what: str, holds: bool, says: str) -> None:
        self.checks.append((what, holds, says))


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


@click.command("demo")
@click.option("--data-dir", type=click.Path(path_type=Path), default=Path("var/pipeline"), show_default=True, metavar="DIR")
@output_option
def demo_command(data_dir: Path, output: str) -> None:
    """All of it, while a broker and the controller are killed. Exit status 0 only if every check holds."""
    from rich.console import Console

    from kraftlite.client.errors import ClientError
    from kraftlite.local.state import LocalError

    run = Run(data_dir.absolute(), Console(highlight=False, stderr=output == "json"))
    try:
        with spark_errors():
            demonstrate(run)
    except (LocalError, ClientError) as error:
        raise click.ClickException(str(error)) from None
    holds = bool(run.checks) and all(found for _, found, _ in run.checks)
    if output == "json":
        click.echo(
            json.dumps({"holds": holds, "checks": [dict(zip(("check", "holds", "says"), it, strict=True)) for it in run.checks]})
        )
    else:
        _table(run, holds)
    sys.exit(0 if holds else 1)


def demonstrate(run: Run) -> None:
    """Carry it out. Raises what keeps it from being carried out; its findings are in `run.checks`."""
    from kraftlite.local import cluster as local
    from kraftlite.local.demo import write_history
    from kraftlite.spark.session import session

    cluster = _start(run)
    spark: SparkSession | None = None
    try:
        run.console.print("starting Spark …")
        spark = session("job", master="local[2]", app="kraftlite pipeline demo", log_level="OFF")
        streamer, chaos = _stream_and_read(run, cluster, spark)
        _read_back(run, cluster, streamer, chaos)
        write_history(run.directory / "history.jsonl", TOPIC, chaos, streamer)
        _compare(run, spark, cluster.bootstrap_servers)
        run.console.print("stopping the cluster …")
        local.down(run.directory / "cluster")
        _audit(run, cluster, spark)
        _failover_report(run, spark)
    finally:
        if spark is not None:
            spark.stop()
        local.down(run.directory / "cluster")


def _start(run: Run) -> LocalCluster:
    """Make a new cluster with the two topics, and remove what an earlier demonstration left."""
    import shutil

    from kraftlite.client.admin import create_topic
    from kraftlite.local import cluster as local
    from kraftlite.local.client import cluster_at
    from kraftlite.local.state import STATE_NAME

    home = run.directory / "cluster"
    if (home / STATE_NAME).exists():
        local.down(home, wipe=True)
    for name in ("lake", "lake_quarantine", "delays", "checkpoints", "report"):
        shutil.rmtree(run.directory / name, ignore_errors=True)
    began = time.monotonic()
    cluster = local.up(home)
    with cluster_at(cluster.bootstrap_servers) as client:
        # The flights are of 2013: by the time in their records they would expire at once.
        create_topic(client, TOPIC, PARTITIONS, 3, {"min.insync.replicas": "2", "retention.ms": "-1"})
        create_topic(client, RESULTS, 3, 3, {"min.insync.replicas": "2", "cleanup.policy": "compact"})
    run.console.print(f"3 controllers and 3 brokers are up after {time.monotonic() - began:.1f} s, topics {TOPIC} and {RESULTS}")
    return cluster


def _stream_and_read(run: Run, cluster: LocalCluster, spark: SparkSession) -> tuple[Streamer, Chaos]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from kraftlite.local.chaos import Chaos
    from kraftlite.local.source import flights
    from kraftlite.local.stream import Pace, Streamer

    source = flights()
    streamer = Streamer(cluster.bootstrap_servers, TOPIC, source, Pace(PACE))
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=run.console) as progress:
        began = time.time()

        def say(text: str) -> None:
            progress.console.print(f"{time.time() - began:6.1f} s  {text}")

        chaos = Chaos(run.directory / "cluster", cluster.bootstrap_servers, PARTITIONS, streamer, say)
        jobs = _jobs(run, cluster.bootstrap_servers, spark, streamer, chaos, progress, source.count)
        sending = progress.add_task("acknowledged", total=source.count)
        for job in jobs:
            job.start()
        chaos.start()
        streamer.run(lambda: progress.update(sending, completed=streamer.ledger.acknowledged))
        chaos.join()
        while any(job.is_alive() for job in jobs) and not any(job.error for job in jobs):
            time.sleep(0.1)
    for job in jobs:
        if job.error is not None:
            raise job.error
    run.check(
        "failures",
        chaos.error is None,
        chaos.error or f"killed broker {chaos.times.broker} and controller {chaos.times.controller}",
    )
    return streamer, chaos


def _jobs(
    run: Run,
    bootstrap: str,
    spark: SparkSession,
    streamer: Streamer,
    chaos: Chaos,
    progress: Progress,
    total: int | None,
) -> list[Job]:
    """`ingest` and `aggregate`, each in a thread: first beside the producer and the failures, then until the topic is read."""
    from kraftlite.spark.jobs.aggregate import aggregate
    from kraftlite.spark.jobs.flights import FORM, WINDOWS
    from kraftlite.spark.jobs.ingest import ingest
    from kraftlite.spark.jobs.running import Source

    source = Source(bootstrap=bootstrap, topics=TOPIC)

    def over() -> bool:
        return streamer.finished.is_set() and not chaos.is_alive()

    checkpoints = {name: run.path("checkpoints", name) for name in ("ingest", "aggregate")}
    ingesting = partial(ingest, spark, source, out=run.path("lake"), checkpoint=checkpoints["ingest"], form=FORM)
    aggregating = partial(
        aggregate,
        spark,
        source,
        out=run.path("delays"),
        result_topic=RESULTS,
        checkpoint=checkpoints["aggregate"],
        form=FORM,
        windows=WINDOWS,
    )

    def thread(name: str, job: Callable[..., Any]) -> Job:
        shown = progress.add_task(name, total=total)
        before = 0

        def note(found: Any) -> None:
            run.rows[name] = before + found.rows
            progress.update(shown, completed=run.rows[name])

        def work() -> None:
            nonlocal before
            began = time.monotonic()
            job(trigger=TRIGGER, stop=over, on_progress=note)
            before = run.rows.get(name, 0)
            job(trigger="available-now", on_progress=note)
            run.seconds[name] = time.monotonic() - began

        return Job(target=work, name=name, daemon=True)

    return [thread("ingest", ingesting), thread("aggregate", aggregating)]


def _read_back(run: Run, cluster: LocalCluster, streamer: Streamer, chaos: Chaos) -> None:
    from kraftlite.local.stream import read_back

    verdict = read_back(cluster.bootstrap_servers, TOPIC, PARTITIONS, streamer.ledger, lambda _read: None)
    run.check("every acknowledged record is there once, in order", verdict.holds, verdict.line())


def _compare(run: Run, spark: SparkSession, bootstrap: str) -> None:
    """The lake, the Parquet results and the result topic with the CSV file."""
    from kraftlite.local.source import FLIGHTS, flights_archive
    from kraftlite.spark.jobs.aggregate import latest_results
    from kraftlite.spark.jobs.flights import WINDOWS, differences, expected

    lake = spark.read.parquet(run.path("lake"))
    rows, places = lake.count(), lake.select("_partition", "_offset").distinct().count()
    run.check("ingest: every flight once", rows == places == FLIGHTS, f"{rows:,} rows, {places:,} offsets, {FLIGHTS:,} flights")
    truth = expected(flights_archive())
    results = latest_results(spark.read.parquet(run.path("delays")), WINDOWS.group_by).toLocalIterator()
    wrong = differences(truth, (row.asDict() for row in results))
    run.check(
        "aggregate: Parquet agrees with the CSV file", not wrong, wrong[0] if wrong else f"{len(truth):,} carriers and hours"
    )
    latest: dict[str, dict[str, Any]] = {}
    topic = spark.read.format("kraftlite").options(**{"kafka.bootstrap.servers": bootstrap, "subscribe": RESULTS}).load()
    ordered = topic.selectExpr("cast(key as string) k", "cast(value as string) v", "partition", "offset").orderBy(
        "partition", "offset"
    )
    for row in ordered.toLocalIterator():
        found = json.loads(row["v"])
        latest[row["k"]] = {**dict.fromkeys(("sum", "mean", "min", "max")), **found}
    wrong = differences(truth, latest.values())
    run.check(
        "aggregate: the topic agrees with the CSV file", not wrong, wrong[0] if wrong else f"{len(latest):,} keys in {RESULTS}"
    )


def _audit(run: Run, cluster: LocalCluster, spark: SparkSession) -> None:
    from kraftlite.spark.jobs.audit import audit

    brokers = {f"broker-{node.id}": [node.data_dir] for node in cluster.nodes if node.is_broker}
    report = audit(brokers, history=[run.path("history.jsonl")], spark=spark)
    (run.directory / "report").mkdir(exist_ok=True)
    Path(run.path("report", "audit.json")).write_text(json.dumps(report.as_json(), indent=2) + "\n")
    totals = report.totals()
    told = (
        f"{totals['replicas']} replicas, {totals['batches']:,} batches, {totals['bytes'] / 1e6:,.0f} MB in {report.seconds:.1f} s"
    )
    run.check("audit: the files of all replicas", report.ok, told if report.ok else str(report.violations[0]))


def _failover_report(run: Run, spark: SparkSession) -> None:
    from kraftlite.spark.jobs.failover_report import failover_report

    report = failover_report(
        [run.directory / "cluster"], history=[run.path("history.jsonl")], out=Path(run.path("report")), spark=spark
    )
    run.check("failover-report", report.ok, f"written to {run.path('report')}")


def _table(run: Run, holds: bool) -> None:
    from rich.table import Table

    table = Table(title="pipeline", title_justify="left")
    for column in ("check", "", "what it says"):
        table.add_column(column)
    for what, found, says in run.checks:
        table.add_row(what, "[green]ok[/]" if found else "[red]no[/]", says)
    run.console.print(table)
    told = ", ".join(f"{name} {run.rows[name]:,} rows in {run.seconds[name]:.0f} s" for name in run.rows)
    run.console.print(f"{told}. Everything is in {run.directory}", soft_wrap=True)
    word, style = ("holds", "bold green") if holds else ("does NOT hold", "bold red")
    run.console.print(f"the pipeline's promise {word}", style=style)
