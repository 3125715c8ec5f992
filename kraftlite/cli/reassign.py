"""reassign list|start|cancel: move partitions to other brokers (KIP-455)."""

from __future__ import annotations

import re

import click

from kraftlite.cli.admin_calls import Partition, alter_reassignments, list_reassignments
from kraftlite.cli.common import bootstrap_of, bootstrap_option, output_option, print_json, print_table
from kraftlite.local.client import cluster_at
from kraftlite.model.errors import ErrorCode

_PARTITION = re.compile(r"(.+)-(\d+)")


def _partition(text: str) -> Partition:
    found = _PARTITION.fullmatch(text)
    if found is None:
        raise click.UsageError(f"{text}: allowed is topic-partition, for example orders-0")
    return found[1], int(found[2])


@click.command("list")
@bootstrap_option
@output_option
def list_command(bootstrap_server: str | None, output: str) -> None:
    """The partitions that are being moved."""
    moving = list_reassignments(cluster_at(bootstrap_of(bootstrap_server)))
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
@bootstrap_option
def start_command(moves: tuple[str, ...], bootstrap_server: str | None) -> None:
    """Give partitions other replicas, preferred leader first: reassign start orders-0=4,5,1."""
    wanted: dict[Partition, list[int] | None] = {}
    for item in moves:
        name, _equals, text = item.partition("=")
        if not all(one.strip().isdecimal() for one in text.split(",")):
            raise click.UsageError(f"{item}: allowed is topic-partition=1,2,3")
        wanted[_partition(name)] = [int(one) for one in text.split(",")]
    _alter(bootstrap_of(bootstrap_server), wanted, "Started moving")


@click.command("cancel")
@click.argument("partitions", nargs=-1, metavar="TOPIC-PARTITION…")
@click.option("--all", "everything", is_flag=True, help="All that are being moved.")
@bootstrap_option
def cancel_command(partitions: tuple[str, ...], everything: bool, bootstrap_server: str | None) -> None:
    """Back to the replicas before the move."""
    if bool(partitions) == everything:
        raise click.UsageError("give either partitions or --all")
    bootstrap = bootstrap_of(bootstrap_server)
    chosen = list(list_reassignments(cluster_at(bootstrap))) if everything else [_partition(one) for one in partitions]
    _alter(bootstrap, dict.fromkeys(chosen), "Cancelled moving")


def _alter(bootstrap: str, wanted: dict[Partition, list[int] | None], done: str) -> None:
    failed = 0
    for (topic, index), (code, message) in sorted(alter_reassignments(cluster_at(bootstrap), wanted).items()):
        if code is ErrorCode.NONE:
            click.echo(f"{done} {topic}-{index}.")
        else:
            failed += 1
            click.echo(f"error: {topic}-{index}: {code.name}: {message or 'refused'}", err=True)
    if failed:
        raise click.ClickException(f"{failed} of {len(wanted)} partitions were refused")
