"""kafka-configs. Source: TO-14, TO-15; Kafka's ConfigCommand."""

from __future__ import annotations

import argparse
import re
import socket
from collections.abc import Sequence

import click

from kraftlite.cli.compat.tool import Parser, ToolError, UsageError, cluster_of, exactly_one, java_exception, read_properties
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
from kraftlite.client.groups import list_groups
from kraftlite.model.config_effects import is_sensitive
from kraftlite.model.errors import ApiError
from kraftlite.model.java_text import java_double
from kraftlite.model.messages.choices import AlterConfigOp, ConfigResourceType
from kraftlite.model.topic_name import validate_topic_name
from kraftlite.quotas.matching import CONNECTION, FETCH, MUTATION, PRODUCE, REQUEST
from kraftlite.security.scram import NUMBERS

KINDS = {
    "topics": ConfigResourceType.TOPIC,
    "brokers": ConfigResourceType.BROKER,
    "broker-loggers": ConfigResourceType.BROKER_LOGGER,
    "client-metrics": ConfigResourceType.CLIENT_METRICS,
    "groups": ConfigResourceType.GROUP,
}
QUOTA_TYPES = {"users": "user", "clients": "client-id", "ips": "ip"}
CLIENT_QUOTAS = (PRODUCE, FETCH, REQUEST, MUTATION)
IP_QUOTAS = (CONNECTION,)
_KNOWN = ("topics", "clients", "users", "brokers", "ips", "client-metrics", "groups", "broker-loggers")
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
_EQUALS = re.compile(r"\s*=\s*(?=[^\]]*(?:\[|$))")
_KEY = re.compile(r"[$a-zA-Z0-9._-]*")


class _EntityName(argparse.Action):
    """`--entity-name x` and `--entity-default` in the order given: they belong to the entity types in turn."""

    def __call__(self, parser: object, namespace: argparse.Namespace, values: object, option: str | None = None) -> None:
        namespace.names.append(None if option == "--entity-default" else values)


Entity = tuple[str, str | None, bool]
"""An entity type, with a name, or None, and whether the default is meant. A type without either means all of its entities."""


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
    for name in ("add-config", "add-config-file"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--delete-config", action="append", default=[])
    for name in _SHORT:
        parser.add_argument(f"--{name}")
    for name in _DEFAULTS:
        parser.add_argument(f"--{name}", action="store_true")
    parser.set_defaults(names=[])
    return parser


def _entities(options: argparse.Namespace) -> list[Entity]:
    short: list[Entity] = [
        (kind, name, False) for option, kind in _SHORT.items() if (name := getattr(options, option.replace("-", "_"))) is not None
    ]
    short += [(kind, None, True) for option, kind in _DEFAULTS.items() if getattr(options, option.replace("-", "_"))]
    kinds = [*options.entity_type, *(kind for kind, _name, _default in short)]
    twice = sorted({kind for kind in kinds if kinds.count(kind) > 1})
    if twice:
        raise UsageError(f"Duplicate entity type(s) specified: {','.join(twice)}")
    unknown = [kind for kind in kinds if kind not in _KNOWN]
    if unknown:
        raise UsageError(
            f"Invalid entity type {unknown[0]}, the entity type must be one of {', '.join(_KNOWN)} with a --bootstrap-server or "
            "--bootstrap-controller argument"
        )
    if not kinds:
        raise UsageError("At least one entity type must be specified")
    if len(kinds) > 1 and set(kinds) != {"users", "clients"}:
        raise UsageError("Only 'users' and 'clients' entity types may be specified together")
    if short and (options.entity_type or options.names):
        raise UsageError("--entity-{type,name,default} should not be used in conjunction with specific entity flags")
    if short:
        return short
    if len(options.names) > len(kinds):
        every = "An entity name must be specified for every entity type"
        raise UsageError(every if options.alter else "More entity names specified than entity types")
    names = [*options.names, *[...] * (len(kinds) - len(options.names))]
    return [(kind, None if name is ... else name, name is None) for kind, name in zip(kinds, names, strict=True)]


def _check(action: str, entities: list[Entity], options: argparse.Namespace) -> None:
    kind = entities[0][0]
    named = [name for _kind, name, _default in entities if name]
    default = any(default or name == "" for _kind, name, default in entities)
    if kind in ("brokers", "broker-loggers"):
        for name in named:
            if not re.fullmatch(r"[+-]?[0-9]+", name):
                raise UsageError(f"The entity name for {kind} must be a valid integer broker id, but it is: {name}")
    if kind == "ips":
        for name in named:
            _check_host(name)
    of_both = kind in (*QUOTA_TYPES, "brokers")
    if action == "describe":
        for given in ("add_config", "delete_config"):
            if getattr(options, given):
                raise UsageError(f'Option "[describe]" can\'t be used with option "[{given.replace("_", "-")}]"')
        if default and not of_both:
            raise UsageError(f"--entity-default must not be specified with --describe of {kind}")
        if kind == "broker-loggers" and not named:
            raise UsageError(f"An entity name must be specified with --describe of {kind}")
        return
    if of_both and not named and not default:
        raise UsageError("An entity-name or default entity must be specified with --alter of users, clients, brokers or ips")
    if not of_both and not named:
        raise UsageError(f"An entity name must be specified with --alter of {kind}")
    if options.add_config is not None and options.add_config_file is not None:
        raise UsageError("Only one of --add-config or --add-config-file must be specified")
    if options.add_config is None and options.add_config_file is None and not options.delete_config:
        raise UsageError("At least one of --add-config, --add-config-file, or --delete-config must be specified with --alter")
    if any(name is None and not default for _kind, name, default in entities):
        raise UsageError("An entity name must be specified for every entity type")


def _check_host(name: str) -> None:
    try:
        socket.getaddrinfo(name, None)
    except (OSError, UnicodeError):
        raise UsageError(f"The entity name for ips must be a valid IP or resolvable host, but it is: {name}") from None


def run(arguments: Sequence[str]) -> int:
    options = _parser().read(arguments)
    action = exactly_one(options, ("alter", "describe"), "Command must include exactly one action: --describe, --alter")
    entities = _entities(options)
    _check(action, entities, options)
    cluster = cluster_of(options)
    try:
        if action == "describe":
            _describe(cluster, entities, everything=options.all)
        else:
            _alter(cluster, entities, options)
    except RequestRefused as error:
        click.echo(f"Error while executing config command with args '{_without_secrets(arguments)}'", err=True)
        click.echo(f"{error.code.name}: {java_exception(error.code, error.reason)}", err=True)
        return 1
    except ToolError as error:
        click.echo(str(error), err=True)
        return 1
    return 0


# --- describe


def _describe(cluster: ClusterClient, entities: list[Entity], *, everything: bool) -> None:
    if entities[0][0] in QUOTA_TYPES:
        _describe_quotas(cluster, entities)
        return
    ((kind, name, default),) = entities
    names: list[str | None] = [name] if name is not None else [None] if default else [*_all_of(cluster, kind)]
    if kind == "topics" and name is not None:
        try:
            validate_topic_name(name)
        except ApiError as error:
            raise ToolError(error.message) from None
    if not everything and name and name not in _all_of(cluster, kind):
        click.echo(f"The {_one(kind)} '{name}' doesn't exist and doesn't have dynamic config.")
        return
    for one in names:
        _describe_one(cluster, kind, one, everything=everything)


def _all_of(cluster: ClusterClient, kind: str) -> list[str | None]:
    if kind == "topics":
        return [*cluster.topics()]
    if kind == "groups":
        return [*sorted({*list_resources(cluster, KINDS[kind]), *(one.group for one in list_groups(cluster))})]
    if kind == "client-metrics":
        return [*list_resources(cluster, KINDS[kind])]
    brokers: list[str | None] = [str(node) for node in cluster.brokers()]
    return [*brokers, None] if kind == "brokers" else brokers


def _describe_one(cluster: ClusterClient, kind: str, name: str | None, *, everything: bool) -> None:
    wanted = ("DYNAMIC_DEFAULT_BROKER_CONFIG",) if name is None else _DYNAMIC[kind]
    if name is None:
        click.echo(f"Default configs for {kind} in the cluster are:")
    else:
        click.echo(f"{'All' if everything else 'Dynamic'} configs for {_one(kind)} {name} are:")
    entries = describe_configs(cluster, KINDS[kind], name or "")
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


def _describe_quotas(cluster: ClusterClient, entities: list[Entity]) -> None:
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
    items = [] if text is None else _OUTSIDE_BRACKETS.split(text)
    while len(items) > 1 and not items[-1]:
        items.pop()
    for item in items:
        pair = _EQUALS.split(item)
        if len(pair) != 2:
            raise UsageError(
                'requirement failed: Invalid entity config: all configs to be added must be in the format "key=val" or  '
                '"key=[val1,val2]" to group values which contain commas.'
            )
        found[pair[0].strip()] = re.sub(r"[\[\]]", "", pair[1]).strip()
    for key in found:
        if not _KEY.fullmatch(key):
            raise UsageError(f"Invalid character found for config key: {key}")
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


def _alter(cluster: ClusterClient, entities: list[Entity], options: argparse.Namespace) -> None:
    added = parse_added(options.add_config, options.add_config_file)
    deleted = [item.strip() for text in options.delete_config for item in text.split(",") if item.strip()]
    both = [key for key in deleted if key in added]
    if both:
        raise UsageError(f"Found config(s) that are both added and deleted: {','.join(both)}")
    kind, name, _default = entities[0]
    if kind in QUOTA_TYPES:
        _check_quota_keys(entities, added, deleted)
        _alter_quotas(cluster, entities, added, deleted)
    else:
        if kind == "broker-loggers":
            known = {str(entry.name) for entry in describe_configs(cluster, KINDS[kind], name or "")}
            unknown = [key for key in (*deleted, *added) if key not in known]
            if unknown:
                raise ToolError(f"Invalid broker logger(s): {','.join(unknown)}")
        changes: list[tuple[str, AlterConfigOp, str | None]] = [(key, AlterConfigOp.DELETE, None) for key in deleted]
        changes += [(key, AlterConfigOp.SET, value) for key, value in added.items()]
        alter_configs(cluster, KINDS[kind], name or "", changes)
    if name:
        click.echo(f"Completed updating config for {_one(kind)} {name}.")
    else:
        click.echo(f"Completed updating default config for {kind} in the cluster.")


def _check_quota_keys(entities: list[Entity], added: dict[str, str], deleted: list[str]) -> None:
    kinds = [kind for kind, _name, _default in entities]
    if kinds == ["ips"]:
        unknown = [key for key in (*added, *deleted) if key not in IP_QUOTAS]
        if unknown:
            raise ToolError(
                "Only connection quota configs can be added for 'ips' using --bootstrap-server. Unexpected config names: "
                f"{','.join(unknown)}"
            )
        return
    of, what, known = "users", "quota and SCRAM credential", {*CLIENT_QUOTAS, *NUMBERS}
    if "clients" in kinds:
        of, what, known = "clients", "quota", {*CLIENT_QUOTAS}
    for done, called, keys in (("added", "Set", [*added]), ("deleted", "ArrayBuffer", deleted)):
        unknown = [key for key in keys if key not in known]
        if unknown:
            raise ToolError(
                f"Only {what} configs can be {done} for '{of}' using --bootstrap-server. Unexpected config names: "
                f"{called}({', '.join(unknown)})"
            )
    if any(key in NUMBERS for key in (*added, *deleted)):
        if not entities[0][1]:
            raise ToolError(
                "The use of --entity-default or --user-defaults is not allowed with User SCRAM Credentials using "
                "--bootstrap-server."
            )
        if any(key in CLIENT_QUOTAS for key in (*added, *deleted)):
            raise ToolError(
                "Cannot alter both quota and SCRAM credential configs simultaneously for 'users' using --bootstrap-server."
            )


def _alter_quotas(cluster: ClusterClient, entities: list[Entity], added: dict[str, str], deleted: list[str]) -> None:
    user = entities[0][1]
    if user and any(key in NUMBERS for key in (*added, *deleted)):
        _alter_scram(cluster, user, added, deleted)
        return
    entity: dict[str, str | None] = {QUOTA_TYPES[kind]: name or None for kind, name, _default in entities}
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


def _alter_scram(cluster: ClusterClient, user: str, added: dict[str, str], deleted: list[str]) -> None:
    wanted = {NUMBERS[key]: _credential(key, text) for key, text in added.items()}
    alter_scram(cluster, user, [NUMBERS[key] for key in deleted], wanted)


def _credential(mechanism: str, text: str) -> tuple[int, str]:
    """`[iterations=8192,]password=secret`."""
    found = re.fullmatch(r"(?:iterations=(-?\d+),)?password=(.*)", text)
    if found is None:
        raise ToolError(f"Invalid credential property {mechanism}: allowed is [password=…] or [iterations=NUMBER,password=…]")
    iterations = int(found[1]) if found[1] not in (None, "-1") else _DEFAULT_ITERATIONS
    if iterations < _DEFAULT_ITERATIONS:
        raise ToolError(f"Iterations {iterations} is less than the minimum {_DEFAULT_ITERATIONS} required for {mechanism}")
    return iterations, found[2]
