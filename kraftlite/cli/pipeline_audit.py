"""pipeline audit: all replicas of a cluster against each other, their checkpoints, their indexes and what producers were told."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kraftlite.cli.common import data_dir_of, data_dir_option, output_option, print_json
from kraftlite.cli.files import read_text

if TYPE_CHECKING:
    from kraftlite.audit.findings import PartitionResult
    from kraftlite.spark.jobs.audit import AuditReport

OK, VIOLATION, COULD_NOT_RUN = 0, 1, 2
_SHOWN = 30


@click.command("audit")
@click.argument("directories", nargs=-1, type=click.Path(path_type=Path, file_okay=False), metavar="[DIR]...")
@click.option(
    "--data-dirs", multiple=True, metavar="NAME=DIR,…", help="Log directories by broker: b4=/data/4,b5=/data/5. Repeatable."
)
@data_dir_option
@click.option("--history", multiple=True, metavar="GLOB", help="Files of what producers were told (JSON lines). Repeatable.")
@click.option("--topic", "topics", multiple=True, metavar="NAME", help="Only this topic. Repeatable.")
@click.option(
    "--compacted", multiple=True, metavar="NAME", help="A topic that may have gaps, besides those known to. Repeatable."
)
@click.option(
    "--engine", type=click.Choice(["spark", "local"]), default="spark", show_default=True, help="local: no Spark, one process."
)
@click.option(
    "--master", default="local[*]", show_default=True, metavar="URL", help="Spark's master; it must see the directories."
)
@click.option("--report", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write the whole report as JSON.")
@output_option
def audit_command(
    directories: tuple[Path, ...],
    data_dirs: tuple[str, ...],
    data_dir: Path | None,
    history: tuple[str, ...],
    topics: tuple[str, ...],
    compacted: tuple[str, ...],
    engine: str,
    master: str,
    report: Path | None,
    output: str,
) -> None:
    """Verify every replica of every broker from its files: batches, order, epochs, indexes, checkpoints, committed prefixes.

    DIR is a local cluster's directory, or log directories of one broker each; without it, the local cluster in --data-dir,
    running or stopped. Exit status: 0 all is well, 1 something is
    wrong, 2 it could not run, or not read everything.
    """
    try:
        chosen = _chosen(directories, data_dirs, data_dir)
        found = _run(chosen, engine, master, output == "json", {"history": history, "topics": topics, "compacted": compacted})
        if report is not None:
            report.parent.mkdir(parents=True, exist_ok=True)
            report.write_text(json.dumps(found.as_json(), ensure_ascii=False, indent=2) + "\n")
    except OSError as error:
        raise CannotRun(f"{error.filename or ''}: {error.strerror or error}") from None
    if output == "json":
        print_json(found.as_json())
    else:
        _show(found)
    sys.exit(VIOLATION if not found.ok else OK if found.complete else COULD_NOT_RUN)


class CannotRun(click.ClickException):
    """Nothing was found out: exit status 2, which a violation (1) must not be taken for."""

    exit_code = COULD_NOT_RUN


@contextmanager
def spark_or_none(engine: str, master: str, app: str) -> Iterator[Any]:
    """A session, or None for the engine local. Whatever the job cannot read or Spark cannot do is one line and status 2."""
    from kraftlite.cli.pipeline import spark_errors

    try:
        if engine != "spark":
            yield None
            return
        with spark_errors():
            from kraftlite.spark.session import session

            spark = session("job", app=app, master=master, log_level="OFF")
            try:
                yield spark
            finally:
                spark.stop()
    except CannotRun:
        raise
    except click.UsageError:
        raise
    except click.ClickException as error:
        raise CannotRun(error.message) from None
    except ModuleNotFoundError as error:
        raise CannotRun(f"{error.name} is missing: pip install 'kraftlite[spark]'") from None
    except OSError as error:
        raise CannotRun(f"{error.filename or ''}: {error.strerror or error}") from None
    except ValueError as error:
        raise CannotRun(str(error)) from None


def _chosen(directories: Sequence[Path], data_dirs: Sequence[str], data_dir: Path | None) -> Callable[[], dict[str, list[Path]]]:
    """Return a function that finds the directories of the replicas, by broker, when the audit runs."""
    from kraftlite.segments.directories import local_data_dirs, parse_data_dirs

    if (bool(directories) + bool(data_dirs) + (data_dir is not None)) > 1:
        raise click.UsageError("DIR, --data-dirs and --data-dir exclude each other")
    if data_dirs:
        return lambda: parse_data_dirs(data_dirs)
    if not directories:
        return lambda: local_data_dirs(data_dir_of(data_dir))
    if len(directories) == 1 and (directories[0] / "cluster.json").exists():
        return lambda: local_data_dirs(directories[0].expanduser().absolute())
    return lambda: by_position(directories)


def by_position(directories: Sequence[Path]) -> dict[str, list[Path]]:
    """Log directories under the ids in their meta.properties, else under their places on the command line (`dir1`, `dir2`, …)."""
    from kraftlite.config.properties import parse_properties

    found: dict[str, list[Path]] = {}
    for place, directory in enumerate(directories, start=1):
        path = directory.expanduser().absolute()
        try:
            values = {item.key: item.value for item in parse_properties(read_text(path / "meta.properties"))}
        except (OSError, ValueError):
            values = {}
        name = f"b{values['node.id']}" if values.get("node.id", "").isdecimal() else f"dir{place}"
        found.setdefault(name, []).append(path)
    return found


def _all_there(directories: dict[str, list[Path]]) -> dict[str, list[Path]]:
    """Raises CannotRun."""
    for name, paths in directories.items():
        for path in paths:
            if not path.is_dir():
                raise CannotRun(f"{name}={path}: there is no such directory")
    return directories


def _run(
    directories: Callable[[], dict[str, list[Path]]], engine: str, master: str, quiet: bool, options: dict[str, Any]
) -> AuditReport:
    from rich.console import Console

    from kraftlite.segments.directories import AuditInputError

    with spark_or_none("local", master, "audit"):  # what is not there is told before Spark is started, which takes seconds
        try:
            chosen = _all_there(directories())
        except AuditInputError as error:
            raise CannotRun(str(error)) from None
    with Console(stderr=True, quiet=quiet).status("starting …") as status, spark_or_none(engine, master, "audit") as spark:
        from kraftlite.spark.jobs.audit import audit

        try:
            return audit(
                chosen,
                engine=engine,
                spark=spark,
                on_progress=lambda what, done, total: status.update(f"{what} … {f'{done} of {total}' if total else ''}"),
                **options,
            )
        except AuditInputError as error:
            raise CannotRun(str(error)) from None


def _show(found: AuditReport) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    table = Table(box=None, padding=(0, 2, 0, 0), title=f"{len(found.partitions)} partitions", title_justify="left")
    table.add_column("partition", no_wrap=True)
    for name in ("replicas", "MiB", "log ends", "same below", "acked"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    shown = [partition for partition in found.partitions if partition.violations or any(r.batches for r in partition.replicas)]
    for partition in shown:
        table.add_row(*_row(partition))
    console.print(table)
    if len(shown) < len(found.partitions):
        console.print(f"{len(found.partitions) - len(shown)} more partitions are empty")
    _show_findings(console, found)


def _row(partition: PartitionResult) -> list[str]:
    replicas = partition.replicas
    ends = sorted({replica.leo for replica in replicas})
    verdict = f"[bold red]{partition.violations} found[/]" if partition.violations else "[green]ok[/]"
    return [
        f"{partition.topic}-{partition.partition}",
        str(len(replicas)),
        f"{sum(replica.bytes for replica in replicas) / 2**20:,.1f}",
        "–".join(f"{end:,}" for end in (ends if len(ends) < 2 else [ends[0], ends[-1]])),
        "-" if partition.compared_below is None else f"{partition.compared_below:,}",
        f"{partition.acked:,}" if partition.acked else "-",
        verdict,
    ]


def _show_findings(console: Any, found: AuditReport) -> None:
    for finding in found.findings[:_SHOWN]:
        style = "bold red" if finding.severity == "violation" else "yellow"
        console.print(f"{finding.kind}", style=style, end="  ")
        name = f"{finding.topic}-{finding.partition}" if finding.partition >= 0 else finding.topic
        console.print(f"{finding.broker} {name}: {finding.detail}", markup=False, soft_wrap=True)
        where = f"position {finding.position}" if finding.position >= 0 else ""
        offset = f"offset {finding.offset}" if finding.offset >= 0 else ""
        console.print(f"    {' '.join(filter(None, (finding.file, where, offset)))}", markup=False, soft_wrap=True)
        if finding.other:
            console.print(f"    compared with {finding.other}", markup=False, soft_wrap=True)
    if len(found.findings) > _SHOWN:
        console.print(f"… and {len(found.findings) - _SHOWN} more: --json has all")
    size = f"{found.bytes / 2**20:,.0f} MiB in {found.seconds:.1f} s"
    if found.ok and not found.complete:
        console.print(f"INCOMPLETE: {size}, no violation in what could be read.", style="bold yellow")
    elif found.ok:
        console.print(f"OK: {size}, no violation.", style="bold green")
    else:
        console.print(f"VIOLATED: {len(found.violations)} findings; {size}.", style="bold red")
