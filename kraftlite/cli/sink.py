"""sink list, describe, finish and abort: what Spark queries have decided to write, and what they left open (SX-06)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kraftlite.cli.common import output_option, print_json, print_table
from kraftlite.cli.target import Target, target_options
from kraftlite.exactly_once.listing import QueryState, Stage, finish, queries
from kraftlite.exactly_once.listing import abort as abort_open
from kraftlite.exactly_once.protocol_core import Fate
from kraftlite.exactly_once.records import DEFAULT_PREFIX, STATE_TOPIC, BadRecord, Entry, check_name
from kraftlite.model.shown import printable

if TYPE_CHECKING:
    from kraftlite.client.kafka_client import KafkaClient

F = TypeVar("F", bound=Callable[..., Any])


state_topic_option = click.option(
    "--state-topic", default=STATE_TOPIC, show_default=True, metavar="TOPIC", help="The sink's option kraftlite.sink.state.topic."
)


def _state_options(function: F) -> F:
    prefix = click.option(
        "--prefix",
        default=DEFAULT_PREFIX,
        show_default=True,
        metavar="TEXT",
        help="The sink's option kraftlite.sink.transactional.id.prefix, for queries that have decided nothing yet.",
    )
    return state_topic_option(prefix(target_options(function)))


def reader(target: Target) -> KafkaClient:
    """A client for records, with the properties of the command's other client."""
    from kraftlite.client.kafka_client import KafkaClient

    return KafkaClient(target.cluster().settings)


def not_state(topic: str, error: BadRecord) -> str:
    return f"{printable(topic)} is not a state topic of the sink, or was tampered with: {error}"


def _found(target: Target, state_topic: str, prefix: str, query: str | None = None) -> list[QueryState]:
    try:
        check_name(prefix, "--prefix")
        if query is not None:
            check_name(query, "QUERY")
        found = queries(target.cluster(), reader(target), state_topic, prefix=prefix, only=query)
    except BadRecord as error:
        raise click.ClickException(
            f"{printable(state_topic)} is not a state topic of the sink, or was tampered with: {error}"
        ) from None
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if query is not None and not found:
        raise click.ClickException(
            f"{state_topic} has no decision of query {query}, and no transaction of it is open; try kraftlite sink list"
        )
    return found


@click.command("list")
@_state_options
@output_option
def list_command(target: Target, state_topic: str, prefix: str, output: str) -> None:
    """The queries that write exactly once: the newest batch that was decided, and what they have open.

    STATE is complete when every transaction of the newest batch is committed; unfinished when some are not yet, or have expired,
    so that the query has to be started again; staged when tasks have written and nothing is decided about it yet.
    """
    found = _found(target, state_topic, prefix)
    if output == "json":
        print_json([_as_json(it) for it in found])
        return
    header = ("QUERY", "STATE", "BATCH", "TASKS", "ROWS", "COMMITTED", "OPEN")
    print_table(header, [_row(it) for it in found])


def _row(it: QueryState) -> tuple[object, ...]:
    if it.decision is None:
        return it.query, it.state, None, None, None, None, len(it.stages)
    rows = sum(entry.rows for entry in it.decision.entries)
    committed = sum(fate is Fate.COMMITTED for fate in it.fates)
    return it.query, it.state, it.decision.batch, len(it.fates), rows, committed, len(it.stages)


@click.command("describe")
@click.argument("query")
@_state_options
@output_option
def describe_command(query: str, target: Target, state_topic: str, prefix: str, output: str) -> None:
    """Describe QUERY (Spark's id of it, or the job's): its newest decision, task by task, and what is open and not decided."""
    (it,) = _found(target, state_topic, prefix, query)
    if output == "json":
        print_json(_as_json(it))
        return
    if it.decision is None:
        click.echo(f"Query {it.query} has decided nothing yet.")
    else:
        rows = sum(entry.rows for entry in it.decision.entries)
        told = f"batch {it.decision.batch}, run {it.decision.run}, {len(it.fates)} tasks, {rows} rows: {it.state}"
        click.echo(f"Query {it.query}, {told}")
        print_table(
            ("TASK", "ROWS", "TRANSACTION", "TRANSACTIONAL-ID", "PRODUCER-ID", "EPOCH", "MARKER"),
            [
                (
                    e.task,
                    e.rows,
                    fate.value,
                    e.transactional_id,
                    e.producer_id,
                    e.epoch,
                    f"{e.marker_partition}@{e.marker_offset}",
                )
                for e, fate in zip(it.decision.entries, it.fates, strict=True)
            ],
        )
    if it.undecided:
        click.echo("\nOpen, and not decided:")
        _print_stages(it.undecided)


def _of(it: Entry | Stage) -> tuple[object, ...]:
    return it.transactional_id, it.producer_id, it.epoch


def _print_stages(stages: tuple[Stage, ...] | list[Stage]) -> None:
    rows = [(s.task, *_of(s), s.state, s.start_ms, _partitions(s)) for s in stages]
    print_table(("TASK", "TRANSACTIONAL-ID", "PRODUCER-ID", "EPOCH", "STATE", "SINCE-MS", "PARTITIONS"), rows)


def _partitions(stage: Stage) -> str:
    return ",".join(f"{topic}-{index}" for topic, index in stage.partitions)


@click.command("finish")
@click.argument("query")
@_state_options
@output_option
def finish_command(query: str, target: Target, state_topic: str, prefix: str, output: str) -> None:
    """Commit what QUERY has decided and not committed yet, which the query itself does when it is started again.

    Exit status 1 when some of it has expired: only the query itself can write that again.
    """
    (it,) = _found(target, state_topic, prefix, query)
    found = finish(reader(target), it)
    lost = [entry for entry, committed in found if not committed]
    if output == "json":
        print_json([{"task": entry.task, "rows": entry.rows, "committed": committed} for entry, committed in found])
    else:
        what = "nothing of it is decided" if it.decision is None else f"batch {it.decision.batch}"
        click.echo(f"Committed {len(found) - len(lost)} transactions of query {it.query}, {what}.")
    if lost:
        tasks = ", ".join(str(entry.task) for entry in lost)
        raise click.ClickException(
            f"what task {tasks} wrote has expired or was aborted: start the query again, which writes it again"
        )


@click.command("abort")
@click.argument("query")
@_state_options
@output_option
def abort_command(query: str, target: Target, state_topic: str, prefix: str, output: str) -> None:
    """Abort what QUERY has open, which fences it if it still runs. For queries that will not be started again.

    What is committed stays. A query that is started again all the same goes on as after a crash: its last batch runs again.
    """
    (it,) = _found(target, state_topic, prefix, query)
    found = abort_open(target.cluster(), it, prefix=prefix)
    if output == "json":
        print_json([stage._asdict() for stage in found])
        return
    if found:
        _print_stages(found)
    click.echo(f"Aborted {len(found)} transactions of query {it.query}.")
    committed = sum(fate is Fate.COMMITTED for fate in it.fates)
    if it.decision is not None and 0 < committed < len(it.fates):
        told = f"{committed} of its {len(it.fates)} tasks are committed and visible, the others are not"
        click.echo(f"Batch {it.decision.batch} stays in part: {told}. Only the query itself can write the rest.", err=True)


def _as_json(it: QueryState) -> dict[str, Any]:
    decision = it.decision
    return {
        "query": it.query,
        "state": it.state,
        "batch": None if decision is None else decision.batch,
        "run": None if decision is None else decision.run,
        "rows": None if decision is None else sum(entry.rows for entry in decision.entries),
        "tasks": [
            {
                "task": entry.task,
                "rows": entry.rows,
                "transaction": fate.value,
                "transactional_id": entry.transactional_id,
                "producer_id": entry.producer_id,
                "epoch": entry.epoch,
                "fingerprint": entry.fingerprint,
                "marker_partition": entry.marker_partition,
                "marker_offset": entry.marker_offset,
            }
            for entry, fate in zip(() if decision is None else decision.entries, it.fates, strict=True)
        ],
        "open": [{**stage._asdict(), "decided": stage not in it.undecided} for stage in it.stages],
    }
