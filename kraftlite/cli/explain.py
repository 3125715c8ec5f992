"""explain: what happened to a partition, a topic, a node, the controller, a transactional id or a record, and why."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import click

from kraftlite.cli.common import data_dir_of, data_dir_option, local_errors, output_option, print_json, warn
from kraftlite.cli.times import moment
from kraftlite.local.recorded import history_of, read_history
from kraftlite.local.state import load
from kraftlite.model.shown import printable
from kraftlite.obs.explain import KINDS, Explanation, History, Subject, UnknownSubject, WallClock
from kraftlite.obs.explain import explain as explain_events
from kraftlite.obs.export import FORMATS
from kraftlite.obs.export.mermaid import MOST


@click.command("explain", context_settings={"ignore_unknown_options": False})
@click.argument("subject", type=click.Choice(KINDS), metavar="SUBJECT", required=False)
@click.argument("name", required=False)
@click.option("--since", metavar="TIME", help="From when on. Default: the first recorded event.")
@click.option("--until", metavar="TIME", help="Until when. Default: the last one.")
@click.option(
    "--trace",
    "files",
    multiple=True,
    type=click.Path(path_type=Path, exists=True),
    help="A node's trace file, instead of --data-dir.",
)
@click.option(
    "--metadata",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="DIR|FILE",
    help="A metadata log, of kraftlite or Apache Kafka, instead of traces. Repeatable.",
)
@click.option(
    "--format",
    "tool",
    type=click.Choice(["text", *FORMATS]),
    default="text",
    show_default=True,
    help="Print the stories for another tool: Perfetto, ShiViz, Mermaid, or a collector of OpenTelemetry (OTLP in JSON).",
)
@click.option(
    "--otlp", "collector", metavar="URL", help="Send the stories to a collector of OpenTelemetry, such as http://localhost:4318."
)
@data_dir_option
@output_option
def explain(
    subject: str | None,
    name: str | None,
    since: str | None,
    until: str | None,
    files: tuple[Path, ...],
    metadata: tuple[Path, ...],
    tool: str,
    collector: str | None,
    data_dir: Path | None,
    output: str,
) -> None:
    """Tell what happened, and why, from what the nodes recorded, or from a metadata log alone.

    \b
    kraftlite explain partition orders-0     its leaders, ISRs, gaps in writing, truncations
    kraftlite explain topic orders           the same for all of its partitions
    kraftlite explain node 2                 its starts, stops, silences and fencings
    kraftlite explain controller             the elections of the metadata quorum
    kraftlite explain transaction payments   a transactional id: its producers, transactions, markers, coordinators
    kraftlite explain cluster                elections, fencings, changes of leaders and ISRs, reassignments
    kraftlite explain acl User:alice         what was refused to a principal, or to all, and by which rule
    kraftlite explain record 1841            one record of the metadata log, its cause and its effect
    kraftlite explain --metadata DIR         the cluster, from the metadata log in a directory; with SUBJECT as above

    --format prints the same stories for another tool: docs/EXPLAIN.md says how each opens them.

    TIME is -5m (or ms, s, h, d) before now, 2026-01-31T12:00:00, Unix seconds, or seconds after the first recorded event.
    """
    if files and metadata:
        raise click.UsageError("--trace and --metadata exclude each other")
    if tool != "text" and output == "json":
        raise click.UsageError(f"--format {tool} and --json exclude each other")
    if collector is not None and (tool != "text" or output == "json"):
        raise click.UsageError("--otlp sends the stories instead of printing them: without --format and --json")
    if subject is None and not metadata:
        raise click.UsageError(f"explain what? One of {', '.join(KINDS)}")
    try:
        wanted = Subject.parse(subject or "cluster", name)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    with local_errors():
        if metadata:
            history = _of_metadata(metadata, wanted)
        else:
            history = read_history(files) if files else history_of(load(data_dir_of(data_dir), copied=True))
    warn(history.damage)
    now_ms = int(time.time() * 1000)
    since_ms = moment(since, "--since", now_ms, history.begin_ms)
    until_ms = moment(until, "--until", now_ms, history.begin_ms)
    if since_ms is not None and until_ms is not None and since_ms > until_ms:
        raise click.UsageError(f"--since {since} is after --until {until}")
    try:
        found = explain_events(history, wanted, since_ms=since_ms, until_ms=until_ms, clock=WallClock())
    except UnknownSubject as error:
        raise click.ClickException(str(error)) from None
    if collector is not None:
        from kraftlite.cli.collector import send

        count = len(_exported(found).stories)
        click.echo(f"{count} {'stories' if count != 1 else 'story'} sent to {send(collector, FORMATS['otlp'](found))}")
    elif tool != "text":
        _export(found, tool)
    elif output == "json":
        print_json(found.to_dict())
    else:
        for line in found.lines():
            click.echo(printable(line))


def _exported(found: Explanation) -> Explanation:
    if not found.stories:
        raise click.ClickException(f"{found.subject}: no story to export: nothing that changed it is recorded in this time")
    return found


def _export(found: Explanation, tool: str) -> None:
    text = FORMATS[tool](_exported(found))
    if tool == "mermaid" and len(text) > MOST:
        click.echo(
            f"warning: the diagram has {len(text)} characters, and Mermaid draws {MOST} unless its maxTextSize says more: "
            "a shorter time (--since, --until) has fewer",
            err=True,
        )
    click.echo(text)


def _of_metadata(given: Sequence[Path], wanted: Subject) -> History:
    """The events of a metadata log; what cannot be read of it is said on standard error."""
    from kraftlite.cli.metadata_files import metadata_errors, opened, tell_notes
    from kraftlite.postmortem.events import log_events
    from kraftlite.postmortem.reading import entries_of

    with metadata_errors():
        found = opened([path.expanduser() for path in given])
        image, start = found.oldest()
        topic = {"topic": wanted.name, "partition": wanted.name.rpartition("-")[0]}.get(wanted.kind)
        history = History(log_events(entries_of(found.batches(start)), image, topic=topic), log_only=True)
        if topic is not None and wanted.name not in (*history.partitions(), *history.topics()):
            history = History(log_events(entries_of(found.batches(start)), image), log_only=True)  # to say what there is instead
    tell_notes(found)
    return history
