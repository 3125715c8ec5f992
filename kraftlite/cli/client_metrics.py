"""client-metrics list|describe|alter|delete|show: the subscriptions of KIP-714, by which clients push their metrics."""

from __future__ import annotations

from typing import Any

import click

from kraftlite.cli.common import output_option, pairs, print_json
from kraftlite.cli.metrics_pages import pages_option, read_pages
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


@click.command("show")
@click.argument("client_id", required=False)
@click.option("--values", is_flag=True, help="The latest values, too.")
@pages_option("The Prometheus page of a broker; without it those of the local cluster.")
@output_option
def show_command(client_id: str | None, values: bool, pages: tuple[str, ...], output: str) -> None:
    """The clients that push their metrics, or those named CLIENT_ID: who they are, and how many series each has."""
    found = [client for page, text in read_pages(pages) for client in clients_in(page, text)]
    found = [client for client in found if client_id in (None, client["client_id"])]
    found.sort(key=lambda client: (client["client_id"], client["client_instance_id"], client["page"]))
    if output == "json":
        print_json(found if values else [{**client, "values": len(client["values"])} for client in found])
        return
    if not found:
        click.echo("No client has pushed metrics lately.")
    for client in found:
        software = f"{client['software_name']} {client['software_version']} at {client['address']}"
        whom = f"{client['client_id']} ({client['client_instance_id']}), {software}"
        click.echo(f"{client['page']}: {whom}: {len(client['values'])} series")
        for name, value in sorted(client["values"].items()) if values else ():
            click.echo(f"  {name} {value:g}")


def clients_in(page: str, text: str) -> list[dict[str, Any]]:
    """One entry for each client that pushes to the broker of a Prometheus page."""
    from prometheus_client.parser import text_string_to_metric_families

    found: dict[str, dict[str, Any]] = {}
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    for sample in samples:
        if sample.name == "kraftlite_client_metrics_info":
            found[sample.labels["client_instance_id"]] = {"page": page, **sample.labels, "values": {}}
    for sample in samples:
        client = found.get(sample.labels.get("client_instance_id", ""))
        if client is not None and sample.name.startswith("kafka_client_"):
            own = {key: it for key, it in sample.labels.items() if key not in ("client_instance_id", "client_id")}
            told = ",".join(f"{key}={it}" for key, it in sorted(own.items()))
            client["values"][f"{sample.name}{{{told}}}" if told else sample.name] = sample.value
    return list(found.values())
