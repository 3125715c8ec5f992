"""`kraftlite sim`: the cluster on virtual time, one seed."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TextIO

import click

from kraftlite.cli.common import output_option, print_json
from kraftlite.cli.what_if import compare

if TYPE_CHECKING:
    from kraftlite.runtime.trace import TraceEvent
    from kraftlite.sim.fault_plan import FaultPlan
    from kraftlite.sim.run import RunPlan, RunResult
    from kraftlite.sim.shape import Shape
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
@click.option("--seed", type=int, metavar="N", help="Decides everything that is left to chance.")
@click.option("--plan", "plan_text", metavar="JSON", help="A run as a swarm prints it, instead of --seed and what it decides.")
@click.option("--theme", default="plain", show_default=True, metavar="NAME", help="What the run is about (docs/TESTING.md).")
@click.option(
    "--shape", metavar="NAME", help="A named cluster instead of one drawn from the seed: 3+3, 1+1, 1+3, 3c, 5+5, defaults."
)
@click.option(
    "--duration", type=float, default=15.0, show_default=True, metavar="SECONDS", help="Length of the phase with faults."
)
@click.option(
    "--fault", "fault_lines", multiple=True, metavar="LINE", help="A fault, e.g. '12000 kill leader t1-0 for 3000'. Repeatable."
)
@click.option(
    "--scene",
    metavar="NAME",
    help="This scene of transactions or levels (of voters: --theme membership), again and again, instead of the seed's faults.",
)
@click.option("--no-faults", is_flag=True, help="None of the faults that the seed would draw.")
@click.option("--until", type=float, metavar="SECONDS", help="Print no event that is later than this.")
@click.option(
    "--trace", type=click.Path(path_type=Path), metavar="FILE", help="Write every event to FILE (- for standard output)."
)
@click.option(
    "--explain", nargs=2, metavar="KIND [NAME]", help="Tell one story: --explain partition orders-0, --explain controller."
)
@click.option(
    "--what-if",
    "changes",
    multiple=True,
    metavar="N=LINE",
    help="Run it again with this as its N-th fault (N= without it; seed=N: another seed for all but the cluster and the "
    "faults), and tell where the runs part. --record, --html and --ui are of this run. Repeatable.",
)
@click.option("--record", type=click.Path(path_type=Path), metavar="FILE", help="Write a recording (docs/RECORDINGS.md) to FILE.")
@click.option("--html", type=click.Path(path_type=Path), metavar="FILE", help="Write the run as a page in one file.")
@click.option("--ui", "page", is_flag=True, help="Then serve the page of the run until Ctrl-C.")
@output_option
def sim(
    seed: int | None,
    plan_text: str | None,
    theme: str,
    shape: str | None,
    duration: float,
    fault_lines: tuple[str, ...],
    scene: str | None,
    no_faults: bool,
    until: float | None,
    trace: Path | None,
    explain: tuple[str, str] | None,
    changes: tuple[str, ...],
    record: Path | None,
    html: Path | None,
    page: bool,
    output: str,
) -> None:
    """Run one seed: a whole cluster, its clients and its faults in virtual time.

    The same seed gives the same run, event for event. Exit status: 0 all checks hold, 3 a node or the simulator crashed, 4 a
    safety check failed, 5 a liveness check failed.

    A fault is `TIME KIND [TARGET] [and OTHER] [for MS] [amount N]`, where TARGET is a node id, `controller` or `leader T-P`.
    The kinds, with what N means for each, are in docs/TESTING.md, "Faults". An unknown kind is refused with the list of all.
    """
    from kraftlite.config.server import ConfigError
    from kraftlite.sim.fault_plan import UnknownNode
    from kraftlite.sim.recorded import run_recorded
    from kraftlite.sim.run import run

    if plan_text is not None and (seed is not None or shape is not None or fault_lines or scene or no_faults):
        raise click.UsageError("--plan says everything: no --seed, --shape, --fault, --scene or --no-faults with it")
    faults = _faults(fault_lines, no_faults)
    plan = _of_seed(seed, theme, shape, duration, faults, scene) if plan_text is None else _plan(plan_text)
    if changes:
        if trace or explain:
            raise click.UsageError("--what-if compares two runs: no --trace and no --explain with it")
        _run_again(plan, changes, output, record, html, page)
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

    lines: list[bytes] = []
    recorded = record is not None or html is not None or page
    try:
        result = run_recorded(plan, lines.append, sink=sink) if recorded else run(plan, sink=sink)
    except UnknownNode as error:
        raise click.ClickException(f"{'--fault' if plan_text is None else '--plan'}: {error}") from None
    except ConfigError as error:
        raise click.ClickException(f"--plan: {error}") from None
    if out is not None and out is not sys.stdout:
        out.close()
    if explain is not None:
        _explain(events, result, explain)
    if output == "json":
        print_json(_as_json(result))
    else:
        _tell(result)
    _hand_out(lines, record, html, page)
    sys.exit(int(result.outcome))


def _run_again(
    plan: RunPlan, changes: tuple[str, ...], output: str, record: Path | None, html: Path | None, page: bool
) -> NoReturn:
    lines: list[bytes] = []
    status = compare(plan, changes, output, lines.append if record or html or page else None)
    _hand_out(lines, record, html, page)
    sys.exit(status)


def _hand_out(lines: list[bytes], record: Path | None, html: Path | None, page: bool) -> None:
    """The recording as a file, as a page in a file, and as a page that is served."""
    from kraftlite.cli.recordings import show, tape_of_lines, write_file, write_html

    if record is not None:
        write_file(record, b"".join(lines), "--record")
    if html is None and not page:
        return
    tape = tape_of_lines(lines)
    if html is not None:
        write_html(tape, html)
    if page:
        show(tape, port=None, browser=False, as_json=False)


def _of_seed(
    seed: int | None, theme: str, shape: str | None, duration: float, faults: tuple[FaultPlan, ...] | None, scene: str | None
) -> RunPlan:
    from kraftlite.sim.run import RunPlan

    if seed is None:
        raise click.UsageError("--seed or --plan is missing")
    theme, duration_ms = checked_theme(theme), milliseconds(duration, "--duration")
    return _with_scene(RunPlan(seed=seed, theme=theme, shape=_shape(shape), duration_ms=duration_ms, faults=faults), scene)


def checked_theme(name: str) -> str:
    from kraftlite.sim.themes import THEMES

    if name not in THEMES:
        raise click.ClickException(f"--theme {name}: allowed is one of {', '.join(THEMES)}")
    return name


def render_event(now_us: int, node: SimHost, event: TraceEvent) -> str:
    facts = " ".join(f"{name}={value}" for name, value in event.facts().items())
    return f"{now_us / 1_000_000:12.6f}  n{node.node_id}.{node.boots}  {event.event:<32} {facts}"


def milliseconds(seconds: float, option: str) -> int:
    if not 0.1 <= seconds <= 3600:
        raise click.ClickException(f"{option} {seconds:g}: allowed is 0.1 to 3600 seconds")
    return int(seconds * 1000)


def _with_scene(plan: RunPlan, name: str | None) -> RunPlan:
    """The plan with the faults of a scene; None: as it is."""
    from kraftlite.sim.schedule import play, scene_names, stage

    if name is None:
        return plan
    if plan.faults is not None:
        raise click.UsageError("--scene says which faults there are: --fault and --no-faults cannot be given with it")
    known = scene_names(plan.theme)
    if name not in known:
        raise click.BadParameter(f"unknown scene {name!r}: known are {', '.join(known)}", param_hint="--scene")
    if plan.shape is None:
        plan = replace(plan, shape=stage(name))
    shape, _ = plan.drawn()
    return replace(plan, faults=play(plan.theme, name, plan.seed, shape, plan.duration_ms))


def _plan(text: str) -> RunPlan:
    from kraftlite.sim.plans import parse_plan

    try:
        return parse_plan(text)
    except ValueError as error:
        raise click.ClickException(f"--plan: {error}") from None


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


def _explain(events: list[tuple[int, SimHost, TraceEvent]], result: RunResult, subject: tuple[str, str]) -> None:
    """The story as `kraftlite explain` tells it of a real cluster, in seconds since the start of the run."""
    from kraftlite.obs.explain import SecondsClock, Subject, UnknownSubject, explain, from_trace
    from kraftlite.sim.ledger import entries

    try:
        found = explain(
            [
                *(from_trace(now_ms, node.node_id, event) for now_ms, node, event in events),
                *entries(result.plan.seed, result.injected)[0],
            ],
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
        "knobs": dict(result.shape.knobs),
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
