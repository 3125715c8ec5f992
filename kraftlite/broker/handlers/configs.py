"""DescribeConfigs: the effective value of every key, where it comes from, and what else would apply.

Source: CM-49, CM-51, CP-13; KIP-133, KIP-226, KIP-569.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import dropwhile

from kraftlite.broker.handlers.broker_changes import effective_broker_values
from kraftlite.broker.handlers.context import BrokerContext
from kraftlite.broker.handlers.loggers import levels
from kraftlite.model.broker_configs import BROKER_CONFIGS, broker_synonyms, topic_defaults
from kraftlite.model.configdef import ConfigKey, ConfigSource
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.group_configs import CLIENT_METRICS_CONFIGS, GROUP_CONFIGS
from kraftlite.model.ids import node_id_of
from kraftlite.model.messages.controller import ConfigResourceType
from kraftlite.model.shown import shown
from kraftlite.model.topic_configs import TOPIC_CONFIGS
from kraftlite.model.topic_name import validate_topic_name


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigSynonym:
    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """One key of a resource. `value` is None for a sensitive key (CM-51) and for one that is not set."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool
    type: int
    synonyms: tuple[ConfigSynonym, ...] = ()
    documentation: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigQuery:
    """`keys` None: all of them."""

    resource_type: int
    resource_name: str
    keys: tuple[str, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigDescription:
    error: ErrorCode
    message: str | None
    resource_type: int
    resource_name: str
    entries: tuple[ConfigEntry, ...] = ()


def describe_configs(ctx: BrokerContext, query: ConfigQuery, *, synonyms: bool, documentation: bool) -> ConfigDescription:
    """One resource. What is wrong with it is in the answer."""
    keys = None if query.keys is None else frozenset(query.keys)
    try:
        entries = tuple(
            _shown(entry, synonyms, documentation) for entry in _entries(ctx, query) if keys is None or entry.name in keys
        )
    except ApiError as error:
        return ConfigDescription(
            error=error.code, message=error.message, resource_type=query.resource_type, resource_name=query.resource_name
        )
    return ConfigDescription(
        error=ErrorCode.NONE,
        message="",
        resource_type=query.resource_type,
        resource_name=query.resource_name,
        entries=entries,
    )


def _shown(entry: ConfigEntry, synonyms: bool, documentation: bool) -> ConfigEntry:
    return ConfigEntry(
        name=entry.name,
        value=None if entry.sensitive else entry.value,
        source=entry.source,
        read_only=entry.read_only,
        sensitive=entry.sensitive,
        type=entry.type,
        synonyms=_hidden(entry) if synonyms else (),
        documentation=entry.documentation if documentation else None,
    )


def _hidden(entry: ConfigEntry) -> tuple[ConfigSynonym, ...]:
    if not entry.sensitive:
        return entry.synonyms
    return tuple(ConfigSynonym(name=found.name, value=None, source=found.source) for found in entry.synonyms)


def _entries(ctx: BrokerContext, query: ConfigQuery) -> Iterator[ConfigEntry]:
    kind, name = query.resource_type, query.resource_name
    if kind == ConfigResourceType.TOPIC:
        validate_topic_name(name)
        if ctx.metadata.topic(name) is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
        return _topic_entries(ctx, name)
    if kind == ConfigResourceType.BROKER:
        if name == "":
            return _cluster_default_entries(ctx)
        _own_id(ctx, name, " or empty string,")
        return _broker_entries(ctx)
    if kind == ConfigResourceType.BROKER_LOGGER:
        if name == "":
            raise ApiError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
        _own_id(ctx, name, "")
        return _logger_entries(ctx)
    if kind == ConfigResourceType.GROUP:
        if name == "":
            raise ApiError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        return _defined_entries(ctx, kind, name, GROUP_CONFIGS, ConfigSource.GROUP_CONFIG)
    if kind == ConfigResourceType.CLIENT_METRICS:
        if name == "":
            raise ApiError(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
        return _defined_entries(ctx, kind, name, CLIENT_METRICS_CONFIGS, ConfigSource.CLIENT_METRICS_CONFIG)
    raise ApiError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type {kind}")


def _logger_entries(ctx: BrokerContext) -> Iterator[ConfigEntry]:
    source = ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG
    for name, level in levels(ctx).items():
        yield ConfigEntry(name=name, value=level, source=source, read_only=False, sensitive=False, type=0)


def _own_id(ctx: BrokerContext, name: str, otherwise: str) -> None:
    """Check the id of a broker: only a broker itself knows its static values (CP-13)."""
    broker_id = node_id_of(name)
    if broker_id is None:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {shown(name)}")
    if broker_id != ctx.node_id:
        message = f"Unexpected broker id, expected {ctx.node_id}{otherwise} but received {shown(name)}"
        raise ApiError(ErrorCode.INVALID_REQUEST, message)


def _dynamic(ctx: BrokerContext, kind: int, name: str) -> Mapping[str, str]:
    return ctx.metadata.image.configs.get(kind, name)


def _is_static(ctx: BrokerContext, key: ConfigKey) -> bool:
    value = ctx.config.values.get(key.name)
    if value is None:
        return False
    if key.name in ctx.config_sources:
        return ctx.config_sources[key.name] != "default"
    return value != key.default


def _broker_synonyms(ctx: BrokerContext, name: str) -> Iterator[ConfigSynonym]:
    """List the values that apply to a broker key, strongest first (CM-49). Of its other names only those that come after it
    are listed, so nothing where it is not set: as Kafka has it, `log.retention.ms` does not show the default of
    `log.retention.hours`."""
    return dropwhile(lambda found: found.name != name, _set_values(ctx, broker_synonyms(name)))


def _set_values(ctx: BrokerContext, names: Sequence[str]) -> Iterator[ConfigSynonym]:
    own = _dynamic(ctx, ConfigResourceType.BROKER, str(ctx.node_id))
    default = _dynamic(ctx, ConfigResourceType.BROKER, "")
    for values, source in ((own, ConfigSource.DYNAMIC_BROKER_CONFIG), (default, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)):
        for name in names:
            if name in values:
                yield ConfigSynonym(name=name, value=values[name], source=source)
    known = [BROKER_CONFIGS[name] for name in names if name in BROKER_CONFIGS]
    for key in known:
        if _is_static(ctx, key):
            yield ConfigSynonym(name=key.name, value=ctx.config.values[key.name], source=ConfigSource.STATIC_BROKER_CONFIG)
    for key in known:
        if key.default is not None:
            yield ConfigSynonym(name=key.name, value=key.default, source=ConfigSource.DEFAULT_CONFIG)


def _topic_entries(ctx: BrokerContext, topic: str) -> Iterator[ConfigEntry]:
    overrides = _dynamic(ctx, ConfigResourceType.TOPIC, topic)
    defaults = topic_defaults(effective_broker_values(ctx))
    for name, key in TOPIC_CONFIGS.items():
        chain: list[ConfigSynonym] = []
        if name in overrides:
            chain.append(ConfigSynonym(name=name, value=overrides[name], source=ConfigSource.TOPIC_CONFIG))
        if key.server_key is not None:
            chain.extend(_broker_synonyms(ctx, key.server_key))
        value = overrides.get(name, defaults.get(name, key.default))
        yield _entry(key, value, chain, read_only=False)


def _broker_entries(ctx: BrokerContext) -> Iterator[ConfigEntry]:
    for name, key in BROKER_CONFIGS.items():
        chain = list(_broker_synonyms(ctx, name))
        value = chain[0].value if chain else ctx.config.values.get(name)
        yield _entry(key, value, chain, read_only=key.dynamic == "read-only")
    set_dynamically = {*_dynamic(ctx, ConfigResourceType.BROKER, ""), *_dynamic(ctx, ConfigResourceType.BROKER, str(ctx.node_id))}
    for name in sorted(set_dynamically - BROKER_CONFIGS.keys()):
        found = next(_broker_synonyms(ctx, name))
        yield _unknown_key(name, found.value or "", found)


def _cluster_default_entries(ctx: BrokerContext) -> Iterator[ConfigEntry]:
    """List only what is set for all brokers: the rest differs from broker to broker."""
    values = _dynamic(ctx, ConfigResourceType.BROKER, "")
    for name in sorted(values):
        key = BROKER_CONFIGS.get(name)
        synonym = ConfigSynonym(name=name, value=values[name], source=ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
        if key is not None:
            yield _entry(key, values[name], [synonym], read_only=False)
        else:
            yield _unknown_key(name, values[name], synonym)


def _defined_entries(
    ctx: BrokerContext, kind: int, name: str, keys: Mapping[str, ConfigKey], source: ConfigSource
) -> Iterator[ConfigEntry]:
    """Every key of a resource that has no file: what is set, else the broker's key for it, else the default."""
    values = _dynamic(ctx, kind, name)
    for key in keys.values():
        chain: list[ConfigSynonym] = []
        if key.name in values:
            chain.append(ConfigSynonym(name=key.name, value=values[key.name], source=source))
        if key.server_key is not None:
            chain.extend(_broker_synonyms(ctx, key.server_key))
        yield _entry(key, chain[0].value if chain else key.default, chain, read_only=False)


def _unknown_key(name: str, value: str, synonym: ConfigSynonym) -> ConfigEntry:
    """A key this software does not define may hold anything, a password too: it is treated as sensitive, as Kafka does."""
    return ConfigEntry(
        name=name, value=value, source=synonym.source, read_only=False, sensitive=True, type=0, synonyms=(synonym,)
    )


def _entry(key: ConfigKey, value: str | None, chain: Sequence[ConfigSynonym], *, read_only: bool) -> ConfigEntry:
    return ConfigEntry(
        name=key.name,
        value=value,
        source=chain[0].source if chain else ConfigSource.DEFAULT_CONFIG,
        read_only=read_only,
        sensitive=key.sensitive,
        type=int(key.type),
        synonyms=tuple(chain),
        documentation=key.doc,
    )
