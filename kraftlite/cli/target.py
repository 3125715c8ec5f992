"""The cluster that a command asks: its addresses, and the properties of the clients that reach it.

Source: KIP-1147 (`--command-config`); Kafka's AdminClientConfig (names).
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from kraftlite.cli.common import bootstrap_of, bootstrap_option, local_command_config
from kraftlite.cli.files import read_text
from kraftlite.model.shown import shown

if TYPE_CHECKING:
    from kraftlite.client.cluster import ClusterClient

F = TypeVar("F", bound=Callable[..., Any])

CONFIG_OPTION: Final = "--command-config"
CONFIG_VARIABLE: Final = "KRAFTLITE_COMMAND_CONFIG"
SERVERS: Final = "bootstrap.servers"
EFFECTIVE: Final = (
    "client.id",
    "default.api.timeout.ms",
    "reconnect.backoff.ms",
    "request.timeout.ms",
    "retry.backoff.max.ms",
    "retry.backoff.ms",
    "socket.connection.setup.timeout.ms",
)
"""Properties of Kafka's admin client that mean the same for ours, besides the addresses and those that protect."""


def read_properties(path: str, option: str) -> dict[str, str]:
    """The properties in a file. Raises ValueError, which names the option and the file."""
    from kraftlite.config.properties import parse_properties

    try:
        properties = parse_properties(read_text(path))
    except OSError as error:
        raise ValueError(f"{option} {path}: {error.strerror or error}") from None
    except ValueError as error:
        raise ValueError(f"{option} {path}: {error}") from None
    return {item.key: item.value for item in properties}


def effective(given: Mapping[str, str], path: str, option: str) -> dict[str, str]:
    """The properties that a client of ours has a use for, without the addresses. Warns about each of the others."""
    from kraftlite.client.properties import is_security

    for name in given:
        if name not in EFFECTIVE and name != SERVERS and not is_security(name):
            click.echo(
                f"WARN {option} {path}: {shown(name if name and name.isprintable() else repr(name))} has no effect here", err=True
            )
    return {name: value for name, value in given.items() if name in EFFECTIVE or is_security(name)}


def client_of(
    servers: str, properties: Mapping[str, str], path: str | None, option: str, *, controllers: bool = False
) -> ClusterClient:
    """A client with these properties; `controllers`: the servers are controllers. Raises ValueError, which names the option and
    the file, for what cannot be honoured."""
    from kraftlite.client.cluster import ClusterClient
    from kraftlite.client.controllers import ControllersClient
    from kraftlite.local.client import admin_settings

    try:
        return (ControllersClient if controllers else ClusterClient)(admin_settings({**properties, SERVERS: servers}))
    except ValueError as error:
        raise ValueError(f"{option} {path}: {error}") from None


class Target:
    """The answer of `--bootstrap-server` and `--command-config`, or of the environment.

    It is read when the command first asks for it, so that what is wrong with its own options is said before. Everything here
    raises ClickException. `cluster`: a client that is there already.
    """

    def __init__(self, servers: str | None, config: str | None, cluster: ClusterClient | None = None) -> None:
        self._servers = servers
        self._option = CONFIG_OPTION if config else CONFIG_VARIABLE
        self._path = config or os.environ.get(CONFIG_VARIABLE) or (None if servers else local_command_config())
        self._cluster = cluster

    @functools.cached_property
    def _given(self) -> dict[str, str]:
        try:
            return {} if self._path is None else read_properties(self._path, self._option)
        except ValueError as error:
            raise click.UsageError(str(error)) from None

    @functools.cached_property
    def properties(self) -> dict[str, str]:
        """Those that a client of ours has a use for, by Kafka's names, without the addresses."""
        return effective(self._given, self._path or "", self._option)

    @functools.cached_property
    def bootstrap(self) -> str:
        """The brokers to ask first: host:port, several separated by commas."""
        return bootstrap_of(self._servers, self._given.get(SERVERS), f"{SERVERS} in {self._path}")

    def cluster(self) -> ClusterClient:
        """The client of this command, the same every time."""
        if self._cluster is None:
            try:
                self._cluster = client_of(self.bootstrap, self.properties, self._path, self._option)
            except ValueError as error:
                raise click.UsageError(str(error)) from None
        return self._cluster

    def librdkafka(self) -> dict[str, Any]:
        """The configuration of a librdkafka client for records."""
        from kraftlite.local.client import client_config

        config = client_config(self.bootstrap)
        if self.properties:
            from kraftlite.cli.librdkafka import translated

            try:
                config.update(translated(self.properties))
            except ValueError as error:
                raise click.UsageError(f"{self._option} {self._path}: {error}") from None
        return config


def target_options(function: F) -> F:
    """`--bootstrap-server` and `--command-config`, for a function that takes them as one `target`. A command that calls this one
    in its place gives its own target as click's `obj`."""

    @functools.wraps(function)
    def command(*args: Any, bootstrap_server: str | None, command_config: str | None, **more: Any) -> Any:
        target = click.get_current_context().find_object(Target) or Target(bootstrap_server, command_config)
        return function(*args, target=target, **more)

    config = click.option(
        CONFIG_OPTION,
        metavar="FILE",
        help=f"Properties of the client, as TLS and SASL, in Kafka's names. Default: {CONFIG_VARIABLE}.",
    )
    return bootstrap_option(config(command))  # type: ignore[return-value]
