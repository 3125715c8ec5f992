"""Requests of administrators about access control entries, on a `ClusterClient`. Source: KIP-140, KIP-290."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kraftlite.client.cluster import ClusterClient, check
from kraftlite.model.acls import AclBinding, AclBindingFilter, Operation, PatternType, Permission, ResourceType

ALL_ENTRIES = AclBindingFilter(
    resource_type=ResourceType.ANY,
    resource_name=None,
    pattern_type=PatternType.ANY,
    principal=None,
    host=None,
    operation=Operation.ANY,
    permission_type=Permission.ANY,
)


def create_acls(cluster: ClusterClient, bindings: Sequence[AclBinding]) -> None:
    """Raises RequestRefused for the first that is refused; the others are there."""
    creations = [
        {
            "resource_type": one.resource_type,
            "resource_name": one.resource_name,
            "resource_pattern_type": one.pattern_type,
            **_entry(one),
        }
        for one in bindings
    ]
    for result in cluster.call(30, 3, {"creations": creations}).results:
        check(result)


def describe_acls(cluster: ClusterClient, wanted: AclBindingFilter) -> list[AclBinding]:
    """Raises RequestRefused."""
    answer = check(cluster.call(29, 3, _filter(wanted)))
    return [_binding(resource, entry) for resource in answer.resources for entry in resource.acls]


def delete_acls(cluster: ClusterClient, filters: Sequence[AclBindingFilter]) -> list[AclBinding]:
    """The entries that are gone. Raises RequestRefused."""
    answer = cluster.call(31, 3, {"filters": [_filter(one) for one in filters]})
    return [_binding(check(one), one) for result in answer.filter_results for one in check(result).matching_acls]


def _entry(one: AclBinding) -> Mapping[str, object]:
    return {
        "principal": one.principal,
        "host": one.host,
        "operation": one.operation,
        "permission_type": one.permission_type,
    }


def _filter(one: AclBindingFilter) -> dict[str, object]:
    return {
        "resource_type_filter": one.resource_type,
        "resource_name_filter": one.resource_name,
        "pattern_type_filter": one.pattern_type,
        "principal_filter": one.principal,
        "host_filter": one.host,
        "operation": one.operation,
        "permission_type": one.permission_type,
    }


def _binding(resource: Any, entry: Any) -> AclBinding:
    return AclBinding(
        resource_type=int(resource.resource_type),
        resource_name=str(resource.resource_name),
        pattern_type=int(resource.pattern_type),
        principal=str(entry.principal),
        host=str(entry.host),
        operation=int(entry.operation),
        permission_type=int(entry.permission_type),
    )
