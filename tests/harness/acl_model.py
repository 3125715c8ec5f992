"""The decision of the authorizer as the specification words it, without an index: every entry is looked at for every question."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from kraftlite.model.acls import AclBinding, Operation, PatternType, Permission

IMPLIED = {
    Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
    Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
}


def covers(entry: AclBinding, resource_type: int, name: str) -> bool:
    if entry.resource_type != resource_type:
        return False
    if entry.pattern_type == PatternType.PREFIXED:
        return name.startswith(entry.resource_name)
    return entry.resource_name in (name, "*")


def speaks_of(entry: AclBinding, principal: str, host: str) -> bool:
    return entry.principal in (principal, "User:*") and (entry.host == "*" or same_address(entry.host, host))


def same_address(a: str, b: str) -> bool:
    return a == b or (":" in a and ":" in b and ipaddress.ip_address(a) == ipaddress.ip_address(b))


def model_decision(
    entries: Iterable[AclBinding],
    principal: str,
    host: str,
    operation: Operation,
    resource_type: int,
    name: str,
    *,
    supers: frozenset[str] = frozenset(),
    allow_everyone: bool = False,
) -> bool:
    """SE-31, SE-32, in their order."""
    if principal in supers:
        return True
    covering = [entry for entry in entries if covers(entry, resource_type, name)]
    if not covering:
        return allow_everyone
    mine = [entry for entry in covering if speaks_of(entry, principal, host)]
    if any(e.permission_type == Permission.DENY and e.operation in (Operation.ALL, operation) for e in mine):
        return False
    granting = {Operation.ALL, operation} | IMPLIED.get(operation, set())
    return any(e.permission_type == Permission.ALLOW and e.operation in granting for e in mine)
