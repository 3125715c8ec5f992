"""pipeline failover-report: how long failures lasted, from the metadata log, the nodes' traces and the clients' histories."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kraftlite.cli.common import data_dir_of, output_option, print_json
from kraftlite.cli.pipeline_audit import OK, VIOLATION, CannotRun, spark_or_none

if TYPE_CHECKING:
    from kraftlite.spark.jobs.failover_report import FailoverReport

_METRICS = {
    "detected_ms": "detected",
    "elected_ms": "elected",
    "written_ms": "written",
    "caught_up_ms": "caught up",
    "unavailable_ms": "unavailable",
}
_SHOWN = 20


@click.command("failover-report")
@click.option(
    "--run",
    "runs",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="A run: a local cluster's directory. Repeatable.",
)
@click.option(
    "--history", multiple=True, metavar="GLOB", help="Client histories, relative to each run. Default: *.jsonl. Repeatable."
)
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), metavar="DIR", help="Write Parquet, report.json and report.html."
)
@click.option(
    "--max-unavailable", type=click.IntRange(0), metavar="MS", help="A partition that is unavailable for longer is a violation."
)
@click.option(
    "--engine", type=click.Choice(["spark", "local"]), default="spark", show_default=True, help="local: no Spark, one process."
)
@click.option(
    "--master", default="local[*]", show_default=True, metavar="URL", help="Spark's master; it must see the directories."
)
@output_option
def failover_report_command(
    runs: tuple[Path, ...],
    history: tuple[str, ...],
    out: Path | None,
    max_unavailable: int | None,
    engine: str,
    master: str,
    output: str,
) -> None:
    """Report when failures were detected, overcome and forgotten, and what each partition went through.

    Without --run, of the local cluster. Exit status: 0 all is well, 1 a partition was not served as it must be, 2 it could
    not run.
    """
    from rich.console import Console

    console = Console(stderr=True, quiet=output == "json")
    chosen = runs or (data_dir_of(None),)
    for run in chosen:
        if not run.is_dir():
            raise CannotRun(f"{run}: there is no such directory")  # before Spark is started, which takes seconds
    with console.status("starting …") as status, spark_or_none(engine, master, "failover-report") as spark:
        from kraftlite.spark.jobs.failover_report import AuditInputError, failover_report

        try:
            found = failover_report(
                chosen,
                out=out,
                history=history,
                max_unavailable_ms=max_unavailable,
                engine=engine,
                spark=spark,
                on_progress=lambda what, done, total: status.update(f"{what} … {f'{done} of {total}' if total else ''}"),
            )
        except AuditInputError as error:
            raise CannotRun(str(error)) from None
    if output == "json":
        print_json(found.as_json())
    else:
        _show(found, out)
    sys.exit(OK if found.ok else VIOLATION)


def seconds(value: int | None) -> str:
    """Milliseconds as people read them."""
    return "-" if value is None else f"{value / 1000:.2f} s" if value >= 1000 else f"{value} ms"


def _show(found: FailoverReport, out: Path | None) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    many = len(found.runs) > 1
    failures = [failure for run in found.runs for failure in run.failures]
    table = Table(
        box=None, padding=(0, 2, 0, 0), title=f"{len(failures)} failures in {len(found.runs)} runs", title_justify="left"
    )
    for name in (*(("run",) if many else ()), "failure", "detected", "elected", "written", "caught up", "hit"):
        table.add_column(name, justify="left" if name in ("run", "failure") else "right", no_wrap=name != "failure")
    for failure in failures[:_SHOWN]:
        spans = (failure.detected_ms, failure.elected_ms, failure.written_ms, failure.caught_up_ms)
        what = f"{failure.event} {failure.kind} {failure.node}"
        table.add_row(*((Path(failure.run).name,) if many else ()), what, *map(seconds, spans), str(failure.affected or "-"))
    console.print(table)
    console.print()
    if len(failures) > _SHOWN:
        console.print(f"… and {len(failures) - _SHOWN} more")
    _show_percentiles(console, found)
    _show_isr(console, found)
    if any(failure.source == "record" for failure in failures):
        what = "Of some failures there is no trace and no history: they begin with their first record"
        console.print(f"{what}, which for a fenced broker is a session timeout late.", soft_wrap=True)
    for problem in found.problems:
        console.print(problem, style="red", markup=False, soft_wrap=True)
    if out is not None:
        console.print(f"wrote {out / 'report.html'}, report.json and the tables as Parquet", markup=False, soft_wrap=True)
    verdict = "OK: every partition was served again." if found.ok else f"VIOLATED: {len(found.problems)} problems."
    console.print(verdict, style="bold green" if found.ok else "bold red")


def _show_percentiles(console: Any, found: FailoverReport) -> None:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), title="over all runs", title_justify="left")
    for name in ("of", "until", "count", "p50", "p90", "p99", "max"):
        table.add_column(name, justify="left" if name in ("of", "until") else "right", no_wrap=True)
    for row in found.percentiles:
        spans = (seconds(row[name]) for name in ("p50_ms", "p90_ms", "p99_ms", "max_ms"))
        table.add_row(row["kind"], _METRICS[row["metric"]], str(row["count"]), *spans)
    console.print(table)
    console.print()


def _show_isr(console: Any, found: FailoverReport) -> None:
    rows = [row for run in found.runs for row in run.isr]
    moved = [row for row in rows if row.shrinks or row.expands]
    if moved:
        flapping = max(moved, key=lambda row: (row.flaps, row.shrinks, row.topic, -row.partition))
        shrinks, expands, flaps = (sum(getattr(row, name) for row in moved) for name in ("shrinks", "expands", "flaps"))
        console.print(
            f"ISRs of {len(moved)} of {len(rows)} partitions moved: {shrinks} shrank, {expands} grew, {flaps} members flapped "
            f"(most: {flapping.topic}-{flapping.partition}, {flapping.flaps})",
            markup=False,
            soft_wrap=True,
        )
