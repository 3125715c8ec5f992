"""`kraftlite pipeline demo`, which `scripts/run --pipeline` calls: every job, on real data, while nodes are killed.

The flights are produced to a replicated topic. Meanwhile `ingest` and `aggregate` read it, and `aggregate` writes its results
to another topic, exactly once. The broker that leads most is killed, then the active controller, and the driver of both queries
in the middle of a batch, with transactions open; another driver goes on. Afterwards every acknowledged record is read back, the
results are compared with the same computation on the CSV file and with what the sink has decided, `audit` verifies the files of
all replicas, and `failover-report` says what the failures cost.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from kraftlite.cli.common import output_option
from kraftlite.cli.pipeline import spark_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.console import Console

    from kraftlite.cli.demo_driver import Drivers
    from kraftlite.local.chaos import Chaos
    from kraftlite.local.state import LocalCluster
    from kraftlite.local.stream import Streamer
    from kraftlite.spark.jobs.flights import Delays, Key
    from kraftlite.spark.jobs.flights_driver import Queries

TOPIC: Final = "flights"
RESULTS: Final = "flight-delays"
PARTITIONS: Final = 6
PACE: Final = 8_000.0


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


@click.command("demo")
@click.option("--data-dir", type=click.Path(path_type=Path), default=Path("var/pipeline"), show_default=True, metavar="DIR")
@output_option
def demo_command(data_dir: Path, output: str) -> None:
    """All of it, while a broker, the controller and a driver are killed. Exit status 0 only if every check holds."""
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
    from kraftlite.cli.demo_driver import Drivers
    from kraftlite.local import cluster as local
    from kraftlite.local.demo import write_history
    from kraftlite.spark.jobs.flights_driver import Queries

    cluster = _start(run)
    queries = Queries(bootstrap=cluster.bootstrap_servers, topic=TOPIC, results=RESULTS, directory=run.directory)
    drivers = Drivers(queries, run.directory / "driver.log")
    try:
        streamer, chaos = _stream_and_read(run, cluster, drivers)
        spark = drivers.spark()
        _read_back(run, cluster, streamer, chaos)
        write_history(run.directory / "history.jsonl", TOPIC, chaos, streamer)
        run.seconds.update(drivers.seconds)
        _compare(run, spark, queries)
        _decided(run, queries)
        run.console.print("stopping the cluster …")
        local.down(run.directory / "cluster")
        _audit(run, cluster, spark)
        _failover_report(run, spark)
    finally:
        drivers.end()
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
    (run.directory / "driver.log").unlink(missing_ok=True)
    began = time.monotonic()
    cluster = local.up(home)
    with cluster_at(cluster.bootstrap_servers) as client:
        # The flights are of 2013: by the time in their records they would expire at once.
        create_topic(client, TOPIC, PARTITIONS, 3, {"min.insync.replicas": "2", "retention.ms": "-1"})
        create_topic(client, RESULTS, 3, 3, {"min.insync.replicas": "2", "retention.ms": "-1"})
    run.console.print(f"3 controllers and 3 brokers are up after {time.monotonic() - began:.1f} s, topics {TOPIC} and {RESULTS}")
    return cluster


def _stream_and_read(run: Run, cluster: LocalCluster, drivers: Drivers) -> tuple[Streamer, Chaos]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from kraftlite.cli.demo_driver import Job
    from kraftlite.local.chaos import Chaos
    from kraftlite.local.source import flights
    from kraftlite.local.stream import Pace, Streamer
    from kraftlite.spark.jobs.flights_driver import NAMES

    source = flights()
    streamer = Streamer(cluster.bootstrap_servers, TOPIC, source, Pace(PACE))
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=run.console) as progress:
        began = time.time()

        def say(text: str) -> None:
            progress.console.print(f"{time.time() - began:6.1f} s  {text}")

        def over() -> bool:
            return streamer.finished.is_set() and not chaos.is_alive()

        def on_rows(name: str, rows: int) -> None:
            run.rows[name] = rows
            progress.update(shown[name], completed=rows)

        chaos = Chaos(run.directory / "cluster", cluster.bootstrap_servers, PARTITIONS, streamer, say)
        shown = {name: progress.add_task(name, total=source.count) for name in NAMES}
        sending = progress.add_task("acknowledged", total=source.count)
        reading = Job(target=drivers.run, args=(over, say, on_rows), name="drivers", daemon=True)
        reading.start()
        chaos.start()
        streamer.run(lambda: progress.update(sending, completed=streamer.ledger.acknowledged))
        chaos.join()
        reading.join()
    if reading.error is not None:
        raise reading.error
    nodes = f"killed broker {chaos.times.broker} and controller {chaos.times.controller}"
    told = f"{nodes}, and the driver in batch {drivers.killed_in} with {len(drivers.left_open)} open transactions"
    run.check("failures", chaos.error is None, chaos.error or told)
    return streamer, chaos


def _read_back(run: Run, cluster: LocalCluster, streamer: Streamer, chaos: Chaos) -> None:
    from kraftlite.local.stream import read_back

    verdict = read_back(cluster.bootstrap_servers, TOPIC, PARTITIONS, streamer.ledger, lambda _read: None)
    run.check("every acknowledged record is there once, in order", verdict.holds, verdict.line())


def _compare(run: Run, spark: SparkSession, queries: Queries) -> None:
    """The lake, the Parquet results and the result topic with the CSV file."""
    from kraftlite.local.source import FLIGHTS, flights_archive
    from kraftlite.spark.jobs.aggregate import latest_results
    from kraftlite.spark.jobs.flights import WINDOWS, differences, expected

    lake = spark.read.parquet(queries.lake)
    rows, places = lake.count(), lake.select("_partition", "_offset").distinct().count()
    run.check("ingest: every flight once", rows == places == FLIGHTS, f"{rows:,} rows, {places:,} offsets, {FLIGHTS:,} flights")
    truth = expected(flights_archive())
    written = spark.read.parquet(queries.delays)
    wrong = differences(truth, (row.asDict() for row in latest_results(written, WINDOWS.group_by).toLocalIterator()))
    run.check(
        "aggregate: Parquet agrees with the CSV file", not wrong, wrong[0] if wrong else f"{len(truth):,} carriers and hours"
    )
    _exactly_once(run, _committed(spark, queries), truth, written.count())


def _committed(spark: SparkSession, queries: Queries) -> Iterator[tuple[str, dict[str, Any]]]:
    """Key and value of what a reader of committed records gets from the result topic, in order in each partition."""
    options = {
        "kafka.bootstrap.servers": queries.bootstrap,
        "subscribe": queries.results,
        "kafka.isolation.level": "read_committed",
    }
    topic = spark.read.format("kraftlite").options(**options).load()
    rows = topic.selectExpr("cast(key as string) k", "cast(value as string) v", "partition", "offset")
    for row in rows.orderBy("partition", "offset").toLocalIterator():
        yield row["k"], {**dict.fromkeys(("sum", "mean", "min", "max")), **json.loads(row["v"])}


def _exactly_once(run: Run, results: Iterable[tuple[str, dict[str, Any]]], truth: Mapping[Key, Delays], written: int) -> None:
    """`written`: how many results there are in Parquet, where every batch is there once."""
    from kraftlite.spark.jobs.flights import differences, grown

    count, last, wrong = grown(results)
    if count != written:
        wrong.append(f"the topic has {count:,} results, Parquet has {written:,}")
    wrong += differences(truth, last.values())
    told = f"{count:,} results, each there once; the last of each window are the {len(truth):,} of the CSV file"
    run.check(f"exactly once: {RESULTS}, read_committed, agrees with the CSV file", not wrong, wrong[0] if wrong else told)


def _decided(run: Run, queries: Queries) -> None:
    """Compare every row of the result topic with what the sink has decided."""
    from kraftlite.audit.sink import audit_sink
    from kraftlite.client.kafka_client import client_for
    from kraftlite.exactly_once.records import STATE_TOPIC
    from kraftlite.local.client import admin_settings
    from kraftlite.spark.jobs.flights_driver import AGGREGATE

    client = client_for(admin_settings({"bootstrap.servers": queries.bootstrap}))
    report = audit_sink(client, [queries.results], STATE_TOPIC, query=queries.query_id(AGGREGATE))
    told = f"{report.visible:,} visible rows in {report.transactions} transactions of {report.decisions} decisions; "
    told += f"{report.aborted:,} rows of aborted transactions are not"
    holds = report.ok and not report.found
    run.check("exactly once: what is visible is what was decided", holds, told if holds else str(report.found[0]))


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
    run.console.print(f"the pipeline's promise {word}: every flight in, every result out, exactly once", style=style)
