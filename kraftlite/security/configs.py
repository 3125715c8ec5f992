"""The resource that stands behind a config resource: a topic, a group, or the cluster. Source: SE-40; Kafka's ConfigHelper."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kraftlite.model.acls import CLUSTER_NAME, Operation, ResourceType
from kraftlite.model.messages.choices import ConfigResourceType
from kraftlite.security.gate import Rights

RESOURCE_OF: Final[Mapping[int, ResourceType]] = {
    ConfigResourceType.TOPIC: ResourceType.TOPIC,
    ConfigResourceType.GROUP: ResourceType.GROUP,
    ConfigResourceType.BROKER: ResourceType.CLUSTER,
    ConfigResourceType.BROKER_LOGGER: ResourceType.CLUSTER,
    ConfigResourceType.CLIENT_METRICS: ResourceType.CLUSTER,
}


def denied_config(rights: Rights, operation: Operation, kind: int, name: str) -> ResourceType | None:
    """Return the type of the resource for which the client lacks the right; None where it has it. A config resource of a type
    that there is not is refused elsewhere."""
    resource = RESOURCE_OF.get(kind)
    if resource is None or rights.may(operation, resource, CLUSTER_NAME if resource is ResourceType.CLUSTER else name):
        return None
    return resource
