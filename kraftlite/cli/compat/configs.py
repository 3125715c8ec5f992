"""kafka-configs. Source: TO-14, TO-15; Kafka's ConfigCommand."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence

import click

from kraftlite.cli.compat.tool import Parser, ToolError, UsageError, cluster_of, exactly_one, read_properties
from kraftlite.client.admin import (
    SOURCES,
    alter_configs,
    alter_quotas,
    alter_scram,
    describe_configs,
    describe_quotas,
    describe_scram,
    list_resources,
)
from kraftlite.client.cluster import ClusterClient
from kraftlite.client.errors import RequestRefused
from kraftlite.model.config_effects import is_sensitive
from kraftlite.model.java_text import java_double
from kraftlite.model.messages.choices import AlterConfigOp, ConfigResourceType
from kraftlite.security.scram import NUMBERS

KINDS = {
    "topics": ConfigResourceType.TOPIC,
    "brokers": ConfigResourceType.BROKER,
    "broker-loggers": ConfigResourceType.BROKER_LOGGER,
    "client-metrics": ConfigResourceType.CLIENT_METRICS,
    "groups": ConfigResourceType.GROUP,
}
QUOTA_TYPES = {"users": "user", "clients": "client-id", "ips": "ip"}
_SHORT = {
    "topic": "topics",
    "client": "clients",
    "user": "users",
    "broker": "brokers",
    "broker-logger": "broker-loggers",
    "ip": "ips",
    "client-metrics": "client-metrics",
    "group": "groups",
}
_DEFAULTS = {"client-defaults": "clients", "user-defaults": "users", "broker-defaults": "brokers", "ip-defaults": "ips"}
_DYNAMIC = {
    "topics": ("DYNAMIC_TOPIC_CONFIG",),
    "brokers": ("DYNAMIC_BROKER_CONFIG",),
    "broker-loggers": ("DYNAMIC_BROKER_LOGGER_CONFIG",),
    "client-metrics": ("DYNAMIC_CLIENT_METRICS_CONFIG",),
    "groups": ("DYNAMIC_GROUP_CONFIG",),
}
_DEFAULT_ITERATIONS = 4096
_OUTSIDE_BRACKETS = re.compile(r",(?=[^\]]*(?:\[|$))")


class _EntityName(argparse.Action):
    """`--entity-name x` and `--entity-default` in the order given: they belong to the entity types in turn."""

    def __call__(self, parser: object, namespace: argparse.Namespace, values: object, option: str | None = None) -> None:
        namespace.names.append(None if option == "--entity-default" else values)


def _parser() -> Parser:
    parser = Parser(
        "kafka-configs",
        "This tool helps to manipulate and describe entity config for a topic, client, user, broker, ip, client-metrics or group",
    )
    parser.connection(controller=True)
    for name in ("alter", "describe", "all", "force"):
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--entity-type", action="append", default=[])
    parser.add_argument("--entity-name", action=_EntityName, dest="_name")
    parser.add_argument("--entity-default", action=_EntityName, nargs=0, dest="_default")
    for name in ("add-config", "add-config-file", "delete-config"):
        parser.add_argument(f"--{name}")
    for name in _SHORT:
        parser.add_argument(f"--{name}")
    for name in _DEFAULTS:
        parser.add_argument(f"--{name}", action="store_true")
    parser.set_defaults(names=[])
    return parser


def _entities(options: argparse.Namespace) -> list[tuple[str, str | None, bool]]:
    """(entity type, name or None, whether the default is meant). A type without either means all of its entities."""
    short = [(kind, getattr(options, name.replace("-", "_")), False) for name, kind in _SHORT.items()]
    found: list[tuple[str, str | None, bool]] = [item for item in short if item[1] is not None]
    found += [(kind, None, True) for name, kind in _DEFAULTS.items() if getattr(options, name.replace("-", "_"))]
    if found and (options.entity_type or options.names):
        raise UsageError("--entity-{type,name,default} should not be used in conjunction with specific entity flags")
    if not found:
        if not options.entity_type:
            raise UsageError("At least one entity type must be specified with --entity-type")
        names = [*options.names, *[...] * (len(options.entity_type) - len(options.names))]
        for kind, name in zip(options.entity_type, names, strict=False):
            found.append((kind, None if name is ... else name, name is None))
    known = (*KINDS, *QUOTA_TYPES)
    for kind, _name, _default in found:
        if kind not in known:
            raise UsageError(f"Invalid entity type {kind}, the entity type must be one of {', '.join(known)}")
    kinds = [kind for kind, _name, _default in found]
    if len(kinds) > 1 and set(kinds) != {"users", "clients"}:
        raise UsageError(f"Only 'users' and 'clients' entity types may be specified together, not {', '.join(kinds)}")
    return found


def run(arguments: Sequence[str]) -> int:
    options = _parser().read(arguments)
    action = exactly_one(options, ("alter", "describe"), "Command must include exactly one action: --describe, --alter")
    entities = _entities(options)
    cluster = cluster_of(options)
    try:
        if action == "describe":
            _describe(cluster, entities, everything=options.all)
        else:
            _alter(cluster, entities, options)
    except RequestRefused as error:
        click.echo(f"Error while executing config command with args '{_without_secrets(arguments)}'", err=True)
        click.echo(f"{error.code.name}: {error.reason}", err=True)
        return 1
    except ToolError as error:
        click.echo(str(error), err=True)
        return 1
    return 0


# --- describe


def _describe(cluster: ClusterClient, entities: list[tuple[str, str | None, bool]], *, everything: bool) -> None:
    if entities[0][0] in QUOTA_TYPES:
        _describe_quotas(cluster, entities)
        return
    ((kind, name, default),) = entities
    names: list[str | None] = [name] if name is not None else [None] if default else [*_all_of(cluster, kind)]
    if kind == "topics" and name is not None and name not in cluster.topics():
        click.echo(f"The topic '{name}' doesn't exist and doesn't have dynamic config.")
        return
    for one in names:
        _describe_one(cluster, kind, one, everything=everything)


def _all_of(cluster: ClusterClient, kind: str) -> list[str | None]:
    if kind == "topics":
        return [*cluster.topics()]
    if kind in ("client-metrics", "groups"):
        return [*list_resources(cluster, KINDS[kind])]
    brokers: list[str | None] = [str(node) for node in cluster.brokers()]
    return [*brokers, None] if kind == "brokers" else brokers


def _describe_one(cluster: ClusterClient, kind: str, name: str | None, *, everything: bool) -> None:
    entries = describe_configs(cluster, KINDS[kind], name or "")
    wanted = ("DYNAMIC_DEFAULT_BROKER_CONFIG",) if name is None else _DYNAMIC[kind]
    if name is None:
        click.echo(f"Default configs for {kind} in the cluster are:")
    else:
        click.echo(f"{'All' if everything else 'Dynamic'} configs for {_one(kind)} {name} are:")
    for entry in entries:
        if not everything and SOURCES.get(int(entry.config_source)) not in wanted:
            continue
        synonyms = ", ".join(
            f"{SOURCES.get(int(one.source), 'UNKNOWN')}:{one.name}={'null' if one.value is None else one.value}"
            for one in entry.synonyms
        )
        value = "null" if entry.value is None else entry.value
        click.echo(f"  {entry.name}={value} sensitive={str(bool(entry.is_sensitive)).lower()} synonyms={{{synonyms}}}")


def _one(kind: str) -> str:
    return kind[:-1]  # as Kafka does: "client-metrics" becomes "client-metric"


def _describe_quotas(cluster: ClusterClient, entities: list[tuple[str, str | None, bool]]) -> None:
    components = [(QUOTA_TYPES[kind], 1 if default else 0 if name is not None else 2, name) for kind, name, default in entities]
    for entity, values in describe_quotas(cluster, components, strict=True):
        said = ", ".join(_part(kind, entity[kind]) for kind in ("user", "client-id", "ip") if kind in entity)
        click.echo(f"Quota configs for {said} are {', '.join(f'{key}={java_double(value)}' for key, value in values.items())}")
    if [kind for kind, _name, _default in entities] == ["users"] and not entities[0][2]:
        _describe_scram(cluster, entities[0][1])


def _describe_scram(cluster: ClusterClient, user: str | None) -> None:
    names = {number: name for name, number in NUMBERS.items()}
    for name, found in describe_scram(cluster, None if user is None else [user]).items():
        said = ", ".join(f"{names[mechanism]}=iterations={count}" for mechanism, count in found)
        click.echo(f"SCRAM credential configs for user-principal '{name}' are {said}")


def _part(kind: str, name: str | None) -> str:
    called = "user-principal" if kind == "user" else kind
    return f"the default {called}" if name is None else f"{called} '{name}'"


# --- alter


def parse_added(text: str | None, path: str | None) -> dict[str, str]:
    """`k=v,k2=[a,b]` and the properties of a file."""
    found: dict[str, str] = {}
    if path is not None:
        found.update(read_properties(path, "--add-config-file"))
    for item in _OUTSIDE_BRACKETS.split(text) if text else ():
        key, equals, value = item.strip().partition("=")
        if not equals:
            raise UsageError('Invalid entity config: all configs to be added must be in the format "key=val".')
        found[key.strip()] = value.strip().removeprefix("[").removesuffix("]")
    return found


def _is_secret(key: str, text: str) -> bool:
    """Return whether a value may have a password in it; the key may be a misspelt one."""
    return is_sensitive(key) or "pass" in text.lower()


def _without_secrets(arguments: Sequence[str]) -> str:
    """The arguments as they were given; values that may be secret are left out: errors end in the logs of those who call."""
    text = " ".join(arguments)
    pairs = (item.strip().partition("=") for argument in arguments for item in _OUTSIDE_BRACKETS.split(argument))
    for value in {value for key, _, value in pairs if value and _is_secret(key, value)}:
        text = text.replace(value, "[hidden]")
    return text


def _alter(cluster: ClusterClient, entities: list[tuple[str, str | None, bool]], options: argparse.Namespace) -> None:
    if options.add_config and options.add_config_file:
        raise UsageError("Only one of --add-config or --add-config-file must be specified.")
    added = parse_added(options.add_config, options.add_config_file)
    deleted = [item.strip() for item in (options.delete_config or "").split(",") if item.strip()]
    if not added and not deleted:
        raise UsageError("At least one of --add-config, --add-config-file, or --delete-config must be specified with --alter")
    both = [key for key in deleted if key in added]
    if both:
        raise UsageError(f"Found config(s) that are both added and deleted: {','.join(both)}")
    if entities[0][0] in QUOTA_TYPES:
        _alter_quotas(cluster, entities, added, deleted)
    else:
        ((kind, name, default),) = entities
        if name is None and not (default and kind == "brokers"):
            raise UsageError(f"An entity name must be specified with --alter of {kind}")
        changes = [(key, AlterConfigOp.SET, value) for key, value in added.items()]
        alter_configs(cluster, KINDS[kind], name or "", [*changes, *[(key, AlterConfigOp.DELETE, None) for key in deleted]])
    kind, name, _default = entities[0]
    if name is not None:
        click.echo(f"Completed updating config for {_one(kind)} {name}.")
    else:
        click.echo(f"Completed updating default config for {kind} in the cluster.")


def _alter_quotas(
    cluster: ClusterClient, entities: list[tuple[str, str | None, bool]], added: dict[str, str], deleted: list[str]
) -> None:
    scram = [key for key in (*added, *deleted) if key in NUMBERS]
    if scram:
        _alter_scram(cluster, entities, added, deleted)
        return
    entity: dict[str, str | None] = {}
    for kind, name, default in entities:
        if name is None and not default:
            raise UsageError(f"An entity name must be specified with --alter of {kind}")
        entity[QUOTA_TYPES[kind]] = name
    exact = [(kind, 1 if name is None else 0, name) for kind, name in entity.items()]
    present = next((values for _entity, values in describe_quotas(cluster, exact, strict=True)), {})
    missing = [key for key in deleted if key not in present]
    if missing:
        raise ToolError(f"Invalid config(s): {','.join(missing)}")
    ops: dict[str, float | None] = dict.fromkeys(deleted)
    for key, text in added.items():
        try:
            ops[key] = float(text)
        except ValueError:
            told = "[hidden]" if _is_secret(key, text) else text
            raise ToolError(f"Cannot parse quota configuration value for {key}: {told}") from None
    alter_quotas(cluster, entity, ops)


def _alter_scram(
    cluster: ClusterClient, entities: list[tuple[str, str | None, bool]], added: dict[str, str], deleted: list[str]
) -> None:
    if any(key not in NUMBERS for key in (*added, *deleted)):
        raise ToolError("Cannot alter both quota and SCRAM credential configs simultaneously for user entities.")
    ((kind, name, _default), *more) = entities
    if kind != "users" or more:
        raise ToolError("SCRAM credentials can only be altered for users")
    if name is None:
        raise ToolError("The use of --entity-default or --user-defaults is not allowed with User SCRAM Credentials.")
    wanted = {NUMBERS[key]: _credential(key, text) for key, text in added.items()}
    alter_scram(cluster, name, [NUMBERS[key] for key in deleted], wanted)


def _credential(mechanism: str, text: str) -> tuple[int, str]:
    """`[iterations=8192,]password=secret`."""
    found = re.fullmatch(r"(?:iterations=(-?\d+),)?password=(.*)", text)
    if found is None:
        raise ToolError(f"Invalid credential property {mechanism}: allowed is [password=…] or [iterations=NUMBER,password=…]")
    iterations = int(found[1]) if found[1] not in (None, "-1") else _DEFAULT_ITERATIONS
    if iterations < _DEFAULT_ITERATIONS:
        raise ToolError(f"Iterations {iterations} is less than the minimum {_DEFAULT_ITERATIONS} required for {mechanism}")
    return iterations, found[2]
