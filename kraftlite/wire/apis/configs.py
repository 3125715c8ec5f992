"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs on the wire."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from kraftlite.broker.handlers.admin import alter_configs
from kraftlite.broker.handlers.config_resources import list_config_resources
from kraftlite.broker.handlers.configs import ConfigEntry, ConfigQuery, describe_configs
from kraftlite.broker.handlers.context import BrokerContext
from kraftlite.broker.handlers.forwarding import bounded
from kraftlite.model.errors import ApiError, ErrorCode
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


async def _describe(call: Call, request: Any) -> Mapping[str, object]:
    synonyms = getattr(request, "include_synonyms", False)
    documentation = getattr(request, "include_documentation", False)
    results = []
    async for resource in call.ctx.turns.each(request.resources):
        query = ConfigQuery(
            resource_type=resource.resource_type, resource_name=resource.resource_name, keys=resource.configuration_keys
        )
        result = describe_configs(call.ctx, query, synonyms=synonyms, documentation=documentation)
        results.append(
            {
                "error_code": result.error,
                "error_message": result.message,
                "resource_type": result.resource_type,
                "resource_name": result.resource_name,
                "configs": [_entry(entry) for entry in result.entries],
            }
        )
    return {"throttle_time": 0, "results": results}


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
DESCRIBE_CONFIGS = cold(32, "DescribeConfigs", versions=(1, 4), flexible_from=4, adapt=_describe)
ALTER_CONFIGS = cold(33, "AlterConfigs", versions=(0, 2), flexible_from=2, adapt=legacy_alter)
INCREMENTAL_ALTER_CONFIGS = cold(44, "IncrementalAlterConfigs", versions=(0, 1), flexible_from=1, adapt=incremental_alter)
