"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs on the wire."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from kraftlite.broker.handlers.admin import alter_configs
from kraftlite.broker.handlers.config_resources import list_config_resources
from kraftlite.broker.handlers.configs import ConfigDescription, ConfigEntry, ConfigQuery, describe_configs
from kraftlite.broker.handlers.context import BrokerContext
from kraftlite.broker.handlers.forwarding import bounded
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.limits import MAX_CONFIGS_TOLD
from kraftlite.model.messages.controller import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    ConfigChange,
    ConfigPair,
    ConfigResourceChange,
    ConfigResourceType,
    IncrementalAlterConfigsRequest,
    LegacyConfigResource,
)
from kraftlite.wire.apis.call import Call, cold

Decides: TypeAlias = Callable[
    [BrokerContext, IncrementalAlterConfigsRequest | AlterConfigsRequest], Awaitable[AlterConfigsResponse]
]
"""A handler that carries out both calls."""


async def describe(call: Call, request: Any, most: int = MAX_CONFIGS_TOLD) -> Mapping[str, object]:
    """A resource that is named again would be told again, with all its values: it is told once, with all keys asked for."""
    synonyms = getattr(request, "include_synonyms", False)
    documentation = getattr(request, "include_documentation", False)
    asked: dict[tuple[int, str], dict[str, None] | None] = {}
    async for resource in call.ctx.turns.each(request.resources):
        named = (resource.resource_type, resource.resource_name)
        before = asked.setdefault(named, {})
        if resource.configuration_keys is None:
            asked[named] = None
        elif before is not None:
            before.update(dict.fromkeys(resource.configuration_keys))
    results: list[Mapping[str, object]] = []
    told: dict[ConfigEntry, dict[str, object]] = {}
    room = most
    async for (kind, name), keys in call.ctx.turns.each(asked.items()):
        query = ConfigQuery(resource_type=kind, resource_name=name, keys=None if keys is None else tuple(keys))
        if room <= 0:
            result = _too_many(kind, name, most)
        else:
            result = describe_configs(call.ctx, query, synonyms=synonyms, documentation=documentation)
        room -= len(result.entries)
        results.append(
            {
                "error_code": result.error,
                "error_message": result.message,
                "resource_type": result.resource_type,
                "resource_name": result.resource_name,
                "configs": [_told(entry, told) for entry in result.entries],
            }
        )
    return {"throttle_time": 0, "results": results}


def _too_many(kind: int, name: str, most: int) -> ConfigDescription:
    message = f"The answer has {most} values already. Ask for fewer resources, or for fewer keys."
    return ConfigDescription(error=ErrorCode.INVALID_REQUEST, message=message, resource_type=kind, resource_name=name)


def _told(entry: ConfigEntry, told: dict[ConfigEntry, dict[str, object]]) -> dict[str, object]:
    """One object for all resources that have the same value of a key from the same place."""
    found = told.get(entry)
    if found is None:
        found = told[entry] = _entry(entry)
    return found


def _entry(entry: ConfigEntry) -> dict[str, object]:
    return {
        "name": entry.name,
        "value": entry.value,
        "read_only": entry.read_only,
        "config_source": int(entry.source),
        "is_sensitive": entry.sensitive,
        "synonyms": [{"name": synonym.name, "value": synonym.value, "source": int(synonym.source)} for synonym in entry.synonyms],
        "config_type": entry.type,
        "documentation": entry.documentation,
    }


async def legacy_alter(call: Call, request: Any, decide: Decides = alter_configs) -> Mapping[str, object]:
    return await _altered(
        call,
        await decide(
            call.ctx,
            AlterConfigsRequest(
                resources=tuple(
                    [
                        LegacyConfigResource(
                            resource_type=resource.resource_type,
                            resource_name=resource.resource_name,
                            configs=tuple(
                                ConfigPair(name=config.name, value=config.value) for config in bounded(resource.configs)
                            ),
                        )
                        async for resource in call.ctx.turns.each(request.resources)
                    ]
                ),
                validate_only=request.validate_only,
                timeout_ms=call.ctx.settings.request_timeout_ms,
                requester=call.on_behalf,
            ),
        ),
    )


async def incremental_alter(call: Call, request: Any, decide: Decides = alter_configs) -> Mapping[str, object]:
    return await _altered(
        call,
        await decide(
            call.ctx,
            IncrementalAlterConfigsRequest(
                resources=tuple(
                    [
                        ConfigResourceChange(
                            resource_type=resource.resource_type,
                            resource_name=resource.resource_name,
                            changes=tuple(
                                ConfigChange(name=config.name, op=config.config_operation, value=config.value)
                                for config in bounded(resource.configs)
                            ),
                        )
                        async for resource in call.ctx.turns.each(request.resources)
                    ]
                ),
                validate_only=request.validate_only,
                timeout_ms=call.ctx.settings.request_timeout_ms,
                requester=call.on_behalf,
            ),
        ),
    )


async def _altered(call: Call, response: AlterConfigsResponse) -> Mapping[str, object]:
    return {
        "throttle_time": 0,
        "responses": [
            {
                "error_code": result.error,
                "error_message": result.message,
                "resource_type": result.resource_type,
                "resource_name": result.resource_name,
            }
            async for result in call.ctx.turns.each(response.resources)
        ],
    }


async def _list(call: Call, request: Any) -> Mapping[str, object]:
    """List config resources. Version 0 was ListClientMetricsResources."""
    types = request.resource_types if call.version >= 1 else (int(ConfigResourceType.CLIENT_METRICS),)
    try:
        found = list_config_resources(call.ctx, call.listener, types)
    except ApiError as error:
        return {"throttle_time": 0, "error_code": error.code, "config_resources": []}
    return {
        "throttle_time": 0,
        "error_code": ErrorCode.NONE,
        "config_resources": [{"resource_type": kind, "resource_name": name} for kind, name in found],
    }


LIST_CONFIG_RESOURCES = cold(74, "ListConfigResources", versions=(0, 1), flexible_from=0, adapt=_list)
DESCRIBE_CONFIGS = cold(32, "DescribeConfigs", versions=(1, 4), flexible_from=4, adapt=describe)
ALTER_CONFIGS = cold(33, "AlterConfigs", versions=(0, 2), flexible_from=2, adapt=legacy_alter)
INCREMENTAL_ALTER_CONFIGS = cold(44, "IncrementalAlterConfigs", versions=(0, 1), flexible_from=1, adapt=incremental_alter)
