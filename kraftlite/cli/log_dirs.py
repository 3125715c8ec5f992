"""log-dirs: the directories of each broker, what lies in them, and moves between them (TO-26, JB-09, JB-12)."""

from __future__ import annotations

import click

from kraftlite.cli.common import output_option, print_json, print_table
from kraftlite.cli.target import Target, target_options
from kraftlite.client.admin import Partition, alter_replica_log_dirs, describe_log_dirs
from kraftlite.model.errors import ErrorCode


@click.command("describe")
@click.option("--broker", type=int, multiple=True, metavar="ID", help="Only these brokers.")
@click.option("--topic", multiple=True, metavar="NAME", help="Only these topics.")
@target_options
@output_option
def describe_log_dirs_command(broker: tuple[int, ...], topic: tuple[str, ...], target: Target, output: str) -> None:
    """The log directories of the brokers: size, free space, and the replicas in them."""
    cluster = target.cluster()
    partitions: list[Partition] | None = None
    if topic:
        known = cluster.topics(list(topic))
        missing = [name for name in topic if name not in known]
        if missing:
            raise click.ClickException(f"Topic '{missing[0]}' does not exist as expected")
        partitions = [(name, int(part.partition_index)) for name in known for part in known[name].partitions]
    found = {node: describe_log_dirs(cluster, node, partitions) for node in (broker or cluster.brokers())}
    if output == "json":
        print_json([{"broker": node, "log_dirs": directories} for node, directories in found.items()])
        return
    rows = [
        (
            node,
            directory["logDir"],
            directory["error"] or "-",
            len(directory["partitions"]),
            sum(replica["size"] for replica in directory["partitions"]),
            None if directory["usableBytes"] < 0 else directory["usableBytes"],
            None if directory["totalBytes"] < 0 else directory["totalBytes"],
        )
        for node, directories in found.items()
        for directory in directories
    ]
    print_table(("BROKER", "DIRECTORY", "ERROR", "REPLICAS", "BYTES", "USABLE", "TOTAL"), rows)
    if topic:
        click.echo("")
        print_table(
            ("BROKER", "PARTITION", "DIRECTORY", "BYTES", "OFFSET-LAG", "MOVING"),
            [
                (
                    node,
                    replica["partition"],
                    directory["logDir"],
                    replica["size"],
                    replica["offsetLag"],
                    "copy" if replica["isFuture"] else "-",
                )
                for node, directories in found.items()
                for directory in directories
                for replica in directory["partitions"]
            ],
        )


@click.command("move")
@click.option("--broker", type=int, required=True, metavar="ID", help="The broker whose replicas are moved.")
@click.option("--topic", required=True, metavar="NAME")
@click.option("--partition", type=int, multiple=True, metavar="N", help="Only these partitions; all if not given.")
@click.option("--to", "path", required=True, metavar="PATH", help="One of the broker's log.dirs; the present one cancels a move.")
@target_options
def move_replicas(broker: int, topic: str, partition: tuple[int, ...], path: str, target: Target) -> None:
    """Move replicas into another directory of their broker, while they are used."""
    cluster = target.cluster()
    known = cluster.topics([topic])
    if topic not in known:
        raise click.ClickException(f"Topic '{topic}' does not exist as expected")
    here = [int(part.partition_index) for part in known[topic].partitions if broker in [int(it) for it in part.replica_nodes]]
    wanted = sorted(partition) or here
    results = alter_replica_log_dirs(cluster, broker, {(topic, index): path for index in wanted})
    failed = False
    for (name, index), code in sorted(results.items()):
        if code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            click.echo(f"{name}-{index}: broker {broker} has no replica; it would be made in {path}")
        elif code is not ErrorCode.NONE:
            failed = True
            click.echo(f"{name}-{index}: {code.name}", err=True)
        else:
            click.echo(f"{name}-{index}: on its way to {path}")
    if failed:
        raise click.ClickException("some replicas cannot be moved")
