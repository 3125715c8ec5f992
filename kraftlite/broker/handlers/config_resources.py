"""ListConfigResources: what there is that can have configs. Source: KIP-714, KIP-1142."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kraftlite.broker.handlers.context import BrokerContext
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.messages.controller import ConfigResourceType

_KNOWN: Final = (
    ConfigResourceType.TOPIC,
    ConfigResourceType.BROKER,
    ConfigResourceType.BROKER_LOGGER,
    ConfigResourceType.CLIENT_METRICS,
    ConfigResourceType.GROUP,
)


def list_config_resources(ctx: BrokerContext, listener: str, types: Sequence[int]) -> list[tuple[int, str]]:
    """(type, name) of every resource of these types; no types: all of them. Of groups and client metrics those with configs.
    Raises ApiError(UNSUPPORTED_VERSION) for a type that there is not."""
    unknown = sorted({kind for kind in types if kind not in _KNOWN})
    if unknown:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported config resource type {unknown[0]}")
    found: list[tuple[int, str]] = []
    for kind in dict.fromkeys(types or _KNOWN):
        if kind == ConfigResourceType.TOPIC:
            names = list(ctx.metadata.topic_names())
        elif kind in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER):
            names = [str(broker.broker_id) for broker in ctx.metadata.alive_brokers(listener)]
        else:
            names = [name for resource_type, name in ctx.metadata.image.configs.resources if resource_type == kind]
        found.extend((int(kind), name) for name in names)
    return found
