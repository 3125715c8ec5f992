"""kafka-client-metrics. Source: KIP-714; Kafka's ClientMetricsCommand."""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from typing import Final

import click

from kraftlite.cli.compat.tool import Parser, UsageError, cluster_of, exactly_one, java_int
from kraftlite.client.admin import alter_configs, describe_configs, list_resources
from kraftlite.client.cluster import ClusterClient
from kraftlite.client.errors import RequestRefused
from kraftlite.model.ids import random_uuid, uuid_to_str
from kraftlite.model.messages.choices import AlterConfigOp, ConfigResourceType

KIND = ConfigResourceType.CLIENT_METRICS


def run(arguments: Sequence[str]) -> int:
    parser = Parser("kafka-client-metrics", "This tool helps to manipulate and describe client metrics configurations.")
    parser.connection()
    for name in ("alter", "delete", "describe", "list", "generate-name"):
        parser.add_argument(f"--{name}", action="store_true")
    for name in ("name", "interval"):
        parser.add_argument(f"--{name}")
    for name in ("metrics", "match"):
        parser.add_argument(f"--{name}", action="append")
    options = parser.read(arguments)
    message = "Command must include exactly one action: --alter, --delete, --describe or --list."
    action = exactly_one(options, ("alter", "delete", "describe", "list"), message)
    _check(options, action)
    cluster = cluster_of(options)
    try:
        _carry_out(action, cluster, options)
    except RequestRefused as error:
        click.echo(f"Error while executing client metrics command : {error.reason}")
        return 1
    return 0


_HAVE: Final = {
    "delete": ("name",),
    "describe": ("name",),
    "list": (),
    "alter": ("name", "generate_name", "interval", "match", "metrics"),
}
"""The options of each action."""


def _check(options: argparse.Namespace, action: str) -> None:
    for name in _HAVE["alter"]:
        if getattr(options, name) not in (None, False) and name not in _HAVE[action]:
            raise UsageError(f'Option "[{action}]" can\'t be used with option "[{name.replace("_", "-")}]"')
    if action == "alter" and options.interval and java_int(options.interval) is None:
        raise UsageError(f"Invalid interval value {options.interval}. Enter an integer, or leave empty to reset.")


def _carry_out(action: str, cluster: ClusterClient, options: argparse.Namespace) -> None:
    if action == "list":
        click.echo("\n".join(list_resources(cluster, KIND)))
    elif action == "describe":
        names = list_resources(cluster, KIND)
        if options.name is not None and options.name not in names:
            click.echo(f"The client metric resource {options.name} doesn't exist and doesn't have dynamic config.")
            return
        for name in [options.name] if options.name else names:
            describe(cluster, name)
    elif action == "delete":
        if not options.name:
            raise UsageError("A client metrics resource name must be specified with --delete.")
        delete(cluster, options.name)
    else:
        _alter(cluster, options)


def describe(cluster: ClusterClient, name: str) -> None:
    click.echo(f"Client metrics configs for {name} are:")
    for entry in describe_configs(cluster, KIND, name):
        click.echo(f"  {entry.name}={entry.value}")


def delete(cluster: ClusterClient, name: str) -> None:
    present = [str(one.name) for one in describe_configs(cluster, KIND, name) if int(one.config_source) == 7]
    alter_configs(cluster, KIND, name, [(key, AlterConfigOp.DELETE, None) for key in present])
    click.echo(f"Deleted client metrics config for {name}.")


def _alter(cluster: ClusterClient, options: argparse.Namespace) -> None:
    if (options.name is not None) == options.generate_name:
        raise UsageError("One of --name or --generate-name must be specified with --alter.")
    name = uuid_to_str(random_uuid(random.SystemRandom())) if options.name is None else options.name
    given = {
        "interval.ms": options.interval,
        "metrics": None if options.metrics is None else ",".join(options.metrics),
        "match": None if options.match is None else ",".join(options.match),
    }
    changes = [
        (key, AlterConfigOp.SET if value else AlterConfigOp.DELETE, value or None)
        for key, value in given.items()
        if value is not None
    ]
    alter_configs(cluster, KIND, name, changes)
    click.echo(f"Altered client metrics config for {name}.")
