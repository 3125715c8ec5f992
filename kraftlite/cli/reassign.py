"""reassign list|start|cancel: move partitions to other brokers (KIP-455)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kraftlite.cli.common import output_option, print_json, print_table
from kraftlite.cli.target import Target, target_options
from kraftlite.client.admin import Partition, alter_reassignments, list_reassignments
from kraftlite.model.errors import ErrorCode
from kraftlite.model.limits import MAX_INT32
from kraftlite.model.numbers import whole
from kraftlite.model.shown import shown

if TYPE_CHECKING:
    from kraftlite.client.cluster import ClusterClient


def _partition(text: str) -> Partition:
    topic, _, index = text.rpartition("-")
    number = whole(index, MAX_INT32)
    if not topic or number is None:
        raise click.UsageError(f"{shown(text)}: allowed is topic-partition, for example orders-0")
    return topic, number


@click.command("list")
@target_options
@output_option
def list_command(target: Target, output: str) -> None:
    """The partitions that are being moved."""
    moving = list_reassignments(target.cluster())
    rows = [
        {
            "topic": topic,
            "partition": index,
            "replicas": [int(node) for node in one.replicas],
            "adding": [int(node) for node in one.adding_replicas],
            "removing": [int(node) for node in one.removing_replicas],
        }
        for (topic, index), one in sorted(moving.items())
    ]
    if output == "json":
        print_json(rows)
    elif not rows:
        click.echo("No partition is being moved.")
    else:
        shown = [
            [row["topic"], row["partition"], *(_joined(row[key]) for key in ("replicas", "adding", "removing"))] for row in rows
        ]
        print_table(("TOPIC", "PARTITION", "REPLICAS", "ADDING", "REMOVING"), shown)


def _joined(nodes: object) -> str | None:
    assert isinstance(nodes, list)
    return ",".join(str(node) for node in nodes) or None


@click.command("start")
@click.argument("moves", nargs=-1, required=True, metavar="TOPIC-PARTITION=ID,ID,…")
@target_options
def start_command(moves: tuple[str, ...], target: Target) -> None:
    """Give partitions other replicas, preferred leader first: reassign start orders-0=4,5,1."""
    wanted: dict[Partition, list[int] | None] = {}
    for item in moves:
        name, _equals, text = item.partition("=")
        brokers = [whole(one.strip(), MAX_INT32) for one in text.split(",")]
        known = [broker for broker in brokers if broker is not None]
        if len(known) < len(brokers):
            raise click.UsageError(f"{shown(item)}: allowed is topic-partition=1,2,3")
        wanted[_partition(name)] = known
    _alter(target.cluster(), wanted, "Started moving")


@click.command("cancel")
@click.argument("partitions", nargs=-1, metavar="TOPIC-PARTITION…")
@click.option("--all", "everything", is_flag=True, help="All that are being moved.")
@target_options
def cancel_command(partitions: tuple[str, ...], everything: bool, target: Target) -> None:
    """Back to the replicas before the move."""
    if bool(partitions) == everything:
        raise click.UsageError("give either partitions or --all")
    cluster = target.cluster()
    chosen = list(list_reassignments(cluster)) if everything else [_partition(one) for one in partitions]
    _alter(cluster, dict.fromkeys(chosen), "Cancelled moving")


def _alter(cluster: ClusterClient, wanted: dict[Partition, list[int] | None], done: str) -> None:
    failed = 0
    for (topic, index), (code, message) in sorted(alter_reassignments(cluster, wanted).items()):
        if code is ErrorCode.NONE:
            click.echo(f"{done} {topic}-{index}.")
        else:
            failed += 1
            click.echo(f"error: {topic}-{index}: {code.name}: {message or 'refused'}", err=True)
    if failed:
        raise click.ClickException(f"{failed} of {len(wanted)} partitions were refused")
