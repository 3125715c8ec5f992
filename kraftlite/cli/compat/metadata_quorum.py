"""kafka-metadata-quorum. Source: TO-20; Kafka's MetadataQuorumCommand."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import click

from kraftlite.cli.compat.tool import Parser, ToolError, UsageError, cluster_of, cluster_with, read_properties
from kraftlite.cli.quorum import replication_lines, status_lines
from kraftlite.cli.target import CONFIG_OPTION, EFFECTIVE, SERVERS
from kraftlite.cli.voters import VoterError, add_controller, remove_controller
from kraftlite.client.cluster import ClusterClient
from kraftlite.client.properties import KNOWN, is_security
from kraftlite.local.client import quorum_of
from kraftlite.model.ids import node_id_of
from kraftlite.model.limits import MAX_INT32


def run(arguments: Sequence[str]) -> int:
    parser = Parser("kafka-metadata-quorum", "This tool describes kraft metadata quorum status.")
    parser.connection(controller=True)
    actions = parser.add_subparsers(dest="command", metavar="COMMAND")
    describe = actions.add_parser("describe", tool="kafka-metadata-quorum describe")
    for name in ("status", "replication", "human-readable"):
        describe.add_argument(f"--{name}", action="store_true")
    describe.add_argument("--re", dest="replication", action="store_true", help="Short for --replication.")
    add = actions.add_parser("add-controller", tool="kafka-metadata-quorum add-controller")
    add.add_argument("--dry-run", action="store_true")
    remove = actions.add_parser("remove-controller", tool="kafka-metadata-quorum remove-controller")
    for short, name in (("-i", "controller-id"), ("-d", "controller-directory-id")):
        remove.add_argument(short, f"--{name}")
    remove.add_argument("--dry-run", action="store_true")
    options = parser.read(arguments)
    if options.command is None:
        raise UsageError("too few arguments: one of describe, add-controller, remove-controller")
    if options.command != "describe":
        return _change(options)
    if options.status and options.replication:
        raise ToolError("Only one of --status or --replication should be specified with describe sub-command")
    if options.human_readable and options.status:
        raise ToolError("The option --human-readable is only supported along with --replication")
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


def _client_of_controller(options: argparse.Namespace) -> ClusterClient:
    """The client that adds a controller. The file that describes the controller has its properties, too, as in Kafka: with
    `security.protocol` those that protect, which a controller's own `ssl.*` may be."""
    given = read_properties(options.command_config, CONFIG_OPTION)
    protects = given.get("security.protocol", "PLAINTEXT").upper() != "PLAINTEXT"
    names = {*EFFECTIVE, *(name for name in KNOWN if protects and is_security(name))}
    properties = {name: value for name, value in given.items() if name in names}
    return cluster_with(options, properties, given.get(SERVERS), options.command_config, CONFIG_OPTION)


def _change(options: argparse.Namespace) -> int:
    """Add a controller, whose server.properties `--command-config` is, or remove one."""
    try:
        if options.command == "add-controller":
            if not options.command_config:
                raise UsageError("add-controller: --command-config names the server.properties of the controller")
            cluster = _client_of_controller(options)
            click.echo(add_controller(cluster, Path(options.command_config), dry_run=options.dry_run))
            return 0
        if not options.controller_id or not options.controller_directory_id:
            raise UsageError("remove-controller needs --controller-id/-i and --controller-directory-id/-d")
        node_id = node_id_of(options.controller_id)
        if node_id is None:
            raise UsageError(f"--controller-id {options.controller_id}: allowed is a whole number from 0 to {MAX_INT32}")
        click.echo(remove_controller(cluster_of(options), node_id, options.controller_directory_id, dry_run=options.dry_run))
    except VoterError as error:
        raise ToolError(str(error)) from None
    return 0
