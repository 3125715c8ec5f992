"""quota describe|alter: client quotas, and who uses how much of them (KIP-546, QU-12)."""

from __future__ import annotations

import click

from kraftlite.cli.common import output_option, pairs, print_json
from kraftlite.cli.metrics_pages import pages_option
from kraftlite.cli.target import Target, target_options
from kraftlite.client.admin import alter_quotas, describe_quotas
from kraftlite.model.java_text import java_double

_USER = click.option("--user", metavar="NAME", help="A user; <default> is the default of all users.")
_CLIENT = click.option("--client-id", metavar="NAME", help="A client id; <default> is the default of all client ids.")
_IP = click.option("--ip", metavar="ADDRESS", help="An address; <default> is the default of all addresses.")
_DEFAULT = "<default>"


def _entity(user: str | None, client_id: str | None, ip: str | None) -> dict[str, str | None]:
    given = {"user": user, "client-id": client_id, "ip": ip}
    return {kind: None if name == _DEFAULT else name for kind, name in given.items() if name is not None}


@click.command("describe")
@_USER
@_CLIENT
@_IP
@click.option("--usage", is_flag=True, help="Show instead what clients use of their quotas now, and who is throttled.")
@pages_option("The Prometheus page of a broker, for --usage; without it those of the local cluster.")
@target_options
@output_option
def describe_command(
    user: str | None,
    client_id: str | None,
    ip: str | None,
    usage: bool,
    pages: tuple[str, ...],
    target: Target,
    output: str,
) -> None:
    """All quotas, or those of an entity; with --usage who is throttled now, and how far beyond the bound."""
    if usage:
        from kraftlite.cli.quota_usage import show_usage

        show_usage(pages, user, client_id, output)
        return
    entity = _entity(user, client_id, ip)
    asked = [(kind, 1 if name is None else 0, name) for kind, name in entity.items()]
    found = describe_quotas(target.cluster(), asked, strict=bool(entity))
    if output == "json":
        print_json([{"entity": whom, "quotas": values} for whom, values in found])
        return
    for whom, values in found:
        said = ", ".join(f"{kind} {_DEFAULT if name is None else name}" for kind, name in whom.items())
        click.echo(f"{said}: {', '.join(f'{key}={java_double(value)}' for key, value in values.items())}")


@click.command("alter")
@_USER
@_CLIENT
@_IP
@click.option("--set", "set_", multiple=True, metavar="KEY=NUMBER", help="Set a quota.")
@click.option("--delete", multiple=True, metavar="KEY", help="Remove a quota.")
@target_options
def alter_command(
    user: str | None,
    client_id: str | None,
    ip: str | None,
    set_: tuple[str, ...],
    delete: tuple[str, ...],
    target: Target,
) -> None:
    """Set and remove quotas of a user, a client id, both together, or an address."""
    entity = _entity(user, client_id, ip)
    if not entity:
        raise click.UsageError("name the client: give --user, --client-id or --ip")
    ops: dict[str, float | None] = dict.fromkeys(delete)
    for key, text in pairs(set_, "--set").items():
        try:
            ops[key] = float(text)
        except ValueError:
            raise click.UsageError(f"--set {key}={text}: allowed is a number") from None
    if not ops:
        raise click.UsageError("nothing to do: give --set or --delete")
    alter_quotas(target.cluster(), entity, ops)
    click.echo("Completed updating quotas.")
