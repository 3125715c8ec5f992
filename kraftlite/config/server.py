"""The whole configuration of one node, from built-in defaults, a `server.properties` file, the environment and flags.

Precedence: defaults < file < environment < flags. An unknown key is a warning, a bad value a problem; all problems are
reported at once. Source: BL-25, RF-58, CM-49; docs/spec/defaults.md.
"""

from __future__ import annotations

import difflib
import re
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from kraftlite.client.opening import has_no_writer, open_at_once
from kraftlite.config.authorization import open_to_nodes
from kraftlite.config.environment import cluster_id_from_environment, keys_from_environment
from kraftlite.config.listeners import QuorumVoter
from kraftlite.config.properties import parse_properties
from kraftlite.config.resolve import Resolved, resolve
from kraftlite.config.sasl import listeners_sasl, misplaced_sasl, unused_sasl
from kraftlite.model.broker_configs import BROKER_CONFIGS, broker_key_of
from kraftlite.model.config_effects import EFFECTS, TLS_OF_LISTENERS, Effect, effect_of, is_sensitive, refusal
from kraftlite.model.ids import Endpoint, NodeId
from kraftlite.model.limits import KIB, MIB
from kraftlite.model.messages.controller import ListenerInfo
from kraftlite.model.policy import PolicyKind
from kraftlite.model.shown import printable, shown
from kraftlite.security.listener_sasl import ListenerSasl

if TYPE_CHECKING:
    from kraftlite.tls.settings import TlsSettings

DEFAULT_SOURCE = "default"
OVERRIDE_SOURCE = "flag --override"
MAX_FILE_BYTES = MIB
MAX_VALUE_LENGTH = 64 * KIB
_TOLD_ONE_BY_ONE = 20
"""Unknown keys and keys set twice beyond so many are only counted: a file of something else has no other lines."""
_MAX_PROBLEMS = 500
_MAX_LINE = 1000
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")

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
    """The configuration of one node. Immutable; `values` has the effective text of every key that has one.

    `listeners` are all sockets, the derived gRPC listener included. `advertised_listeners` are what a broker registers,
    `advertised_controller_listeners` what a controller registers; a port 0 there means: the port that was bound.
    """

    node_id: NodeId
    roles: tuple[str, ...]
    cluster_id: str | None
    """The id from the environment (`CLUSTER_ID`); the directories of a formatted node say it as well."""
    listeners: tuple[ListenerInfo, ...]
    advertised_listeners: tuple[ListenerInfo, ...]
    advertised_controller_listeners: tuple[ListenerInfo, ...]
    controller_listener_names: tuple[str, ...]
    inter_broker_listener_name: str | None
    inter_broker_named: str | None
    """The listener of Kafka's that the inter-broker listener was added for; its settings are those of the added one."""
    controller_listener: ListenerInfo | None
    """The listener at which controllers are dialled."""
    tls: Mapping[str, TlsSettings] = field(repr=False)
    """By the names of the listeners that speak TLS, the controllers' included where this node only dials it."""
    quorum_voters: tuple[QuorumVoter, ...]
    quorum_bootstrap_servers: tuple[Endpoint, ...]
    log_dirs: tuple[str, ...]
    metadata_log_dir: str
    values: Mapping[str, str] = field(repr=False)
    sources: Mapping[str, str]
    sasl: Mapping[str, ListenerSasl] = field(default_factory=dict, repr=False)
    """The SASL of the listeners that have it, by their names."""
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
        """The STATIC_BROKER_CONFIG values: those that were set, not the defaults."""
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
            value = "[hidden]" if is_sensitive(key) else self.values[key]
            found.append(Explained(key, value, self.sources[key], effect_of(key) is not None))
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
        with open_at_once(path) as file:
            data = file.read(MAX_FILE_BYTES + 1)
            nobody = has_no_writer(file, data)
    except OSError as error:
        raise ConfigError((f"{path} cannot be read: {error.strerror or error}",)) from None
    if nobody:
        raise ConfigError((f"{path} is a pipe that nobody writes into",))
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError((f"{path} is larger than {MAX_FILE_BYTES} bytes; a node's configuration has a few thousand",))
    try:
        properties = parse_properties(data.decode())
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            (f"{path}: line {line}: byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8",)
        ) from None
    except ValueError as error:
        raise ConfigError((f"{path}: {printable(str(error))}",)) from None
    twice: list[str] = []
    for item in properties:
        if item.key in raw:
            twice.append(f"{path}:{item.line}: {_short(item.key)} is set twice; the last one counts")
        raw[item.key] = item.value.rstrip()
        sources[item.key] = f"{path}:{item.line}"
    warnings.extend(_first(twice, "keys are set twice"))


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
        problem = _unusable(key, text)
        if problem is None and definition is not None:
            try:
                typed[key] = definition.parse(text)
            except ValueError as error:
                problem = str(error)
        problem = problem or refusal(key, text)
        if problem is not None:
            problems.append(f"{problem} ({sources[key]})")
    warnings.extend(_unknown(raw, sources))
    warnings.extend(_without_effect(raw))
    resolved = resolve(typed, frozenset(raw), problems, warnings, hostname)
    warnings.extend(open_to_nodes(typed, resolved.listeners, resolved.sasl_listeners))
    if "controller" not in resolved.roles:
        warnings += [f"{key}: policies are asked by controllers, and this node is none" for key in PolicyKind if values.get(key)]
    tls = _tls(values, resolved, problems)
    warnings.extend(_unused_tls(raw) if not tls else [])
    sasl = listeners_sasl(values, resolved.sasl_listeners, problems)
    problems.extend(misplaced_sasl(tuple(raw), sasl))
    warnings.extend(unused_sasl(raw, sasl))
    return ServerConfig(
        node_id=resolved.node_id,
        roles=resolved.roles,
        cluster_id=cluster_id,
        listeners=resolved.listeners,
        advertised_listeners=resolved.advertised,
        advertised_controller_listeners=resolved.advertised_controllers,
        controller_listener_names=resolved.controller_names,
        inter_broker_listener_name=resolved.inter_broker,
        inter_broker_named=resolved.derived_from,
        controller_listener=resolved.controllers,
        tls=MappingProxyType(tls),
        quorum_voters=resolved.voters,
        quorum_bootstrap_servers=resolved.bootstrap_servers,
        log_dirs=resolved.log_dirs,
        metadata_log_dir=resolved.metadata_log_dir,
        values=MappingProxyType(values),
        sources=MappingProxyType(origin),
        sasl=MappingProxyType(sasl),
        warnings=tuple(printable(warning) for warning in warnings),
        problems=tuple(_bounded(problems)),
    )


def _tls(values: Mapping[str, str], resolved: Resolved, problems: list[str]) -> Mapping[str, TlsSettings]:
    """A node in plain text does not import what TLS needs."""
    listeners = resolved.listeners
    controllers = resolved.controllers
    dialled = controllers if controllers is not None and controllers not in listeners else None
    protocols = {listener.security_protocol for listener in (*listeners, *([] if dialled is None else [dialled]))}
    if not protocols & {"SSL", "SASL_SSL", "GRPC_TLS"}:
        return {}
    from kraftlite.config.tls import tls_settings

    named_as = {} if resolved.derived_from is None else {str(resolved.inter_broker): resolved.derived_from}
    return tls_settings(values, listeners, dialled, named_as, problems)


def _unused_tls(raw: Mapping[str, str]) -> list[str]:
    """One line for keys that say how TLS is spoken where nothing speaks it."""
    found = []
    for key in sorted(raw):
        effect = effect_of(key)
        if effect is not None and effect.rule.title == TLS_OF_LISTENERS and effect.departs(raw[key]):
            found.append(key)
    if not found:
        return []
    return [f"no listener speaks TLS (protocol SSL), so these keys have no effect: {', '.join(found)}"]


def _bounded(problems: Sequence[str]) -> list[str]:
    rest = len(problems) - _MAX_PROBLEMS
    return [
        *(shown(printable(problem), _MAX_LINE) for problem in problems[:_MAX_PROBLEMS]),
        *([f"{rest} more problems"] if rest > 0 else []),
    ]


def _unusable(key: str, text: str) -> str | None:
    """Describe what is wrong with a value of whatever type."""
    if len(text) > MAX_VALUE_LENGTH:
        return f"{_short(key)} has {len(text)} characters; allowed are at most {MAX_VALUE_LENGTH}"
    for where, found in (("its name", _UNPRINTABLE.search(key)), ("its value", _UNPRINTABLE.search(text))):
        if found is not None:
            return f"{_short(key)}: {where} contains the control character U+{ord(found.group()):04X}, which no setting needs"
    return None


def _unknown(raw: Mapping[str, str], sources: Mapping[str, str]) -> list[str]:
    """Kafka only warns of a key that it does not know: a plug-in may. What was probably meant is said."""
    lines: list[str] = []
    for key in raw:
        if effect_of(key) is None:
            # Comparing costs: not for a file full of something else.
            close = difflib.get_close_matches(key[:100], EFFECTS, n=1, cutoff=0.85) if len(lines) < _TOLD_ONE_BY_ONE else []
            meant = f"; did you mean {close[0]}?" if close else ""
            lines.append(f"unknown configuration key {_short(key)} ({sources[key]}) has no effect{meant}")
    return _first(lines, "configuration keys are unknown")


def _without_effect(raw: Mapping[str, str]) -> list[str]:
    """One line for all keys that are taken for the sake of pasted files; values that are Kafka's defaults promise nothing."""
    idle, partly = [], []
    for key in sorted(raw):
        found = effect_of(key)
        if found is not None and found.departs(raw[key]):
            if found.rule.effect is Effect.NONE:
                idle.append(key)
            elif found.rule.effect is Effect.IN_PART:
                partly.append(f"{key} has an effect in part: {found.rule.words}")
    told = "key has" if len(idle) == 1 else "keys have"
    return [
        *partly,
        *([f"{len(idle)} {told} no effect here (kraftlite config keys says why): {', '.join(idle)}"] if idle else []),
    ]


def _first(lines: Sequence[str], what: str) -> list[str]:
    rest = len(lines) - _TOLD_ONE_BY_ONE
    return [*lines[:_TOLD_ONE_BY_ONE], *([f"{rest} more {what}"] if rest > 0 else [])]


def _short(key: str) -> str:
    return shown(printable(key))


def _hostname() -> str:
    """This machine's name, if it resolves here; otherwise clients on this machine at least are served."""
    name = socket.gethostname()
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        return "localhost"
    return name
