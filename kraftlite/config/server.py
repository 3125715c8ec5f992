"""The whole configuration of one node, from built-in defaults, a `server.properties` file, the environment and flags.

Precedence: defaults < file < environment < flags. An unknown key is a warning, a bad value a problem; all problems are
reported at once. Source: DESIGN "config"; BL-25, RF-58, CM-49; behaviours, defaults table and its cross-checks.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from kraftlite.config.environment import cluster_id_from_environment, keys_from_environment
from kraftlite.config.listeners import QuorumVoter
from kraftlite.config.properties import parse_properties
from kraftlite.config.resolve import resolve
from kraftlite.model.broker_configs import BROKER_CONFIGS, broker_key_of
from kraftlite.model.ids import Endpoint, NodeId
from kraftlite.model.messages.controller import ListenerInfo

DEFAULT_SOURCE = "default"
OVERRIDE_SOURCE = "flag --override"

# A node that is started with no file and no role at all: one combined node, as the official image does.
SINGLE_NODE: Mapping[str, str] = MappingProxyType(
    {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": "1@localhost:9093",
        "listeners": "PLAINTEXT://:9092,REPLICATION://:9192,CONTROLLER://:9093",
        "advertised.listeners": "PLAINTEXT://localhost:9092,REPLICATION://localhost:9192",
        "inter.broker.listener.name": "REPLICATION",
        "controller.listener.names": "CONTROLLER",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
    }
)


class ConfigError(Exception):
    """The configuration cannot be used. `problems` has one line for each thing that is wrong."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Explained:
    """One line of `config explain`."""

    key: str
    value: str
    source: str
    known: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """What a node is told to be. Immutable; `values` has the effective text of every key that has one.

    `listeners` are all sockets, the derived gRPC listener included. `advertised_listeners` are what a broker registers,
    `advertised_controller_listeners` what a controller registers; a port 0 there means: the port that was bound.
    """

    node_id: NodeId
    roles: tuple[str, ...]
    cluster_id: str | None
    """From the environment (`CLUSTER_ID`); the directories of a formatted node say it as well."""
    listeners: tuple[ListenerInfo, ...]
    advertised_listeners: tuple[ListenerInfo, ...]
    advertised_controller_listeners: tuple[ListenerInfo, ...]
    controller_listener_names: tuple[str, ...]
    inter_broker_listener_name: str | None
    quorum_voters: tuple[QuorumVoter, ...]
    quorum_bootstrap_servers: tuple[Endpoint, ...]
    log_dirs: tuple[str, ...]
    metadata_log_dir: str
    values: Mapping[str, str]
    sources: Mapping[str, str]
    warnings: tuple[str, ...] = ()
    problems: tuple[str, ...] = field(default=(), repr=False)

    @property
    def is_broker(self) -> bool:
        return "broker" in self.roles

    @property
    def is_controller(self) -> bool:
        return "controller" in self.roles

    @property
    def all_log_dirs(self) -> tuple[str, ...]:
        """Every directory that must be formatted, the metadata directory first."""
        return (self.metadata_log_dir, *(path for path in self.log_dirs if path != self.metadata_log_dir))

    @property
    def explicit(self) -> Mapping[str, str]:
        """Only what was set, not what is a default: the STATIC_BROKER_CONFIG values."""
        return {key: value for key, value in self.values.items() if self.sources[key] != DEFAULT_SOURCE}

    def listener(self, name: str) -> ListenerInfo | None:
        return next((listener for listener in self.listeners if listener.name == name), None)

    def get(self, key: str) -> Any:
        """The typed value of a known key, None when it has none."""
        text = self.values.get(key)
        return None if text is None else BROKER_CONFIGS[key].parse(text)

    def get_int(self, key: str) -> int:
        return int(self.get(key))

    def get_bool(self, key: str) -> bool:
        return bool(self.get(key))

    def get_text(self, key: str) -> str:
        return str(self.get(key))

    def validate(self) -> None:
        """Raises ConfigError with all problems at once."""
        if self.problems:
            raise ConfigError(self.problems)

    def explain(self) -> tuple[Explained, ...]:
        """Every effective value, where it came from, in key order. Sensitive values are hidden (CM-51)."""
        found = []
        for key in sorted(self.values):
            definition = broker_key_of(key)
            hidden = definition.sensitive if definition is not None else "password" in key or "secret" in key
            value = "[hidden]" if hidden else self.values[key]
            found.append(Explained(key, value, self.sources[key], definition is not None))
        return tuple(found)


def load(
    path: str | Path | None,
    env: Mapping[str, str] | None = None,
    overrides: Mapping[str, str] | None = None,
    *,
    check: bool = True,
    hostname: Callable[[], str] | None = None,
) -> ServerConfig:
    """Read a node's configuration. Raises ConfigError with all problems at once; with `check` off only for an unreadable file.

    `path` None: a node configured by its environment alone. `hostname` says what an empty advertised host becomes.
    """
    problems: list[str] = []
    warnings: list[str] = []
    env = env or {}
    raw: dict[str, str] = {}
    sources: dict[str, str] = {}
    if path is not None:
        _read_file(Path(path), raw, sources, warnings)
    from_env = keys_from_environment(env)
    if path is None and "process.roles" not in from_env and "process.roles" not in (overrides or {}):
        raw.update(SINGLE_NODE)
        sources.update(dict.fromkeys(SINGLE_NODE, "single-node default"))
    for key, (value, variable) in from_env.items():
        if key not in BROKER_CONFIGS and variable.startswith("KAFKA_REST_"):
            continue
        raw[key], sources[key] = value, f"environment {variable}"
    for key, value in (overrides or {}).items():
        raw[key], sources[key] = value, OVERRIDE_SOURCE
    config = _build(raw, sources, cluster_id_from_environment(env), problems, warnings, hostname or _hostname)
    if check:
        config.validate()
    return config


def _read_file(path: Path, raw: dict[str, str], sources: dict[str, str], warnings: list[str]) -> None:
    """Raises ConfigError at once when the file cannot be read: everything else would only follow from that."""
    try:
        properties = parse_properties(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigError((f"{path} cannot be read: {error.strerror or error}",)) from None
    except ValueError as error:
        raise ConfigError((f"{path}: {error}",)) from None
    for item in properties:
        if item.key in raw:
            warnings.append(f"{path}:{item.line}: {item.key} is set twice; the last one counts")
        raw[item.key] = item.value.rstrip()
        sources[item.key] = f"{path}:{item.line}"


def _build(
    raw: dict[str, str],
    sources: dict[str, str],
    cluster_id: str | None,
    problems: list[str],
    warnings: list[str],
    hostname: Callable[[], str],
) -> ServerConfig:
    values = {key: definition.default for key, definition in BROKER_CONFIGS.items() if definition.default is not None}
    origin = dict.fromkeys(values, DEFAULT_SOURCE)
    typed: dict[str, Any] = {key: BROKER_CONFIGS[key].parse(text) for key, text in values.items()}
    for key, text in raw.items():
        definition = broker_key_of(key)
        # An empty value of a key without default is as good as none, as people write it in compose files.
        if definition is not None and text == "" and definition.default is None:
            continue
        values[key], origin[key] = text, sources[key]
        if definition is None:
            warnings.append(f"unknown configuration key {key} ({sources[key]}) has no effect")
            continue
        try:
            typed[key] = definition.parse(text)
        except ValueError as error:
            problems.append(f"{error} ({sources[key]})")
    resolved = resolve(typed, frozenset(raw), problems, warnings, hostname)
    return ServerConfig(
        node_id=resolved.node_id,
        roles=resolved.roles,
        cluster_id=cluster_id,
        listeners=resolved.listeners,
        advertised_listeners=resolved.advertised,
        advertised_controller_listeners=resolved.advertised_controllers,
        controller_listener_names=resolved.controller_names,
        inter_broker_listener_name=resolved.inter_broker,
        quorum_voters=resolved.voters,
        quorum_bootstrap_servers=resolved.bootstrap_servers,
        log_dirs=resolved.log_dirs,
        metadata_log_dir=resolved.metadata_log_dir,
        values=MappingProxyType(values),
        sources=MappingProxyType(origin),
        warnings=tuple(warnings),
        problems=tuple(problems),
    )


def _hostname() -> str:
    """This machine's name, if it resolves here; otherwise clients on this machine at least are served."""
    name = socket.gethostname()
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        return "localhost"
    return name
