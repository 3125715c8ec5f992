"""kafka-acls. Source: TO-16; Kafka's AclCommand."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Final

import click

from kraftlite.cli.compat.tool import Parser, ToolError, UsageError, cluster_of
from kraftlite.client.acls import ALL_ENTRIES, create_acls, delete_acls, describe_acls
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
from kraftlite.model.principal import Principal

Resource = tuple[ResourceType, str]
Pattern = tuple[int, str, int]

_KINDS: Final = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional_id": ResourceType.TRANSACTIONAL_ID,
    "delegation_token": ResourceType.DELEGATION_TOKEN,
    "user_principal": ResourceType.USER,
}
_NO_RESOURCE: Final = (
    "You must provide at least one resource: --topic <topic> or --cluster or --group <group> or "
    "--delegation-token <Delegation Token ID>"
)


def run(arguments: Sequence[str]) -> int:
    options = _parser().read(arguments)
    if sum((options.add, options.remove, options.list)) != 1:
        raise UsageError("Command must include exactly one action: --list, --add, --remove. ")
    pattern = _pattern_type(options)
    _check(options)
    cluster = cluster_of(options)
    resources = _resources(options)
    if options.list:
        _list(cluster, resources, pattern, options.principal)
        return 0
    if not resources:
        raise UsageError(_NO_RESOURCE)
    wanted = _wanted(options, resources)
    if options.add:
        _add(cluster, wanted, pattern)
    else:
        _remove(cluster, wanted, resources, pattern, force=options.force)
    return 0


def _parser() -> Parser:
    parser = Parser("kafka-acls", "This tool helps to manage acls on kafka.")
    parser.connection(controller=True)
    for name, about in (
        ("--add", "Indicates you are trying to add ACLs."),
        ("--remove", "Indicates you are trying to remove ACLs."),
        ("--list", "List ACLs for the specified resource."),
        ("--cluster", "Add or remove ACLs of the cluster."),
        ("--producer", "WRITE, DESCRIBE and CREATE on the topic, and WRITE and DESCRIBE on the transactional id."),
        ("--consumer", "READ and DESCRIBE on the topic, and READ on the group."),
        ("--idempotent", "IDEMPOTENT_WRITE on the cluster, with --producer."),
        ("--force", "Assume Yes to all queries and do not prompt."),
    ):
        parser.add_argument(name, action="store_true", help=about)
    for name in ("--topic", "--group", "--transactional-id", "--delegation-token", "--user-principal"):
        parser.add_argument(name, action="append", default=[], metavar="NAME")
    for name in ("--allow-principal", "--deny-principal", "--principal"):
        parser.add_argument(name, action="append", default=[], metavar="TYPE:NAME")
    for name in ("--allow-host", "--deny-host"):
        parser.add_argument(name, action="append", default=[], metavar="ADDRESS")
    parser.add_argument("--operation", action="append", default=[], metavar="OPERATION")
    parser.add_argument("--resource-pattern-type", default="LITERAL", metavar="ANY|MATCH|LITERAL|PREFIXED")
    return parser


def _pattern_type(options: argparse.Namespace) -> PatternType:
    name = str(options.resource_pattern_type).upper()
    if name == "UNKNOWN" or name not in PatternType.__members__:
        raise UsageError(f"Cannot parse argument '{options.resource_pattern_type}' of option resource-pattern-type")
    found = PatternType[name]
    if options.add and found in (PatternType.ANY, PatternType.MATCH):
        raise UsageError(f"A '--resource-pattern-type' value of '{name}' is not valid when adding acls.")
    return found


def _check(options: argparse.Namespace) -> None:
    """Raise UsageError for options that do not go together, in the tool's order."""
    if options.list:
        for name in ("producer", "consumer", "allow_host", "allow_principal", "deny_host", "deny_principal"):
            if getattr(options, name):
                raise UsageError(f'Option "[list]" can\'t be used with option "[{name.replace("_", "-")}]"')
    if options.principal and not options.list:
        raise UsageError("The --principal option is only available if --list is set")
    if options.producer or options.consumer:
        for name in ("operation", "deny_principal", "deny_host"):
            if getattr(options, name):
                which = "producer" if options.producer else "consumer"
                raise UsageError(f'Option "[{which}]" can\'t be used with option "[{name.replace("_", "-")}]"')
    if options.producer and not options.topic:
        raise UsageError("With --producer you must specify a --topic")
    if options.idempotent and not options.producer:
        raise UsageError("The --idempotent option is only available if --producer is set")
    if options.consumer and (not options.topic or not options.group or options.cluster or options.transactional_id):
        raise UsageError(
            "With --consumer you must specify a --topic and a --group and no --cluster or --transactional-id option should be "
            "specified."
        )


def _resources(options: argparse.Namespace) -> list[Resource]:
    found: list[Resource] = []
    for option, kind in _KINDS.items():
        found += [(kind, name.strip()) for name in getattr(options, option)]
    if options.cluster or (options.idempotent and not options.list):
        found.append((ResourceType.CLUSTER, CLUSTER_NAME))
    return found


def _wanted(options: argparse.Namespace, resources: Sequence[Resource]) -> dict[Resource, list[AclBinding]]:
    """The entries to add to, or to remove from, each resource; the type of their patterns is filled in later."""
    if options.producer or options.consumer:
        found: dict[Resource, list[AclBinding]] = {}
        for resource in resources:
            operations = _of_producer(resource[0], options) if options.producer else []
            operations += _of_consumer(resource[0]) if options.consumer else []
            if operations:
                found[resource] = _entries(options, resource, list(dict.fromkeys(operations)))
        return found
    operations = [_operation(text) for text in options.operation] or [Operation.ALL]
    for kind, _ in resources:
        there = (Operation.ALL, *OPERATIONS_ON[kind])
        if any(one not in there for one in operations):
            raise UsageError(f"ResourceType {kind.name} only supports operations [{', '.join(it.name for it in there)}]")
    return {resource: _entries(options, resource, operations) for resource in resources}


def _of_producer(kind: ResourceType, options: argparse.Namespace) -> list[Operation]:
    if kind is ResourceType.TOPIC:
        return [Operation.WRITE, Operation.DESCRIBE, Operation.CREATE]
    if kind is ResourceType.TRANSACTIONAL_ID:
        return [Operation.WRITE, Operation.DESCRIBE]
    return [Operation.IDEMPOTENT_WRITE] if kind is ResourceType.CLUSTER and options.idempotent else []


def _of_consumer(kind: ResourceType) -> list[Operation]:
    if kind is ResourceType.TOPIC:
        return [Operation.READ, Operation.DESCRIBE]
    return [Operation.READ] if kind is ResourceType.GROUP else []


def _operation(text: str) -> Operation:
    """`Read`, `ALTER_CONFIGS` and `AlterConfigs` are names; any other text is an operation that no resource has."""
    plain = text.replace("_", "").upper()
    return next((one for one in Operation if one.name.replace("_", "") == plain), Operation.UNKNOWN)


def _entries(options: argparse.Namespace, resource: Resource, operations: Sequence[Operation]) -> list[AclBinding]:
    allowed, denied = _principals(options.allow_principal), _principals(options.deny_principal)
    if options.add and not allowed and not denied:
        raise UsageError("You must specify one of: --allow-principal, --deny-principal when trying to add ACLs.")
    kind, name = resource
    return [
        AclBinding(
            resource_type=kind,
            resource_name=name,
            pattern_type=PatternType.LITERAL,
            principal=principal,
            host=host,
            operation=operation,
            permission_type=permission,
        )
        for principals, hosts, permission in (
            (allowed, options.allow_host, Permission.ALLOW),
            (denied, options.deny_host, Permission.DENY),
        )
        for principal in principals
        for host in hosts or ["*"]
        for operation in operations
    ]


def _principals(texts: Iterable[str]) -> list[str]:
    try:
        return [str(Principal.parse(text)) for text in texts]
    except ValueError:
        wrong = next(text for text in texts if ":" not in text or text.strip().startswith(":") or text.strip().endswith(":"))
        raise ToolError(f"expected a string in format principalType:principalName but got {wrong}") from None


# --- what it does --------------------------------------------------------------------------------------------------------


def _add(cluster: ClusterClient, wanted: dict[Resource, list[AclBinding]], pattern: PatternType) -> None:
    for entries in wanted.values():
        of_pattern = [replace(one, pattern_type=pattern) for one in entries]
        there = set(describe_acls(cluster, _filter_of(of_pattern[0])))
        for one in of_pattern:
            if one in there:
                click.echo(f"Acl (pattern={_shown_pattern(_pattern_of(one))}, entry={_shown(one)}) already exists.")
        new = [one for one in of_pattern if one not in there]
        if new:
            click.echo(f"Adding ACLs for resource `{_shown_pattern(_pattern_of(new[0]))}`: \n {_lines(new)}\n")
            create_acls(cluster, new)


def _remove(
    cluster: ClusterClient,
    wanted: dict[Resource, list[AclBinding]],
    resources: Sequence[Resource],
    pattern: PatternType,
    *,
    force: bool,
) -> None:
    for kind, name in resources:
        entries = wanted.get((kind, name), [])
        filters = [_of_resource(kind, name, pattern)]
        shown = _shown_filter(filters[0])
        question = f"Are you sure you want to delete all ACLs for resource filter `{shown}`? (y/n)"
        if entries:
            question = f"Are you sure you want to remove ACLs: \n {_lines(entries)}\n from resource filter `{shown}`? (y/n)"
            filters = [
                replace(
                    filters[0],
                    principal=one.principal,
                    host=one.host,
                    operation=one.operation,
                    permission_type=one.permission_type,
                )
                for one in entries
            ]
        if force or _confirmed(question):
            delete_acls(cluster, filters)


def _confirmed(question: str) -> bool:
    click.echo(question)
    return sys.stdin.readline().strip().lower() == "y"


def _list(cluster: ClusterClient, resources: Sequence[Resource], pattern: PatternType, principals: Sequence[str]) -> None:
    filters = [_of_resource(kind, name, pattern) for kind, name in resources] or [ALL_ENTRIES]
    found = list(dict.fromkeys(one for wanted in filters for one in describe_acls(cluster, wanted)))
    if not principals:
        _print(found)
    for principal in dict.fromkeys(_principals(principals)):
        click.echo(f"ACLs for principal `{principal}`")
        _print([one for one in found if one.principal == principal])


def _print(entries: Sequence[AclBinding]) -> None:
    for pattern, some in groupby(sorted(entries, key=_pattern_of), key=_pattern_of):
        click.echo(f"Current ACLs for resource `{_shown_pattern(pattern)}`:\n{_lines(list(some))}\n")


def _of_resource(kind: ResourceType, name: str, pattern: PatternType) -> AclBindingFilter:
    literal = kind is ResourceType.CLUSTER and pattern is PatternType.PREFIXED
    return replace(ALL_ENTRIES, resource_type=kind, resource_name=name, pattern_type=PatternType.LITERAL if literal else pattern)


def _filter_of(one: AclBinding) -> AclBindingFilter:
    return replace(ALL_ENTRIES, resource_type=one.resource_type, resource_name=one.resource_name, pattern_type=one.pattern_type)


def _pattern_of(one: AclBinding) -> Pattern:
    return one.resource_type, one.resource_name, one.pattern_type


def _shown_pattern(pattern: Pattern) -> str:
    kind, name, pattern_type = pattern
    return (
        f"ResourcePattern(resourceType={named(ResourceType, kind)}, name={name}, patternType={named(PatternType, pattern_type)})"
    )


def _shown_filter(wanted: AclBindingFilter) -> str:
    kind, pattern = named(ResourceType, wanted.resource_type), named(PatternType, wanted.pattern_type)
    return f"ResourcePattern(resourceType={kind}, name={wanted.resource_name}, patternType={pattern})"


def _shown(one: AclBinding) -> str:
    operation, permission = named(Operation, one.operation), named(Permission, one.permission_type)
    return f"(principal={one.principal}, host={one.host}, operation={operation}, permissionType={permission})"


def _lines(entries: Iterable[AclBinding]) -> str:
    return "\n".join(f"\t{_shown(one)}" for one in entries)
