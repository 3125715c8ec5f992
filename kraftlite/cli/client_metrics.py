"""client-metrics list|describe|alter|delete: the subscriptions of KIP-714, which are stored and not yet asked of clients."""

from __future__ import annotations

import click

from kraftlite.cli.common import output_option, pairs, print_json
from kraftlite.cli.target import Target, target_options
from kraftlite.client.admin import alter_configs, describe_configs, list_resources
from kraftlite.model.messages.choices import AlterConfigOp, ConfigResourceType

_KIND = ConfigResourceType.CLIENT_METRICS
_SUBSCRIPTION_SOURCE = 7


@click.command("list")
@target_options
@output_option
def list_command(target: Target, output: str) -> None:
    """Names of all subscriptions, one on a line."""
    names = list_resources(target.cluster(), _KIND)
    if output == "json":
        print_json(names)
        return
    for name in names:
        click.echo(name)


@click.command("describe")
@click.argument("name", nargs=-1)
@target_options
@output_option
def describe_command(name: tuple[str, ...], target: Target, output: str) -> None:
    """The subscriptions NAME…, or all."""
    cluster = target.cluster()
    names = list(name) or list_resources(cluster, _KIND)
    found = {one: {str(entry.name): entry.value for entry in describe_configs(cluster, _KIND, one)} for one in names}
    if output == "json":
        print_json(found)
        return
    for one, values in found.items():
        click.echo(f"Client metrics configs for {one} are:")
        for key, value in values.items():
            click.echo(f"  {key}={value}")


@click.command("alter")
@click.argument("name")
@click.option("--set", "set_", multiple=True, metavar="KEY=VALUE", help="metrics, interval.ms or match.")
@click.option("--delete", multiple=True, metavar="KEY", help="Back to the default.")
@target_options
def alter_command(name: str, set_: tuple[str, ...], delete: tuple[str, ...], target: Target) -> None:
    """Create or change the subscription NAME."""
    changes: list[tuple[str, AlterConfigOp, str | None]] = []
    changes += [(key, AlterConfigOp.SET, value) for key, value in pairs(set_, "--set").items()]
    changes += [(key, AlterConfigOp.DELETE, None) for key in delete]
    if not changes:
        raise click.UsageError("nothing to do: give --set or --delete")
    alter_configs(target.cluster(), _KIND, name, changes)
    click.echo(f"Altered client metrics config for {name}.")


@click.command("delete")
@click.argument("name")
@target_options
def delete_command(name: str, target: Target) -> None:
    """Delete the subscription NAME."""
    cluster = target.cluster()
    entries = describe_configs(cluster, _KIND, name)
    present = [str(one.name) for one in entries if int(one.config_source) == _SUBSCRIPTION_SOURCE]
    if not present:
        raise click.ClickException(f"there is no subscription {name}")
    alter_configs(cluster, _KIND, name, [(key, AlterConfigOp.DELETE, None) for key in present])
    click.echo(f"Deleted client metrics config for {name}.")
