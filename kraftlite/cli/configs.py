"""config describe|alter, in the layout of kafka-configs (TO-14)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from kraftlite.cli.common import output_option, pairs, print_json
from kraftlite.cli.target import Target, target_options
from kraftlite.client.errors import RequestRefused
from kraftlite.model.messages.choices import AlterConfigOp, ConfigResourceType

if TYPE_CHECKING:
    from kraftlite.client.cluster import ClusterClient

_SOURCES = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    8: "GROUP_CONFIG",
}
_TYPES: dict[str, Any] = {"topic": int(ConfigResourceType.TOPIC), "broker": int(ConfigResourceType.BROKER)}
_DYNAMIC = {"topic": (1,), "broker": (2, 3, 6)}
"""The sources of what somebody set: on the topic itself, on the broker or for all of them."""


def _entity(topic: str | None, broker: str | None, broker_defaults: bool) -> tuple[str, str, str]:
    """(kind, name, how it is called)."""
    if sum((topic is not None, broker is not None, broker_defaults)) != 1:
        raise click.UsageError("name what to configure: give exactly one of --topic NAME, --broker ID, --broker-defaults")
    if topic is not None:
        return "topic", topic, f"topic {topic}"
    if broker is not None:
        return "broker", broker, f"broker {broker}"
    return "broker", "", "brokers in the cluster"


_TOPIC = click.option("--topic", metavar="NAME", help="A topic.")
_BROKER = click.option("--broker", metavar="ID", help="One broker.")
_DEFAULTS = click.option("--broker-defaults", is_flag=True, help="What holds for all brokers.")


@click.command("describe")
@_TOPIC
@_BROKER
@_DEFAULTS
@click.option("--all", "everything", is_flag=True, help="Static values and defaults, too.")
@target_options
@output_option
def describe_config(
    topic: str | None, broker: str | None, broker_defaults: bool, everything: bool, target: Target, output: str
) -> None:
    """The configuration of a topic or broker, and where each value comes from."""
    kind, name, called = _entity(topic, broker, broker_defaults)
    entries = _fetch(target.cluster(), kind, name, called)
    shown = [entry for entry in entries if everything or int(entry.config_source) in _DYNAMIC[kind]]
    if output == "json":
        print_json({"entity": called, "configs": [_as_json(entry) for entry in shown]})
        return
    click.echo(f"{'All' if everything else 'Dynamic'} configs for {called} are:")
    for entry in shown:
        synonyms = ", ".join(f"{_source(item.source)}:{item.name}={_text(item)}" for item in entry.synonyms)
        click.echo(f"  {entry.name}={_text(entry)} sensitive={str(entry.is_sensitive).lower()} synonyms={{{synonyms}}}")


def _fetch(cluster: ClusterClient, kind: str, name: str, called: str) -> list[Any]:
    """DescribeConfigs with synonyms, the one that wins first; sorted by name."""
    from kraftlite.client.admin import describe_configs

    _check_broker(cluster, kind, name)
    with _refusals(called):
        return describe_configs(cluster, _TYPES[kind], name)


def _check_broker(cluster: ClusterClient, kind: str, name: str) -> None:
    """A broker's own file is known to that broker alone, and it alone takes changes of its own configs: so it must be there."""
    if kind == "broker" and name and name not in map(str, cluster.brokers()):
        raise click.ClickException(f"broker {name} is not there; live brokers are {', '.join(map(str, cluster.brokers()))}")


def _alter(
    cluster: ClusterClient, kind: str, name: str, called: str, changes: list[tuple[str, AlterConfigOp, str | None]]
) -> None:
    """IncrementalAlterConfigs."""
    from kraftlite.client.admin import alter_configs

    _check_broker(cluster, kind, name)
    with _refusals(called):
        alter_configs(cluster, _TYPES[kind], name, changes)


@contextlib.contextmanager
def _refusals(called: str) -> Iterator[None]:
    try:
        yield
    except RequestRefused as error:
        raise click.ClickException(f"{called}: {error.code.name}: {error.message or 'refused'}") from None


def _source(number: Any) -> str:
    return _SOURCES.get(int(number), "UNKNOWN")


def _text(entry: Any) -> str:
    return "null" if entry.value is None else str(entry.value)


def _as_json(entry: Any) -> dict[str, Any]:
    return {
        "name": entry.name,
        "value": entry.value,
        "source": _source(entry.config_source),
        "sensitive": bool(entry.is_sensitive),
        "read_only": bool(entry.read_only),
        "synonyms": [{"name": item.name, "value": item.value, "source": _source(item.source)} for item in entry.synonyms],
    }


@click.command("alter")
@_TOPIC
@_BROKER
@_DEFAULTS
@click.option("--set", "--add-config", "set_", multiple=True, metavar="KEY=VALUE", help="Set a value.")
@click.option("--delete", "--delete-config", "delete", multiple=True, metavar="KEY", help="Remove a value.")
@click.option("--append", multiple=True, metavar="KEY=VALUE", help="Add to a list.")
@click.option("--subtract", multiple=True, metavar="KEY=VALUE", help="Take from a list.")
@target_options
@output_option
def alter_config(
    topic: str | None,
    broker: str | None,
    broker_defaults: bool,
    set_: tuple[str, ...],
    delete: tuple[str, ...],
    append: tuple[str, ...],
    subtract: tuple[str, ...],
    target: Target,
    output: str,
) -> None:
    """Set and remove values of a topic, a broker, or all brokers."""
    kind, name, called = _entity(topic, broker, broker_defaults)
    changes: list[tuple[str, AlterConfigOp, str | None]]
    changes = [(key, AlterConfigOp.SET, value) for key, value in pairs(set_, "--set").items()]
    changes += [(key, AlterConfigOp.DELETE, None) for key in delete]
    changes += [(key, AlterConfigOp.APPEND, value) for key, value in pairs(append, "--append").items()]
    changes += [(key, AlterConfigOp.SUBTRACT, value) for key, value in pairs(subtract, "--subtract").items()]
    if not changes:
        raise click.UsageError("nothing to do: give --set, --delete, --append or --subtract")
    _alter(target.cluster(), kind, name, called, changes)
    if output == "json":
        print_json({"entity": called, "changed": [key for key, _, _ in changes]})
    else:
        click.echo(f"Completed updating config for {called}.")
