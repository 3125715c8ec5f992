"""log-dirs describe: what lies in which directory of each broker (TO-26)."""

from __future__ import annotations

import click

from kraftlite.cli.common import output_option, print_json, print_table
from kraftlite.cli.target import Target, target_options
from kraftlite.client.admin import Partition, describe_log_dirs


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
            ("BROKER", "PARTITION", "BYTES", "OFFSET-LAG"),
            [
                (node, replica["partition"], replica["size"], replica["offsetLag"])
                for node, directories in found.items()
                for directory in directories
                for replica in directory["partitions"]
            ],
        )
