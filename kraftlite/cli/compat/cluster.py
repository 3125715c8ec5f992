"""kafka-cluster. Source: TO-36; Kafka's ClusterTool."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

import click

from kraftlite.cli.compat.tool import Parser, ToolError, UsageError, cluster_of, whole
from kraftlite.cli.target import CONFIG_OPTION, CONFIG_VARIABLE
from kraftlite.client.cluster import ClusterClient, check
from kraftlite.client.errors import RequestRefused
from kraftlite.model.errors import ErrorCode


def run(arguments: Sequence[str]) -> int:
    parser = Parser("kafka-cluster", "The Kafka cluster tool.")
    actions = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name in ("cluster-id", "unregister", "list-endpoints"):
        action = actions.add_parser(name, tool=f"kafka-cluster {name}")
        action.add_argument("--bootstrap-server", "-b")
        action.add_argument("--bootstrap-controller", "-C")
        action.add_argument("-c", CONFIG_OPTION, metavar="FILE", default=os.environ.get(CONFIG_VARIABLE))
        action.add_argument("--config", metavar="FILE")
        if name == "unregister":
            action.add_argument("--id", "-i", type=whole(32))
        if name == "list-endpoints":
            action.add_argument("--include-fenced-brokers", action="store_true")
    options = parser.read(arguments)
    if options.command is None:
        raise UsageError("too few arguments: one of cluster-id, unregister, list-endpoints")
    cluster = _asked(options)
    if options.command == "cluster-id":
        cluster.brokers()
        click.echo(f"Cluster ID: {cluster.cluster_id}")
    elif options.command == "unregister":
        if options.id is None:
            raise UsageError("argument --id is required")
        _unregister(cluster, options.id)
    else:
        if options.bootstrap_controller is not None and options.include_fenced_brokers:
            raise ToolError("The option --include-fenced-brokers is only supported with --bootstrap-server option")
        _endpoints(cluster, fenced=options.include_fenced_brokers, controllers=options.bootstrap_controller is not None)
    return 0


def _asked(options: argparse.Namespace) -> ClusterClient:
    """`--config` is what `--command-config` was called before KIP-1147."""
    if options.config is None:
        return cluster_of(options)
    if options.command_config not in (None, os.environ.get(CONFIG_VARIABLE)):
        raise UsageError("--config and --command-config cannot be specified together.")
    return cluster_of(options, options.config, "--config")


def _unregister(cluster: ClusterClient, broker_id: int) -> None:
    try:
        check(cluster.call(64, 0, {"broker_id": broker_id}))
    except RequestRefused as error:
        if error.code is not ErrorCode.BROKER_ID_NOT_REGISTERED:
            raise
        raise ToolError(f"{error.reason}") from None
    click.echo(f"Broker {broker_id} is no longer registered.")


def _endpoints(cluster: ClusterClient, *, fenced: bool, controllers: bool) -> None:
    values = {
        "include_cluster_authorized_operations": False,
        "endpoint_type": 2 if controllers else 1,
        "include_fenced_brokers": fenced,
    }
    brokers = sorted(check(cluster.call(60, 2, values)).brokers, key=lambda one: int(one.broker_id))
    states = [] if controllers else ["STATE"]
    rows = [["ID", "HOST", "PORT", "RACK", *states, "ENDPOINT_TYPE"]]
    for one in brokers:
        state = ["fenced" if one.is_fenced else "unfenced"] if states else []
        kind = "controller" if controllers else "broker"
        rows.append([str(one.broker_id), str(one.host), str(one.port), one.rack or "null", *state, kind])
    least = (10, 4, 10, 10, *(10 for _ in states), 15)
    widths = [max(least[at], *(len(row[at]) for row in rows)) for at in range(len(rows[0]))]
    for row in rows:
        click.echo(" ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
