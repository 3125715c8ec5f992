"""logs: the lines of all nodes of a local cluster as one, by time and by cause."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import click

from kraftlite.cli.common import data_dir_of, data_dir_option, local_errors, warn
from kraftlite.cli.times import since as since_of
from kraftlite.local.ledger import LEDGER_NAME
from kraftlite.local.recorded import history_of, nothing_recorded, read_history
from kraftlite.local.state import LocalError, load
from kraftlite.model.shown import printable
from kraftlite.obs.explain import KINDS, Subject, UnknownSubject, explain
from kraftlite.obs.explain_events import Recorded
from kraftlite.obs.levels import level_of
from kraftlite.obs.log_levels import LEVELS
from kraftlite.obs.merged import Merged
from kraftlite.obs.tail import Line, Tail

_EVERY_S: Final = 0.25
_COLOURS: Final = {"debug": "bright_black", "warning": "yellow", "error": "red"}
_LEVEL_WIDTH: Final = max(map(len, LEVELS))
Place = tuple[int, int, str, int | None]
"""The time of an event, its node, its name, and the metadata record that it is or that caused it; a step may know none."""
Shown = Callable[[Line, str], str]
"""shown(line, level): the line as it is printed."""


@click.command("logs")
@click.option("--node", "nodes", multiple=True, type=click.IntRange(0), metavar="ID", help="Only of this node. Repeatable.")
@click.option("--follow", "-f", is_flag=True, help="Go on with what the nodes write, until Ctrl-C.")
@click.option("--since", metavar="SPAN", help="From 5m (or ms, s, h, d) before now on, or from 2026-01-31T12:00:00 on.")
@click.option("--grep", metavar="TEXT", help="Only lines that have this text.")
@click.option(
    "--level", type=click.Choice([*LEVELS]), default="debug", show_default=True, help="Only events of this level or a higher one."
)
@click.option(
    "--trace",
    "files",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="A node's trace file, instead of --data-dir. Repeatable.",
)
@click.option(
    "--story",
    "subject",
    metavar="SUBJECT",
    help="Only the lines of which `explain` makes the stories of this: orders-0 (a partition), node=4, topic=orders, controller.",
)
@data_dir_option
@click.option("--json", "as_json", is_flag=True, help="Print the lines as JSON, each with its level.")
def logs(
    nodes: tuple[int, ...],
    follow: bool,
    since: str | None,
    grep: str | None,
    level: str,
    files: tuple[Path, ...],
    subject: str | None,
    data_dir: Path | None,
    as_json: bool,
) -> None:
    """Print what the nodes of the local cluster recorded, and its ledger of faults, as one log: by time, no effect before its
    cause."""
    if subject is not None and follow:
        raise click.UsageError("--story is of what is recorded, and excludes --follow")
    since_ms = since_of(since, int(time.time() * 1000))
    shown = _json_line if as_json else _text_line(coloured=sys.stdout.isatty() and not os.environ.get("NO_COLOR"))

    def wanted(line: Line, found: str) -> bool:
        event = line.event
        if steps is not None and not {place := _place(event), (*place[:3], None)} & steps:
            return False
        return LEVELS[found] >= LEVELS[level] and event.ms >= since_ms and (not nodes or event.node in nodes)

    with local_errors():
        sources = (lambda: list(files)) if files else cluster_files(data_dir_of(data_dir), nodes)
        steps = None if subject is None else _steps(subject, files, data_dir)
        told = 0
        try:
            for line in lines(sources, _pause if follow else None):
                told += 1
                found = level_of(line.event.event)
                if wanted(line, found) and (grep is None or grep in click.unstyle(shown(line, found))):
                    sys.stdout.write(shown(line, found) + "\n")
        except KeyboardInterrupt:
            return
        if not told and not nodes:
            raise nothing_recorded(files[0] if files else data_dir_of(data_dir))


def _place(event: Recorded) -> Place:
    cause = event.caused_by_record
    return event.ms, event.node, event.event, event.get("offset") if cause is None else cause


def _steps(subject: str, files: Sequence[Path], data_dir: Path | None) -> set[Place]:
    """The events of which the stories of a subject are made. Raises LocalError."""
    kind, named, name = subject.partition("=")
    try:
        wanted = Subject.parse(kind, name or None) if named or kind in KINDS else Subject.parse("partition", subject)
    except ValueError as error:
        raise click.UsageError(f"--story {subject}: {error}") from None
    history = read_history(files) if files else history_of(load(data_dir_of(data_dir)))
    warn(history.damage)
    try:
        found = explain(history, wanted)
    except UnknownSubject as error:
        raise click.ClickException(str(error)) from None
    return {
        (step.ms, step.node, step.event, step.record) for story in found.stories for step in story.steps if step.event is not None
    }


def _pause() -> None:
    sys.stdout.flush()
    time.sleep(_EVERY_S)


def lines(sources: Callable[[], Iterable[Path]], pause: Callable[[], None] | None) -> Iterator[Line]:
    """Every line of the files once, merged; with `pause` also what comes, and `sources` is asked again after each."""
    merged = Merged([])
    with ExitStack() as opened:
        while True:
            known = {tail.path for tail in merged.tails}
            for path in sources():
                if path not in known:
                    merged.tails.append(tail := Tail(path))
                    opened.callback(tail.close)
                    tail.look()
            merged.look()
            yield from merged.settled()
            if pause is None:
                return
            pause()


def cluster_files(directory: Path, nodes: Sequence[int]) -> Callable[[], list[Path]]:
    """The trace files of the cluster as it is when they are asked for; it may grow. Raises LocalError."""
    found: list[Path] = []

    def paths() -> list[Path]:
        try:
            cluster = load(directory)
        except LocalError:
            if found:
                return found  # it was wiped: what it wrote is told to its end
            raise
        if not found:
            for node_id in nodes:
                cluster.node(node_id)
        wanted = [node.trace_path for node in cluster.nodes if not nodes or node.id in nodes]
        found[:] = [*wanted, directory / LEDGER_NAME]
        return found

    return paths


def _json_line(line: Line, level: str) -> str:
    """ASCII: nothing in it acts upon a terminal."""
    return json.dumps({**line.raw, "level": level}, separators=(",", ":"))


def _text_line(*, coloured: bool) -> Shown:
    def text(line: Line, level: str) -> str:
        event = line.event
        at = f"{datetime.fromtimestamp(event.ms // 1000):%Y-%m-%d %H:%M:%S}.{event.ms % 1000:03d}"
        name, word = printable(event.event), level.upper().ljust(_LEVEL_WIDTH)
        if coloured:
            name, word = click.style(name, bold=True), click.style(word, fg=_COLOURS.get(level))
        words = " ".join(f"{printable(fact)}={_fact(value)}" for fact, value in event.told.items())
        return f"{at}  node {event.node}  {word}  {name}  {words}".rstrip()

    return text


def _fact(value: Any) -> str:
    if isinstance(value, str):
        text = printable(value)
        return text if text and " " not in text else f'"{text}"'
    if isinstance(value, list):
        if len(value) == 2 and isinstance(value[0], str) and isinstance(value[1], int):
            return f"{printable(value[0])}-{value[1]}"  # a partition
        return f"({','.join(_fact(one) for one in value)})"
    return printable(json.dumps(value))
