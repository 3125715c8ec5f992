"""Access control entries and what they are made of, in Kafka's numbers. Source: KIP-11, KIP-290; Kafka's `AclOperation`,
`ResourceType`, `PatternType` and `AclPermissionType`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, TypeVar

from kraftlite.model.errors import ErrorCode


class ResourceType(IntEnum):
    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    """The operations on resources. A bit field of operations has bit `1 << number` for each."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


CLUSTER_NAME: Final = "kafka-cluster"
"""The only name of a resource of type CLUSTER."""
WILDCARD: Final = "*"
"""A literal name that stands for all resources of its type; a host that stands for all hosts."""
EVERYBODY: Final = "User:*"
"""The principal that stands for all principals."""

REFUSALS: Final = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
"""The code that tells a client what it may not use."""

REFUSAL_TEXTS: Final = {
    ResourceType.TOPIC: "Topic authorization failed.",
    ResourceType.GROUP: "Group authorization failed.",
    ResourceType.CLUSTER: "Cluster authorization failed.",
    ResourceType.TRANSACTIONAL_ID: "Transactional Id authorization failed.",
}
"""Kafka's words for it, where an answer has a place for them."""

OPERATIONS_ON: Final = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE, Operation.TWO_PHASE_COMMIT),
    ResourceType.DELEGATION_TOKEN: (Operation.DESCRIBE,),
    ResourceType.USER: (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
}
"""The operations that there are on a resource of each type, by their numbers (Kafka's `AclEntry.supportedOperations`)."""

Named = TypeVar("Named", bound=IntEnum)


def named(kind: type[Named], number: int) -> str:
    """Return the name of a number in Kafka's texts, as `TRANSACTIONAL_ID`; UNKNOWN for one that there is not."""
    return kind(number).name if number in kind._value2member_map_ else "UNKNOWN"


@dataclass(frozen=True, slots=True, kw_only=True)
class AclBinding:
    """An entry without its id: `principal` may, or may not, use `operation` on what the pattern covers, from `host`."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AclBindingFilter:
    """Some of all entries. None, and ANY, match everything. `pattern_type` MATCH: every pattern that covers the resource of this
    name (KIP-290)."""

    resource_type: int
    resource_name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission_type: int

    @property
    def is_unknown(self) -> bool:
        """Return whether a part of it is a number that means nothing."""
        return not (
            ResourceType.ANY <= self.resource_type <= ResourceType.USER
            and PatternType.ANY <= self.pattern_type <= PatternType.PREFIXED
            and Operation.ANY <= self.operation <= Operation.TWO_PHASE_COMMIT
            and Permission.ANY <= self.permission_type <= Permission.ALLOW
        )

    def matches(self, entry: AclBinding) -> bool:
        """Return whether `entry`, or a record with the same fields, is one of them."""
        return (
            self.resource_type in (ResourceType.ANY, entry.resource_type)
            and self._covers(entry)
            and (self.principal is None or self.principal == entry.principal)
            and (self.host is None or self.host == entry.host)
            and self.operation in (Operation.ANY, entry.operation)
            and self.permission_type in (Permission.ANY, entry.permission_type)
        )

    def _covers(self, entry: AclBinding) -> bool:
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, entry.pattern_type):
            return False
        name = self.resource_name
        if name is None:
            return True
        if self.pattern_type != PatternType.MATCH:
            return name == entry.resource_name
        if entry.pattern_type == PatternType.PREFIXED:
            return name.startswith(entry.resource_name)
        return entry.resource_name in (name, WILDCARD)
