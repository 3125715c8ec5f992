"""The values of a broker's configs together, looked at before a change is handed to the controller: the broker alone knows its
file. Source: KIP-226; Kafka's ConfigAdminManager and DynamicBrokerConfig."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kraftlite.broker.handlers.context import BrokerContext
from kraftlite.model.broker_configs import BROKER_CONFIGS
from kraftlite.model.broker_limits import CLEANER_KEYS, cleaner_change_problems
from kraftlite.model.config_effects import RELOADABLE
from kraftlite.model.configdef import changed_list
from kraftlite.model.cordoned import CORDONED_DIRS, cordoned_dirs, is_less
from kraftlite.model.messages.controller import AlterConfigOp, ConfigResourceChange, ConfigResourceType, LegacyConfigResource


def change_problems(ctx: BrokerContext, resource: ConfigResourceChange | LegacyConfigResource) -> list[str]:
    """Return why this broker cannot run with the change, in words. The resource is the broker, or the default of all brokers.

    What is wrong with a single value is for the controller to say, so such a change has no problem here.
    """
    if (problems := _tls_problems(ctx, resource)) is not None:
        return problems
    now = effective_broker_values(ctx)
    then = effective_broker_values(ctx, {resource.resource_name: _changed(ctx, resource)})
    if now.get(CORDONED_DIRS) != then.get(CORDONED_DIRS) and ctx.log_dirs is not None:
        paths = (*ctx.log_dirs.online_directories(), *ctx.log_dirs.offline_directories())
        try:
            cordoned_dirs(then.get(CORDONED_DIRS) or "", paths)
        except ValueError as error:
            return [str(error)]
    if all(now.get(key) == then.get(key) for key in CLEANER_KEYS):
        return []
    try:
        return cleaner_change_problems(_number(now), _number(then))
    except ValueError:
        return []


def _tls_problems(ctx: BrokerContext, resource: ConfigResourceChange | LegacyConfigResource) -> list[str] | None:
    """None: the change is not about TLS. The new stores are read, so that what cannot be used is refused (SE-05)."""
    pairs = resource.configs if isinstance(resource, LegacyConfigResource) else resource.changes
    changed = frozenset(pair.name for pair in pairs)
    if alone := sorted(changed & RELOADABLE):
        told = ", ".join(alone)
        return [f"These security configs can be dynamically updated only per-listener using the listener prefix: {told}"]
    if resource.resource_name == "" or not any(name.startswith("listener.name.") and ".ssl." in name for name in changed):
        return None
    if ctx.tls_problems is None:
        return None
    return ctx.tls_problems(effective_broker_values(ctx, {resource.resource_name: _changed(ctx, resource)}), changed) or None


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


def _changed(ctx: BrokerContext, resource: ConfigResourceChange | LegacyConfigResource) -> dict[str, str]:
    """Return the dynamic values of a resource after a change. Of its lists only that is changed which a check needs."""
    if isinstance(resource, LegacyConfigResource):
        return {pair.name: pair.value for pair in resource.configs if pair.value is not None}
    values = dict(ctx.metadata.image.configs.get(ConfigResourceType.BROKER, resource.resource_name))
    for change in resource.changes:
        if change.op == AlterConfigOp.DELETE:
            values.pop(change.name, None)
        elif change.op == AlterConfigOp.SET and change.value is not None:
            values[change.name] = change.value
        elif change.name == CORDONED_DIRS and change.value is not None:
            append = change.op == AlterConfigOp.APPEND
            values[change.name] = changed_list(values.get(change.name, ""), change.value, append=append)
    return values


def _number(values: Mapping[str, str]) -> Callable[[str], int]:
    def value(name: str) -> int:
        key = BROKER_CONFIGS[name]
        return int(key.parse(values.get(name, key.default or "")))

    return value
