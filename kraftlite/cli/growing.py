"""add-broker, add-controller, remove-broker and remove-controller: a local cluster that grows and shrinks while it runs."""

from __future__ import annotations

from pathlib import Path

import click

from kraftlite.cli.common import data_dir_of, data_dir_option, local_errors, output_option, print_json
from kraftlite.local import growth
from kraftlite.local.ledger import author
from kraftlite.local.state import LocalNode

_NODE = click.argument("node", type=click.IntRange(0))


def _say(line: str) -> None:
    click.echo(line, err=True)


def _added(node: LocalNode, output: str, then: str) -> None:
    if output == "json":
        print_json(node.describe())
    else:
        click.echo(f"{node.roles[0]} {node.id} is in the cluster, at {node.kafka or node.controller}")
        click.echo(then, err=True)


@click.command("add-broker")
@data_dir_option
@output_option
def add_broker(data_dir: Path | None, output: str) -> None:
    """Start one more broker of the local cluster. New topics get replicas on it; others are moved with: kraftlite reassign."""
    with local_errors():
        node = growth.add_broker(data_dir_of(data_dir), say=_say, by=author("cli"))
    _added(node, output, "It has no replicas yet: new topics get some, and kraftlite reassign start moves others")


@click.command("add-controller")
@data_dir_option
@output_option
def add_controller(data_dir: Path | None, output: str) -> None:
    """Start one more controller of the local cluster, and add it to the voters of the metadata quorum when it has caught up."""
    with local_errors():
        node = growth.add_controller(data_dir_of(data_dir), say=_say, by=author("cli"))
    _added(node, output, "It votes: kraftlite quorum describe --status")


@click.command("remove-broker")
@_NODE
@click.option("--fewer-replicas", is_flag=True, help="Partitions for which no other broker is left go on with one replica less.")
@click.option(
    "--timeout",
    type=click.FloatRange(1, 1_000_000),
    default=growth.DRAIN_TIMEOUT_S,
    show_default=True,
    metavar="SECONDS",
    help="How long the replicas may take to move.",
)
@data_dir_option
@output_option
def remove_broker(node: int, fewer_replicas: bool, timeout: float, data_dir: Path | None, output: str) -> None:
    """Move all replicas off a broker of the local cluster, stop and unregister it, and remove its files.

    A node that is a controller, too, leaves the voters before.
    """
    with local_errors():
        growth.remove_broker(
            data_dir_of(data_dir),
            node,
            fewer_replicas=fewer_replicas,
            timeout_s=timeout,
            say=_say,
            by=author("cli"),
        )
    _removed(node, output)


@click.command("remove-controller")
@_NODE
@data_dir_option
@output_option
def remove_controller(node: int, data_dir: Path | None, output: str) -> None:
    """Remove a controller of the local cluster from the voters, also one that does not run, stop it, and remove its files."""
    with local_errors():
        growth.remove_controller(data_dir_of(data_dir), node, say=_say, by=author("cli"))
    _removed(node, output)


def _removed(node: int, output: str) -> None:
    if output == "json":
        print_json({"node": node, "done": "removed"})
    else:
        click.echo(f"node {node} is removed")
