"""`kraftlite swarm`: clusters on virtual time, thousands of them, and what they reached."""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kraftlite.cli.common import output_option, print_json
from kraftlite.cli.sim import checked_theme, milliseconds
from kraftlite.cli.swarm_report import as_json, report

if TYPE_CHECKING:
    from kraftlite.sim.code_reach import CodeReach
    from kraftlite.sim.corpus import GuidedPlans, Plans
    from kraftlite.sim.swarm import Summary, Totals


@click.command("swarm")
@click.option("--seeds", type=int, default=200, show_default=True, metavar="N", help="How many runs.")
@click.option(
    "--theme",
    "names",
    multiple=True,
    metavar="NAME",
    help="What the runs are about, in turn; if not given, the settled themes, and all of them to measure code.",
)
@click.option("--from", "first", type=int, default=1, show_default=True, metavar="N", help="The first seed.")
@click.option(
    "--duration", type=float, default=15.0, show_default=True, metavar="SECONDS", help="Phase with faults, virtual seconds."
)
@click.option("--budget", type=float, metavar="SECONDS", help="Begin no new seed after this much real time.")
@click.option("--workers", type=int, metavar="N", help="Processes; one per core if not given.")
@click.option("--stop-at", type=int, default=5, show_default=True, metavar="N", help="Give up after so many failing seeds.")
@click.option("--keep", type=click.Path(path_type=Path), metavar="FILE", help="Append failures to this regressions.toml.")
@click.option("--guided", is_flag=True, help="Also try changes of what reached something new, in this swarm and in earlier ones.")
@click.option(
    "--corpus", type=click.Path(path_type=Path), metavar="DIR", help="Where --guided keeps it; a directory of the user's cache."
)
@click.option("--coverage", "code", is_flag=True, help="Measure which functions and branches are reached; takes longer.")
@click.option("--coverage-missing", "missing", is_flag=True, help="The same, and list those that are not.")
@output_option
def swarm_command(
    seeds: int,
    names: tuple[str, ...],
    first: int,
    duration: float,
    budget: float | None,
    workers: int | None,
    stop_at: int,
    keep: Path | None,
    guided: bool,
    corpus: Path | None,
    code: bool,
    missing: bool,
    output: str,
) -> None:
    """Run many seeds on all cores, each with a cluster, a workload and faults of its own.

    A failing seed is shrunk to the shortest schedule of faults that still fails and printed as the command that runs it again. At
    the end: seeds per minute, and which states, transitions, answers and faults were reached how often. Exit status as of
    `kraftlite sim`.
    """
    from kraftlite.sim.corpus import Plans
    from kraftlite.sim.swarm import swarm
    from kraftlite.sim.themes import SETTLED, THEMES

    if seeds < 1:
        raise click.ClickException(f"--seeds {seeds}: allowed is 1 or more")
    if corpus is not None and not guided:
        raise click.UsageError("--corpus is where --guided keeps its plans: give both, or none")
    measured = code or missing
    if measured:
        _check_code()
    duration_ms = milliseconds(duration, "--duration")
    themes = tuple(map(checked_theme, names)) or (tuple(THEMES) if measured else SETTLED)
    guide = _guide(corpus, seeds, first, duration_ms, themes) if guided else None
    plans: Plans = guide[0] if guide is not None else Plans(range(first, first + seeds), duration_ms, themes)
    progress = _Progress(seeds)
    totals = swarm(plans, code=measured, workers=workers, budget_s=budget, stop_at_failures=stop_at, on_result=progress)
    progress.close()
    if keep is not None and totals.failures:
        from kraftlite.sim.regressions import append

        append(keep, totals.failures)
    if guide is not None:
        _save(*guide)
    reached = _measure(totals) if measured else None
    if output == "json":
        print_json(as_json(totals, reached))
    else:
        report(totals, reached, missing=missing)
    sys.exit(max((int(it.outcome) for it in totals.failures), default=0))


def _guide(corpus: Path | None, runs: int, first: int, duration_ms: int, themes: tuple[str, ...]) -> tuple[GuidedPlans, Path]:
    from kraftlite.sim.corpus import GuidedPlans, default_dir, load

    directory = default_dir(os.environ) if corpus is None else corpus
    try:
        kept = load(directory)
    except (ValueError, OSError) as error:
        raise click.ClickException(f"--corpus: {error}") from None
    rng = random.Random(f"guided/{first}")
    plans = GuidedPlans(range(first, first + runs), duration_ms, themes, runs=runs, corpus=kept, rng=rng)
    return plans, directory


def _save(guide: GuidedPlans, directory: Path) -> None:
    from kraftlite.sim.corpus import save

    try:
        save(directory, guide.keeps())
    except OSError as error:
        raise click.ClickException(f"--corpus {directory}: {error.strerror or error}") from None


def _check_code() -> None:
    """Raises ClickException before the first run for what would be wrong after the last."""
    from kraftlite.sim.code_reach import CoverageMissing, Tracer, read_reasons

    try:
        Tracer()
        read_reasons()
    except (CoverageMissing, ValueError, OSError) as error:
        raise click.ClickException(f"--coverage: {error}") from None


def _measure(totals: Totals) -> CodeReach:
    from kraftlite.sim.code_reach import CodeReach, measure, read_reasons

    return CodeReach(measure(totals.arcs), read_reasons())


class _Progress:
    """A bar on a terminal, a line every hundred seeds elsewhere; a failure is printed at once."""

    def __init__(self, seeds: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self._console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("seeds"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]:.0f}/min {task.fields[failed]} failed"),
            TimeElapsedColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._task = self._progress.add_task("seeds", total=seeds, rate=0.0, failed=0)
        self._progress.start()

    def __call__(self, summary: Summary, totals: Totals) -> None:
        self._progress.update(self._task, completed=totals.runs, rate=totals.seeds_per_minute, failed=len(totals.failures))
        if not self._console.is_terminal and totals.runs % 100 == 0:
            click.echo(f"{totals.runs} seeds, {totals.seeds_per_minute:.0f} per minute, {len(totals.failures)} failed", err=True)
        if summary.outcome:
            click.echo(
                f"seed {summary.seed}: {summary.outcome.name} {summary.checker}: {summary.story.splitlines()[0]}\n"
                f"  shrunk in {summary.shrink_runs} runs: {summary.reproduce}",
                err=True,
            )

    def close(self) -> None:
        self._progress.stop()
