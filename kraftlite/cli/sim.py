"""`kraftlite sim` and `kraftlite swarm`: the cluster on virtual time, one seed or thousands."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from kraftlite.cli.common import output_option, print_json

if TYPE_CHECKING:
    from kraftlite.runtime.trace import TraceEvent
    from kraftlite.sim.fault_plan import FaultPlan
    from kraftlite.sim.run import RunResult
    from kraftlite.sim.shape import Shape
    from kraftlite.sim.swarm import Summary, Totals
    from kraftlite.simhost.host import SimHost

QUIET_EVENTS = frozenset({"controller.stable_advanced", "raft.hw_advanced", "raft.batch_appended", "metadata.image_published"})
"""Left out of a trace that is printed; a trace file has everything."""


class _SimCommand(click.Command):
    """`--explain KIND NAME`, and `--explain controller`, which takes no name."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = args.index("--explain") if "--explain" in args else len(args)
        if args[at + 1 : at + 2] == ["controller"]:
            args = [*args[: at + 2], "", *args[at + 2 :]]
        return super().parse_args(ctx, args)


@click.command("sim", cls=_SimCommand)
@click.option("--seed", type=int, required=True, metavar="N", help="Decides everything that is left to chance.")
@click.option(
    "--shape", metavar="NAME", help="A named cluster instead of one drawn from the seed: 3+3, 1+1, 1+3, 3c, 5+5, defaults."
)
@click.option(
    "--duration", type=float, default=15.0, show_default=True, metavar="SECONDS", help="Length of the phase with faults."
)
@click.option(
    "--fault", "fault_lines", multiple=True, metavar="LINE", help="A fault, e.g. '12000 kill leader t1-0 for 3000'. Repeatable."
)
@click.option("--no-faults", is_flag=True, help="None of the faults that the seed would draw.")
@click.option("--until", type=float, metavar="SECONDS", help="Print no event that is later than this.")
@click.option(
    "--trace", type=click.Path(path_type=Path), metavar="FILE", help="Write every event to FILE (- for standard output)."
)
@click.option(
    "--explain", nargs=2, metavar="KIND [NAME]", help="Tell one story: --explain partition orders-0, --explain controller."
)
@output_option
def sim(
    seed: int,
    shape: str | None,
    duration: float,
    fault_lines: tuple[str, ...],
    no_faults: bool,
    until: float | None,
    trace: Path | None,
    explain: tuple[str, str] | None,
    output: str,
) -> None:
    """Run one seed: a whole cluster, its clients and its faults in virtual time.

    The same seed gives the same run, event for event. Exit status: 0 all checks hold, 3 a node or the simulator crashed, 4 a
    safety check failed, 5 a liveness check failed.
    """
    from kraftlite.sim.fault_plan import UnknownNode
    from kraftlite.sim.run import RunPlan, run

    plan = RunPlan(
        seed=seed,
        shape=_shape(shape),
        duration_ms=_milliseconds(duration, "--duration"),
        faults=_faults(fault_lines, no_faults),
    )
    out = _open(trace)
    limit_us = None if until is None else int(until * 1_000_000)
    events: list[tuple[int, SimHost, TraceEvent]] = []

    def sink(now_us: int, node: SimHost, event: TraceEvent) -> None:
        if limit_us is not None and now_us > limit_us:
            return
        if out is not None and (out is not sys.stdout or event.event not in QUIET_EVENTS):
            out.write(render_event(now_us, node, event) + "\n")
        if explain is not None:
            events.append((now_us // 1000, node, event))

    try:
        result = run(plan, sink=sink)
    except UnknownNode as error:
        raise click.ClickException(f"--fault: {error}") from None
    if out is not None and out is not sys.stdout:
        out.close()
    if explain is not None:
        _explain(events, explain)
    if output == "json":
        print_json(_as_json(result))
    else:
        _tell(result)
    sys.exit(int(result.outcome))


def render_event(now_us: int, node: SimHost, event: TraceEvent) -> str:
    facts = " ".join(f"{name}={value}" for name, value in event.facts().items())
    return f"{now_us / 1_000_000:12.6f}  n{node.node_id}.{node.boots}  {event.event:<32} {facts}"


def _milliseconds(seconds: float, option: str) -> int:
    if not 0.1 <= seconds <= 3600:
        raise click.ClickException(f"{option} {seconds:g}: allowed is 0.1 to 3600 seconds")
    return int(seconds * 1000)


def _shape(name: str | None) -> Shape | None:
    from kraftlite.sim.shape import NAMED

    if name is None:
        return None
    if name not in NAMED:
        raise click.ClickException(f"--shape {name!r}: allowed is one of {', '.join(NAMED)}")
    return NAMED[name]


def _faults(lines: tuple[str, ...], none: bool) -> tuple[FaultPlan, ...] | None:
    from kraftlite.sim.fault_plan import parse

    if lines and none:
        raise click.ClickException("--fault and --no-faults exclude each other")
    try:
        return () if none else tuple(parse(line) for line in lines) or None
    except ValueError as error:
        raise click.ClickException(f"--fault: {error}") from None


def _open(path: Path | None) -> TextIO | None:
    if path is None:
        return None
    if str(path) == "-":
        return sys.stdout
    try:
        return path.open("w", encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"--trace {path}: {error.strerror}") from None


def _explain(events: list[tuple[int, SimHost, TraceEvent]], subject: tuple[str, str]) -> None:
    """The story as `kraftlite explain` tells it of a real cluster, in seconds since the start of the run."""
    from kraftlite.obs.explain import SecondsClock, Subject, UnknownSubject, explain, from_trace

    try:
        found = explain(
            [from_trace(now_ms, node.node_id, event) for now_ms, node, event in events],
            Subject.parse(*subject),
            clock=SecondsClock(),
        )
    except (UnknownSubject, ValueError) as error:
        raise click.ClickException(str(error)) from None
    click.echo(found.text())


def _as_json(result: RunResult) -> dict[str, object]:
    return {
        "seed": result.plan.seed,
        "shape": str(result.shape),
        "outcome": result.outcome.name,
        "checker": result.checker,
        "story": result.story,
        "trace": result.trace,
        "virtual_ms": result.virtual_ms,
        "events": result.events,
        "records": {"produced": result.produced, "acknowledged": result.acked, "consumed": result.consumed},
        "faults": [str(it) for it in result.faults],
        "injected": [{"at_ms": at_us // 1000, "what": text} for at_us, text in result.injected],
    }


def _tell(result: RunResult) -> None:
    click.echo(f"seed {result.plan.seed}: {result.shape}")
    for at_us, text in result.injected:
        click.echo(f"  {at_us / 1_000_000:9.3f} s  {text}")
    click.echo(
        f"{result.virtual_ms / 1000:.1f} s of virtual time, {result.events} events, trace {result.trace}; "
        f"{result.produced} records produced, {result.acked} acknowledged with an offset, {result.consumed} consumed, "
        f"{result.admin_calls} admin calls"
    )
    if result.excused:
        click.echo(f"{result.excused} partitions were entitled to lose records (power cuts or unclean elections)")
    if result.outcome:
        click.echo(f"{result.outcome.name} {result.checker}: {result.story}", err=True)
    else:
        click.echo("OK: every check holds")


@click.command("swarm")
@click.option("--seeds", type=int, default=200, show_default=True, metavar="N", help="How many seeds.")
@click.option("--from", "first", type=int, default=1, show_default=True, metavar="N", help="The first seed.")
@click.option(
    "--duration", type=float, default=15.0, show_default=True, metavar="SECONDS", help="Phase with faults, virtual seconds."
)
@click.option("--budget", type=float, metavar="SECONDS", help="Begin no new seed after this much real time.")
@click.option("--workers", type=int, metavar="N", help="Processes; one per core if not given.")
@click.option("--stop-at", type=int, default=5, show_default=True, metavar="N", help="Give up after so many failing seeds.")
@click.option("--keep", type=click.Path(path_type=Path), metavar="FILE", help="Append failures to this regressions.toml.")
@output_option
def swarm_command(
    seeds: int,
    first: int,
    duration: float,
    budget: float | None,
    workers: int | None,
    stop_at: int,
    keep: Path | None,
    output: str,
) -> None:
    """Run many seeds on all cores, each with a cluster, a workload and faults of its own.

    A failing seed is shrunk to the shortest schedule of faults that still fails and printed as the command that runs it again. At
    the end: seeds per minute, and which transitions and faults were reached how often. Exit status as of `kraftlite sim`.
    """
    from kraftlite.sim.swarm import swarm

    if seeds < 1:
        raise click.ClickException(f"--seeds {seeds}: allowed is 1 or more")
    progress = _Progress(seeds)
    totals = swarm(
        range(first, first + seeds),
        duration_ms=_milliseconds(duration, "--duration"),
        workers=workers,
        budget_s=budget,
        stop_at_failures=stop_at,
        on_result=progress,
    )
    progress.close()
    if keep is not None and totals.failures:
        from kraftlite.sim.regressions import append

        append(keep, totals.failures)
    if output == "json":
        print_json(_totals_as_json(totals))
    else:
        _report(totals)
    sys.exit(max((int(it.outcome) for it in totals.failures), default=0))


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


def _report(totals: Totals) -> None:
    coverage = totals.coverage
    states = sorted({state for pair in coverage.raft for state in pair})
    click.echo("quorum members: from state (row) to state (column)")
    _grid(states, states, lambda row, column: coverage.raft.get((row, column), 0))
    click.echo("\nevents by the state of the node's quorum member")
    events = sorted({event for _, event in coverage.events} | known_events())
    _grid(events, states, lambda row, column: coverage.events.get((column, row), 0))
    click.echo("\nfaults: " + ", ".join(f"{kind} {count}" for kind, count in sorted(coverage.faults.items())))
    click.echo("; ".join(f"{count} {name}" for name, count in sorted(totals.counts.items())))
    click.echo(
        f"{totals.runs} seeds in {totals.elapsed_s:.0f} s ({totals.seeds_per_minute:.0f} per minute), "
        f"{totals.virtual_ms / 3_600_000:.1f} h of virtual time, {len(totals.failures)} failed"
    )
    for summary in totals.failures:
        click.echo(f"{summary.outcome.name} {summary.checker}: {summary.reproduce}")


def known_events() -> set[str]:
    """The whole vocabulary, so that what was never reached is seen."""
    from kraftlite.runtime.trace import TraceEvent

    found: set[str] = set()
    todo: list[type[TraceEvent]] = [TraceEvent]
    while todo:
        cls = todo.pop()
        todo += cls.__subclasses__()
        if cls.event:
            found.add(cls.event)
    return found


def _grid(rows: list[str], columns: list[str], count: Callable[[str, str], int]) -> None:
    """Numbers in aligned columns; a dot for what never happened."""
    width = max(len(row) for row in rows)
    click.echo(" " * width + "".join(f"{column:>13}" for column in columns))
    for row in rows:
        click.echo(f"{row:<{width}}" + "".join(f"{count(row, column) or '.':>13}" for column in columns))


def _totals_as_json(totals: Totals) -> dict[str, object]:
    return {
        "seeds": totals.runs,
        "seconds": round(totals.elapsed_s, 1),
        "seeds_per_minute": round(totals.seeds_per_minute, 1),
        "virtual_ms": totals.virtual_ms,
        "counts": dict(sorted(totals.counts.items())),
        "raft_transitions": {f"{a}>{b}": count for (a, b), count in sorted(totals.coverage.raft.items())},
        "events": {f"{state} {event}": count for (state, event), count in sorted(totals.coverage.events.items())},
        "faults": dict(sorted(totals.coverage.faults.items())),
        "failures": [
            {"seed": it.seed, "outcome": it.outcome.name, "checker": it.checker, "story": it.story, "reproduce": it.reproduce}
            for it in totals.failures
        ],
    }
