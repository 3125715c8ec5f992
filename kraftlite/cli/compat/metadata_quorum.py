"""kafka-metadata-quorum. Source: TO-20; Kafka's MetadataQuorumCommand."""

from __future__ import annotations

import time
from collections.abc import Sequence

import click

from kraftlite.cli.compat.tool import Parser, ToolError, UsageError, cluster_of
from kraftlite.cli.quorum import replication_lines, status_lines
from kraftlite.local.client import quorum_of


def run(arguments: Sequence[str]) -> int:
    parser = Parser("kafka-metadata-quorum", "This tool describes kraft metadata quorum status.")
    parser.connection(controller=True)
    actions = parser.add_subparsers(dest="command", metavar="COMMAND")
    describe = actions.add_parser("describe", tool="kafka-metadata-quorum describe")
    for name in ("status", "replication", "human-readable"):
        describe.add_argument(f"--{name}", action="store_true")
    describe.add_argument("--re", dest="replication", action="store_true", help="Short for --replication.")
    actions.add_parser("add-controller", tool="kafka-metadata-quorum add-controller")
    remove = actions.add_parser("remove-controller", tool="kafka-metadata-quorum remove-controller")
    for short, name in (("-i", "controller-id"), ("-d", "controller-directory-id")):
        remove.add_argument(short, f"--{name}")
    options = parser.read(arguments)
    if options.command is None:
        raise UsageError("too few arguments: one of describe, add-controller, remove-controller")
    if options.command != "describe":
        raise ToolError(f"{options.command}: the voters of this cluster are static (kraft.version 0)")
    if options.status and options.replication:
        raise ToolError("Only one of --status or --replication should be specified with describe sub-command")
    if options.human_readable and not options.replication:
        raise ToolError("--human-readable is only valid with --replication")
    if not (options.status or options.replication):
        raise ToolError("One of --status or --replication must be specified with describe sub-command")
    cluster = cluster_of(options)
    quorum = quorum_of(cluster)
    if options.status:
        cluster.brokers()
        lines = status_lines(quorum, cluster.cluster_id)
    else:
        lines = replication_lines(quorum, int(time.time() * 1000) if options.human_readable else None)
    for line in lines:
        click.echo(line)
    return 0
