"""The report of a swarm: what its runs reached, how often, how fast, and what they never reached."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from kraftlite.cli.common import print_table

if TYPE_CHECKING:
    from kraftlite.sim.code_reach import CodeReach
    from kraftlite.sim.corpus import Discovery
    from kraftlite.sim.coverage import Coverage
    from kraftlite.sim.swarm import Totals

ORIGINS = {"corpus": "kept plans", "changed": "changed plans", "seed": "plain seeds"}


def report(totals: Totals, code: CodeReach | None, *, missing: bool) -> None:
    coverage = totals.coverage
    states = sorted({state for pair in coverage.raft for state in pair})
    click.echo("quorum members: from state (row) to state (column)")
    _grid(states, states, lambda row, column: coverage.raft.get((row, column), 0))
    click.echo("\nevents by the state of the node's quorum member")
    events = sorted({event for _, event in coverage.events} | known_events())
    _grid(events, states, lambda row, column: coverage.events.get((column, row), 0))
    click.echo("\nanswers to clients")
    _lists(_answers(coverage))
    click.echo("\nnever reached")
    _lists(never(coverage))
    click.echo("\nwhat was known after so many runs")
    _curve(totals.discovery, with_code=code is not None)
    if code is not None:
        click.echo("\ncode")
        _code(code, missing=missing)
    if coverage.races:
        click.echo("\nraces of transactions that were met")
        click.echo("\n".join(f"  {name}: {count}" for name, count in sorted(coverage.races.items())))
    click.echo("\nfaults: " + ", ".join(f"{kind} {count}" for kind, count in sorted(coverage.faults.items())))
    click.echo("; ".join(f"{count} {name}" for name, count in sorted(totals.counts.items())))
    click.echo(
        f"{totals.runs} seeds in {totals.elapsed_s:.0f} s ({totals.seeds_per_minute:.0f} per minute), "
        f"{totals.virtual_ms / 3_600_000:.1f} h of virtual time, {len(totals.failures)} failed"
    )
    for summary in totals.failures:
        click.echo(f"{summary.outcome.name} {summary.checker}: {summary.reproduce}")


def as_json(totals: Totals, code: CodeReach | None) -> dict[str, Any]:
    coverage, discovery = totals.coverage, totals.discovery
    found: dict[str, Any] = {
        "seeds": totals.runs,
        "seconds": round(totals.elapsed_s, 1),
        "seeds_per_minute": round(totals.seeds_per_minute, 1),
        "virtual_ms": totals.virtual_ms,
        "counts": dict(sorted(totals.counts.items())),
        "raft_transitions": {f"{a}>{b}": count for (a, b), count in sorted(coverage.raft.items())},
        "events": {f"{state} {event}": count for (state, event), count in sorted(coverage.events.items())},
        "answers": {f"{api} {name}": count for (api, name), count in sorted(coverage.answers.items())},
        "faults": dict(sorted(coverage.faults.items())),
        "races": dict(sorted(coverage.races.items())),
        "never": never(coverage),
        "curve": [{"runs": it.runs, "pairs": it.pairs, "features": it.features, "steps": it.arcs} for it in discovery.points],
        "origins": {name: {"runs": count, "new": discovery.found[name]} for name, count in sorted(discovery.runs.items())},
        "failures": [
            {"seed": it.seed, "outcome": it.outcome.name, "checker": it.checker, "story": it.story, "reproduce": it.reproduce}
            for it in totals.failures
        ],
    }
    if code is not None:
        found["code"] = _code_as_json(code)
    return found


# --- states, events, answers


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


def never(coverage: Coverage) -> dict[str, list[str]]:
    """Events and faults that never happened, and errors that a broker may answer with and never did."""
    from kraftlite.sim.checkers.i38_refusals_deserved import DESERVED
    from kraftlite.sim.fault_plan import ALL_FAULTS, SCENE_FAULTS

    allowed = {(method.name, code.name) for method, codes in DESERVED.items() for code in codes}
    return {
        "events": sorted(known_events() - {event for _, event in coverage.events}),
        "faults": sorted({*ALL_FAULTS, *SCENE_FAULTS} - set(coverage.faults)),
        "answers": sorted(f"{api} {name}" for api, name in allowed - set(coverage.answers)),
    }


def _answers(coverage: Coverage) -> dict[str, list[str]]:
    """The codes of each API, the most frequent first."""
    by_api: dict[str, list[str]] = {}
    for (api, name), count in sorted(coverage.answers.items(), key=lambda it: (it[0][0], -it[1], it[0][1])):
        by_api.setdefault(api, []).append(f"{name} {count}")
    return by_api


def _lists(found: Mapping[str, Sequence[str]]) -> None:
    """A name and what belongs to it, in lines of at most 140 columns."""
    width = max(map(len, found), default=0) + 2
    for name, items in found.items():
        text = ", ".join(items) or "nothing"
        indent = " " * width
        click.echo(textwrap.fill(text, 140, initial_indent=name.ljust(width), subsequent_indent=indent, break_on_hyphens=False))


def _grid(rows: list[str], columns: list[str], count: Callable[[str, str], int]) -> None:
    """Numbers in aligned columns; a dot for what never happened."""
    width = max((len(row) for row in rows), default=0)
    click.echo(" " * width + "".join(f"{column:>13}" for column in columns))
    for row in rows:
        click.echo(f"{row:<{width}}" + "".join(f"{count(row, column) or '.':>13}" for column in columns))


def _curve(discovery: Discovery, *, with_code: bool) -> None:
    most = discovery.now.features or 1
    header = ("RUNS", "PAIRS", "EVERYTHING", *(("STEPS",) if with_code else ()), "")
    rows = [
        (it.runs, it.pairs, it.features, *((it.arcs,) if with_code else ()), "█" * round(40 * it.features / most))
        for it in discovery.points
    ]
    print_table(header, rows)
    if len(discovery.runs) > 1:
        print_table(
            ("ORIGIN", "RUNS", "NEW", "NEW PER RUN"),
            [
                (ORIGINS[name], count, discovery.found[name], f"{discovery.found[name] / count:.1f}")
                for name, count in sorted(discovery.runs.items())
            ],
        )


# --- code


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


def _code(code: CodeReach, *, missing: bool) -> None:
    header = ("PACKAGE", "FUNCTIONS", "UNREACHED", "WITH REASON", "WITHOUT", "BRANCHES", "UNREACHED")
    print_table(
        header,
        [
            (
                it.package,
                f"{it.reached}/{it.functions}",
                _percent(it.functions - it.reached, it.functions),
                it.with_reason,
                f"{it.open_functions} ({_percent(it.open_functions, it.functions)})",
                f"{it.branches_reached}/{it.branches}",
                _percent(it.branches - it.branches_reached, it.branches),
            )
            for it in code.rows
        ],
    )
    if missing:
        click.echo("\nfunctions that were never reached")
        rows = [(it.where, it.name.partition(":")[2], code.why(it) or "no reason") for it in code.functions if not it.reached]
        print_table(("WHERE", "FUNCTION", "WHY"), rows)
        click.echo("\nbranches of other functions that were never taken")
        print_table(("WHERE", "FUNCTION", "TO"), _branches(code))
    for name in code.idle_reasons:
        click.echo(f"kraftlite/sim/unreached.toml has a reason for {name}, which is reached by now or gone: remove it")


def _branches(code: CodeReach) -> list[tuple[str, str, str]]:
    return [
        (f"kraftlite/{it.path}:{begin}", it.name.partition(":")[2], f"line {end}" if end > 0 else "the end")
        for it in code.functions
        if it.reached
        for begin, end in it.missing
    ]


def _code_as_json(code: CodeReach) -> dict[str, Any]:
    return {
        "packages": {
            it.package: {
                "functions": it.functions,
                "functions_reached": it.reached,
                "with_reason": it.with_reason,
                "branches": it.branches,
                "branches_reached": it.branches_reached,
            }
            for it in code.rows
        },
        "unreached": [{"function": it.name, "where": it.where, "why": code.why(it)} for it in code.functions if not it.reached],
        "branches": [{"where": where, "function": name, "to": to} for where, name, to in _branches(code)],
        "idle_reasons": code.idle_reasons,
    }
