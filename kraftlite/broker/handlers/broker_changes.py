"""The values of a broker's configs together, looked at before a change is handed to the controller: the broker alone knows its
file. Source: KIP-226; Kafka's ConfigAdminManager and DynamicBrokerConfig."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from kraftlite.broker.handlers.context import BrokerContext, NodeContext
from kraftlite.model.broker_configs import BROKER_CONFIGS, LISTENER_NAMES, LISTENER_PROTOCOLS, login_keys
from kraftlite.model.broker_limits import CLEANER_KEYS, cleaner_change_problems
from kraftlite.model.config_effects import RELOADABLE
from kraftlite.model.configdef import changed_list
from kraftlite.model.cordoned import CORDONED_DIRS, cordoned_dirs, is_less
from kraftlite.model.group_configs import ASSIGNMENT_INTERVAL_KEY
from kraftlite.model.ids import node_id_of
from kraftlite.model.messages.controller import AlterConfigOp, ConfigResourceChange, ConfigResourceType, LegacyConfigResource

_LISTS: Final = {CORDONED_DIRS: "", LISTENER_NAMES: str(BROKER_CONFIGS[LISTENER_NAMES].default)}
"""Lists that a check needs whole, with what a change adds to where nothing is set: the default of all, as in Kafka, and not what
the file has."""


async def change_problems(ctx: BrokerContext, resource: ConfigResourceChange | LegacyConfigResource) -> list[str]:
    """Return why this broker cannot run with the change, in words. The resource is the broker, or the default of all brokers.

    What is wrong with a single value is for the controller to say, so such a change has no problem here.
    """
    if resource.resource_name == "" and (own := _per_broker(resource)):
        return [f"Cannot update these configs at default cluster level, broker id must be specified: [{', '.join(own)}]"]
    if (problems := _tls_problems(ctx, resource)) is not None:
        return problems
    now = effective_broker_values(ctx)
    then = effective_broker_values(ctx, {resource.resource_name: _changed(ctx, resource)})
    if resource.resource_name and ctx.listener_problems is not None:
        changed = frozenset(key for key in now.keys() | then.keys() if now.get(key) != then.get(key))
        if problems := await ctx.listener_problems(then, changed):
            return problems
    if now.get(CORDONED_DIRS) != then.get(CORDONED_DIRS) and ctx.log_dirs is not None:
        paths = (*ctx.log_dirs.online_directories(), *ctx.log_dirs.offline_directories())
        try:
            cordoned_dirs(then.get(CORDONED_DIRS) or "", paths)
        except ValueError as error:
            return [str(error)]
    if now.get(ASSIGNMENT_INTERVAL_KEY) != then.get(ASSIGNMENT_INTERVAL_KEY) and (problem := _interval_problem(_number(then))):
        return [problem]
    if all(now.get(key) == then.get(key) for key in CLEANER_KEYS):
        return []
    try:
        return cleaner_change_problems(_number(now), _number(then))
    except ValueError:
        return []


def _interval_problem(number: Callable[[str], float]) -> str | None:
    least, most = (ASSIGNMENT_INTERVAL_KEY.replace(".assignment.", f".{which}.assignment.") for which in ("min", "max"))
    try:
        interval, low, high = number(ASSIGNMENT_INTERVAL_KEY), number(least), number(most)
    except ValueError:
        return None
    if interval < low:
        return f"{ASSIGNMENT_INTERVAL_KEY} must be greater than or equal to {least}"
    return f"{ASSIGNMENT_INTERVAL_KEY} must be less than or equal to {most}" if interval > high else None


def _per_broker(resource: ConfigResourceChange | LegacyConfigResource) -> list[str]:
    """The keys that hold for one broker alone, and not for one of its listeners."""
    keys = (BROKER_CONFIGS.get(name) for name in _set_keys(resource))
    return sorted(key.name for key in keys if key is not None and key.dynamic == "per-broker" and key.name not in RELOADABLE)


def _set_keys(resource: ConfigResourceChange | LegacyConfigResource) -> frozenset[str]:
    """The keys that a change sets: what may have been set, however it came there, may be taken back."""
    if isinstance(resource, LegacyConfigResource):
        return frozenset(pair.name for pair in resource.configs)
    return frozenset(change.name for change in resource.changes if change.op != AlterConfigOp.DELETE)


def _tls_problems(ctx: BrokerContext, resource: ConfigResourceChange | LegacyConfigResource) -> list[str] | None:
    """None: the change is not about TLS. The new stores are read, so that what cannot be used is refused (SE-05)."""
    pairs = resource.configs if isinstance(resource, LegacyConfigResource) else resource.changes
    changed = frozenset(pair.name for pair in pairs)
    if alone := sorted(_set_keys(resource) & RELOADABLE):
        told = ", ".join(alone)
        return [f"These security configs can be dynamically updated only per-listener using the listener prefix: {told}"]
    if resource.resource_name == "" or not any(name.startswith("listener.name.") and ".ssl." in name for name in changed):
        return None
    if ctx.tls_problems is None:
        return None
    return ctx.tls_problems(effective_broker_values(ctx, {resource.resource_name: _changed(ctx, resource)}), changed) or None


def moves_controller(ctx: NodeContext, resource: ConfigResourceChange | LegacyConfigResource) -> bool:
    """Return whether a change is about the listeners of a node that is only a controller, which are those of its file (CB-06)."""
    node_id, cluster = node_id_of(resource.resource_name), ctx.metadata.image.cluster
    pairs = resource.configs if isinstance(resource, LegacyConfigResource) else resource.changes
    named = any(pair.name in (LISTENER_NAMES, LISTENER_PROTOCOLS) and pair.value is not None for pair in pairs)
    return named and node_id is not None and node_id in cluster.controllers and node_id not in cluster.brokers


def login_changes(ctx: NodeContext, resource: ConfigResourceChange | LegacyConfigResource) -> list[str]:
    """Return the keys of a change that say how clients log in at a listener that is open, as far as a controller knows: those
    that a broker has registered, and its own."""
    broker_id, image = node_id_of(resource.resource_name), ctx.metadata.image
    if broker_id is None:
        return []
    nodes = (image.cluster.brokers.get(broker_id), image.cluster.controllers.get(broker_id))
    now = image.configs.get(ConfigResourceType.BROKER, resource.resource_name)
    then = _changed(ctx, resource)
    changed = [key for key in now.keys() | then.keys() if now.get(key) != then.get(key)]
    return login_keys(changed, [listener.name for node in nodes if node is not None for listener in node.listeners])


def cordons_more(ctx: BrokerContext, resource: ConfigResourceChange | LegacyConfigResource) -> bool:
    """Return whether a change cordons directories that are not cordoned dynamically (JB-13)."""
    present = ctx.metadata.image.configs.get(ConfigResourceType.BROKER, resource.resource_name).get(CORDONED_DIRS, "")
    return not is_less(_changed(ctx, resource).get(CORDONED_DIRS, ""), present)


def effective_broker_values(ctx: BrokerContext, instead: Mapping[str, Mapping[str, str]] | None = None) -> dict[str, str]:
    """Return the broker's values by precedence (CM-49). `instead`: dynamic values, by the resource's name, that replace those of
    the metadata."""
    values = dict(ctx.config.values)
    for name in ("", str(ctx.node_id)):
        dynamic = None if instead is None else instead.get(name)
        values.update(ctx.metadata.image.configs.get(ConfigResourceType.BROKER, name) if dynamic is None else dynamic)
    return values


def _changed(ctx: NodeContext, resource: ConfigResourceChange | LegacyConfigResource) -> dict[str, str]:
    """Return the dynamic values of a resource after a change. Of its lists only that is changed which a check needs."""
    if isinstance(resource, LegacyConfigResource):
        return {pair.name: pair.value for pair in resource.configs if pair.value is not None}
    values = dict(ctx.metadata.image.configs.get(ConfigResourceType.BROKER, resource.resource_name))
    for change in resource.changes:
        if change.op == AlterConfigOp.DELETE:
            values.pop(change.name, None)
        elif change.op == AlterConfigOp.SET and change.value is not None:
            values[change.name] = change.value
        elif change.name in _LISTS and change.value is not None:
            append = change.op == AlterConfigOp.APPEND
            values[change.name] = changed_list(values.get(change.name, _LISTS[change.name]), change.value, append=append)
    return values


def _number(values: Mapping[str, str]) -> Callable[[str], int]:
    def value(name: str) -> int:
        key = BROKER_CONFIGS[name]
        return int(key.parse(values.get(name, key.default or "")))

    return value
