"""acl add|list|delete|test: who may do what. Source: KIP-11, KIP-290; SE-31, SE-35."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any, Final, TypeVar
from uuid import UUID

import click

from kraftlite.cli.common import output_option, print_json, print_table
from kraftlite.cli.target import Target, target_options
from kraftlite.client.acls import ALL_ENTRIES, create_acls, delete_acls, describe_acls
from kraftlite.client.admin import describe_configs
from kraftlite.client.cluster import ClusterClient
from kraftlite.model.acls import (
    CLUSTER_NAME,
    OPERATIONS_ON,
    AclBinding,
    AclBindingFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    named,
)
from kraftlite.model.messages.choices import ConfigResourceType
from kraftlite.model.principal import Principal
from kraftlite.security.authorizer import Authorizer, Decision, Reason, super_users

F = TypeVar("F", bound=Callable[..., Any])
Resource = tuple[ResourceType, str]

_KINDS: Final = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional_id": ResourceType.TRANSACTIONAL_ID,
    "delegation_token": ResourceType.DELEGATION_TOKEN,
    "user": ResourceType.USER,
}
_OPERATIONS: Final = tuple(one.name.lower().replace("_", "-") for one in Operation if one > Operation.ANY)


def _resources(function: F) -> F:
    for option, about in (
        ("--user", "A user, for delegation tokens."),
        ("--delegation-token", "A delegation token."),
        ("--transactional-id", "A transactional id."),
        ("--group", "A group."),
        ("--topic", "A topic; '*' is all topics."),
    ):
        function = click.option(option, multiple=True, metavar="NAME", help=about)(function)
    return click.option("--cluster", is_flag=True, help="The cluster.")(function)


def _named_resources(given: dict[str, Any]) -> list[Resource]:
    found = [(kind, name) for option, kind in _KINDS.items() for name in given.pop(option)]
    return found + ([(ResourceType.CLUSTER, CLUSTER_NAME)] if given.pop("cluster") else [])


def _operation(text: str) -> Operation:
    return Operation[text.upper().replace("-", "_")]


def _principal(text: str) -> str:
    """`alice` is `User:alice`."""
    try:
        return str(Principal.parse(text if ":" in text else f"User:{text}"))
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def _operation_option(*, required: bool, multiple: bool) -> Callable[[F], F]:
    kind = click.Choice(_OPERATIONS, case_sensitive=False)
    return click.option("--operation", "-p", type=kind, required=required, multiple=multiple, help="What is done there.")


@click.command("add")
@click.option("--principal", required=True, multiple=True, metavar="[User:]NAME", help="Who; User:* is everybody.")
@_operation_option(required=True, multiple=True)
@_resources
@click.option("--prefixed", is_flag=True, help="The names are beginnings of names.")
@click.option("--host", default="*", show_default=True, metavar="ADDRESS", help="Where the requests come from.")
@click.option("--deny", is_flag=True, help="Deny it, whatever else allows it.")
@target_options
def add_command(
    principal: tuple[str, ...], operation: tuple[str, ...], prefixed: bool, host: str, deny: bool, target: Target, **given: Any
) -> None:
    """Allow principals, or deny them, operations on resources."""
    resources = _named_resources(given)
    if not resources:
        raise click.UsageError("name what it is about: give --topic, --group, --transactional-id or --cluster")
    wanted = [
        AclBinding(
            resource_type=kind,
            resource_name=name,
            pattern_type=PatternType.PREFIXED if prefixed and kind is not ResourceType.CLUSTER else PatternType.LITERAL,
            principal=_principal(who),
            host=host,
            operation=_on(kind, _operation(what)),
            permission_type=Permission.DENY if deny else Permission.ALLOW,
        )
        for kind, name in resources
        for who in principal
        for what in operation
    ]
    create_acls(target.cluster(), wanted)
    for one in wanted:
        click.echo(_sentence(one))


def _on(kind: ResourceType, operation: Operation) -> Operation:
    """Refuse an entry that could never decide anything."""
    if operation is not Operation.ALL and operation not in OPERATIONS_ON[kind]:
        there = ", ".join(one.name.lower().replace("_", "-") for one in OPERATIONS_ON[kind])
        what = operation.name.lower().replace("_", "-")
        raise click.UsageError(f"--operation {what}: there is no such operation on a {_kind(kind)}; there are: all, {there}")
    return operation


def _kind(number: int) -> str:
    return named(ResourceType, number).lower().replace("_", " ")


def _sentence(one: AclBinding) -> str:
    verb = "may" if one.permission_type == Permission.ALLOW else "may not"
    every = "every " if one.pattern_type == PatternType.PREFIXED else ""
    of = f"{every}{_kind(one.resource_type)} {one.resource_name}{'…' if every else ''}"
    where = "" if one.host == "*" else f" from {one.host}"
    return f"{one.principal} {verb} {named(Operation, one.operation).lower().replace('_', '-')} {of}{where}"


def _filters(given: dict[str, Any], principal: str | None, operation: str | None, pattern: str | None) -> list[AclBindingFilter]:
    base = replace(
        ALL_ENTRIES,
        principal=None if principal is None else _principal(principal),
        operation=Operation.ANY if operation is None else _operation(operation),
        pattern_type=PatternType.ANY if pattern is None else PatternType[pattern.upper()],
    )
    resources = _named_resources(given)
    return [replace(base, resource_type=kind, resource_name=name) for kind, name in resources] or [base]


_PATTERN = click.option(
    "--pattern",
    type=click.Choice(("literal", "prefixed", "match"), case_sensitive=False),
    help="Entries of this pattern alone; match: all that cover the named resources.",
)
_OF = click.option("--principal", metavar="[User:]NAME", help="Entries about this principal alone.")


@click.command("list")
@_OF
@_operation_option(required=False, multiple=False)
@_resources
@_PATTERN
@target_options
@output_option
def list_command(
    principal: str | None, operation: str | None, pattern: str | None, target: Target, output: str, **given: Any
) -> None:
    """The access control entries, or some of them."""
    cluster = target.cluster()
    found = [one for wanted in _filters(given, principal, operation, pattern) for one in describe_acls(cluster, wanted)]
    if output == "json":
        print_json([_as_json(one) for one in dict.fromkeys(found)])
    else:
        print_table(("PRINCIPAL", "PERMISSION", "OPERATION", "RESOURCE", "NAME", "PATTERN", "HOST"), _rows(dict.fromkeys(found)))


def _as_json(one: AclBinding) -> dict[str, str]:
    kinds = {"resource_type": ResourceType, "pattern_type": PatternType, "operation": Operation, "permission_type": Permission}
    return {name: named(kinds[name], value) if name in kinds else value for name, value in asdict(one).items()}


def _rows(entries: Any) -> Sequence[Sequence[object]]:
    rows = []
    for one in entries:
        told = _as_json(one)
        names = ("principal", "permission_type", "operation", "resource_type", "resource_name", "pattern_type", "host")
        rows.append(tuple(told[name] for name in names))
    return sorted(rows)


@click.command("delete")
@_OF
@_operation_option(required=False, multiple=False)
@_resources
@_PATTERN
@click.option("--all", "everything", is_flag=True, help="All entries there are.")
@target_options
def delete_command(
    principal: str | None, operation: str | None, pattern: str | None, everything: bool, target: Target, **given: Any
) -> None:
    """Remove the access control entries that are about all that is named."""
    filters = _filters(given, principal, operation, pattern)
    if (filters == [ALL_ENTRIES]) != everything:
        raise click.UsageError("say which entries: give --principal, --operation, a resource, or --all and nothing else")
    found = delete_acls(target.cluster(), filters)
    for one in dict.fromkeys(found):
        click.echo(f"removed: {_sentence(one)}")
    if not found:
        click.echo("nothing was there to remove")


@click.command("test")
@click.option("--principal", required=True, metavar="[User:]NAME", help="Who.")
@_operation_option(required=True, multiple=False)
@_resources
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Where the request comes from.")
@target_options
@output_option
def test_command(principal: str, operation: str, host: str, target: Target, output: str, **given: Any) -> None:
    """Say whether it is allowed, which entry decides, and why. Status 0: allowed, 1: denied."""
    resources = _named_resources(given)
    if len(resources) != 1:
        raise click.UsageError("name one resource: give --topic, --group, --transactional-id or --cluster")
    ((kind, name),) = resources
    cluster = target.cluster()
    authorizer = _authorizer(cluster)
    who, what = Principal.parse(_principal(principal)), _on(kind, _operation(operation))
    decided = authorizer.decide(who, host, what, kind, name)
    covering = list(authorizer.covering(kind, name))
    if output == "json":
        print_json({"allowed": decided.allowed, "rule": decided.rule, "covering": len(covering)})
    else:
        click.echo(f"{'ALLOWED' if decided.allowed else 'DENIED'}: {who} {operation} on {_kind(kind)} {name} from {host}")
        click.echo(_because(decided, who, what, len(covering)))
    if not decided.allowed:
        raise SystemExit(1)


def _authorizer(cluster: ClusterClient) -> Authorizer:
    """The cluster's entries and settings, decided about by the code that the nodes have."""
    broker = str(min(cluster.brokers()))
    values = {str(one.name): one.value or "" for one in describe_configs(cluster, ConfigResourceType.BROKER, broker)}
    everybody = values.get("allow.everyone.if.no.acl.found", "false").lower() == "true"
    found = Authorizer(super_users(values.get("super.users", "")), allow_everyone=everybody)
    found.update({UUID(int=number): one for number, one in enumerate(describe_acls(cluster, ALL_ENTRIES))})
    return found


def _because(decided: Decision, who: Principal, what: Operation, covering: int) -> str:
    if decided.reason is Reason.SUPER_USER:
        return f"because {who} is in super.users"
    if decided.entry is not None:
        one = AclBinding(**_as_fields(decided.entry))
        implied = "" if one.operation in (what, Operation.ALL) else f", which implies {what.name.lower().replace('_', '-')}"
        last = "; a denial outweighs whatever allows" if not decided.allowed else ""
        pattern = named(PatternType, one.pattern_type).lower()
        return f"because of the {pattern} entry: {_sentence(one)}{implied}{last}"
    if covering:
        number = "is 1 entry" if covering == 1 else f"are {covering} entries"
        return f"because there {number} for this resource, and none allows it"
    if decided.allowed:
        return "because no entry is about this resource, and allow.everyone.if.no.acl.found=true"
    return "because no entry is about this resource"


def _as_fields(entry: object) -> dict[str, Any]:
    names = ("resource_type", "resource_name", "pattern_type", "principal", "host", "operation", "permission_type")
    return {name: getattr(entry, name) for name in names}
