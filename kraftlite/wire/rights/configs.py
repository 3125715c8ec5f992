"""Configs: each resource is decided by itself. Source: SE-40."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from kraftlite.model.acls import REFUSAL_TEXTS, REFUSALS, Operation, ResourceType
from kraftlite.model.messages.choices import ConfigResourceType
from kraftlite.security.configs import denied_config
from kraftlite.security.gate import Rights
from kraftlite.wire.apis.call import Adapter, Call, Guard, changed


async def describe_configs(call: Call, rights: Rights, request: Any, adapt: Adapter) -> Mapping[str, object]:
    allowed, results = [], []
    async for one in call.ctx.turns.each(request.resources):
        refused = denied_config(rights, Operation.DESCRIBE_CONFIGS, one.resource_type, one.resource_name)
        if refused is None:
            allowed.append(one)
        else:
            results.append({**_refused(one, refused), "configs": []})
    values = await adapt(call, changed(request, resources=tuple(allowed)))
    return {**values, "results": [*cast(list[object], values["results"]), *results]}


def alter_loggers(operation: Operation) -> Guard:
    """Loggers are this node's own matter; the controller decides about all other resources."""

    async def guard(call: Call, rights: Rights, request: Any, adapt: Adapter) -> Mapping[str, object]:
        loggers = [one for one in request.resources if one.resource_type == ConfigResourceType.BROKER_LOGGER]
        if not loggers or rights.cluster(operation):
            return await adapt(call, request)
        rest = tuple(one for one in request.resources if one.resource_type != ConfigResourceType.BROKER_LOGGER)
        values = await adapt(call, changed(request, resources=rest))
        refused = [_refused(one, ResourceType.CLUSTER) for one in loggers]
        return {**values, "responses": [*cast(list[object], values["responses"]), *refused]}

    return guard


def _refused(resource: Any, kind: ResourceType) -> dict[str, object]:
    return {
        "error_code": REFUSALS[kind],
        "error_message": REFUSAL_TEXTS[kind],
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
    }
