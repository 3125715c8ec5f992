"""Access control entries: decided here, enforced by every node from its image. Source: KIP-801; SE-30, SE-35; Kafka's
AclControlManager."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import fields
from typing import Final
from uuid import UUID

from kraftlite.controller.results import BoundedRecords, ControllerResult
from kraftlite.controller.turns import Steps
from kraftlite.metadata.records import AccessControlEntryRecord, MetadataRecord, RemoveAccessControlEntryRecord
from kraftlite.model.acls import CLUSTER_NAME, AclBinding, AclBindingFilter, Operation, PatternType, Permission, ResourceType
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import random_uuid, uuid_to_str
from kraftlite.model.limits import MAX_RECORDS_PER_USER_OP
from kraftlite.model.messages.acls import (
    CreateAclResult,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DeleteAclsResult,
)
from kraftlite.timeline.collections import TimelineMap
from kraftlite.timeline.registry import TimelineRegistry

_FIELDS: Final = tuple(field.name for field in fields(AclBinding))
_RESOURCES: Final = frozenset(ResourceType) - {ResourceType.UNKNOWN, ResourceType.ANY}
_OPERATIONS: Final = frozenset(Operation) - {Operation.UNKNOWN, Operation.ANY}
_PATTERNS: Final = (PatternType.LITERAL, PatternType.PREFIXED)
_PERMISSIONS: Final = (Permission.DENY, Permission.ALLOW)


class AclControl:
    """The entries by id, and the id of each: an equal entry is there once.

    `enforced`: the nodes of this cluster have an authorizer. A controller without one does not run on a log that has entries:
    it would open to everybody what they protect.
    """

    def __init__(self, registry: TimelineRegistry, rng: random.Random, *, enforced: bool) -> None:
        self._rng = rng
        self._enforced = enforced
        self.entries: TimelineMap[UUID, AccessControlEntryRecord] = TimelineMap(registry)
        self._ids: TimelineMap[AclBinding, UUID] = TimelineMap(registry)

    def create(self, request: CreateAclsRequest) -> Steps[ControllerResult[CreateAclsResponse]]:
        """Each entry by itself; one that is there already is no error. Raises ApiError(POLICY_VIOLATION) for too many."""
        self._check_enforced()
        records = BoundedRecords()
        results = []
        new: set[AclBinding] = set()
        for binding in request.creations:
            yield
            problem = _problem(binding)
            if problem is None and binding not in self._ids and binding not in new:
                new.add(binding)
                records.append(_record(random_uuid(self._rng), binding))
            results.append(CreateAclResult(error=_code(problem), message=problem))
        return ControllerResult(records=list(records), response=CreateAclsResponse(results=tuple(results)), atomic=True)

    def delete(self, request: DeleteAclsRequest) -> Steps[ControllerResult[DeleteAclsResponse]]:
        """All entries that some filter matches; each filter tells those that it matches, also when another does too. Raises
        ApiError(INVALID_REQUEST) for more than one operation may remove, so that nobody takes a part for the whole."""
        self._check_enforced()
        removed: dict[UUID, MetadataRecord] = {}
        results = []
        for wanted in request.filters:
            found: list[AclBinding] = []
            problem = _filter_problem(wanted)
            for key, record in self.entries.items() if problem is None else ():
                yield
                if wanted.matches(binding := record.binding):
                    found.append(binding)
                    removed[key] = RemoveAccessControlEntryRecord(id=key)
                    if len(removed) > MAX_RECORDS_PER_USER_OP:
                        message = f"Cannot remove more than {MAX_RECORDS_PER_USER_OP} acls in a single delete operation."
                        raise ApiError(ErrorCode.INVALID_REQUEST, message)
            results.append(DeleteAclsResult(error=_code(problem), message=problem, removed=tuple(found)))
        response = DeleteAclsResponse(results=tuple(results))
        return ControllerResult(records=list(removed.values()), response=response, atomic=True)

    def _check_enforced(self) -> None:
        if not self._enforced:
            raise ApiError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")

    def replay(self, record: AccessControlEntryRecord) -> None:
        """Raises ValueError for an entry that this node would not enforce."""
        self._check_replay(record.id)
        self.entries[record.id] = record
        self._ids[record.binding] = record.id

    def replay_removed(self, record: RemoveAccessControlEntryRecord) -> None:
        """Raises ValueError for an entry that is not there."""
        self._check_replay(record.id)
        removed = self.entries.pop(record.id)
        if removed is None:
            raise ValueError(f"no access control entry {uuid_to_str(record.id)}")
        self._ids.pop(removed.binding)

    def _check_replay(self, key: UUID) -> None:
        if not self._enforced:
            raise ValueError(
                f"the metadata log has access control entries, such as {uuid_to_str(key)}, and this node has no authorizer to "
                "enforce them: set authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer, or remove the "
                "entries with nodes that have it"
            )


def _record(key: UUID, binding: AclBinding) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(id=key, **{name: getattr(binding, name) for name in _FIELDS})


def _code(problem: str | None) -> ErrorCode:
    return ErrorCode.NONE if problem is None else ErrorCode.INVALID_REQUEST


def _problem(binding: AclBinding) -> str | None:
    """Say why there cannot be such an entry, in Kafka's words. Names are taken as they are, with blanks: users may have them."""
    checks: tuple[tuple[Callable[[], bool], str], ...] = (
        (lambda: binding.resource_type in _RESOURCES, f"Invalid resourceType {binding.resource_type}"),
        (lambda: binding.pattern_type in _PATTERNS, f"Invalid patternType {binding.pattern_type}"),
        (lambda: binding.operation in _OPERATIONS, f"Invalid operation {binding.operation}"),
        (lambda: binding.permission_type in _PERMISSIONS, f"Invalid permissionType {binding.permission_type}"),
        (
            lambda: binding.resource_type != ResourceType.CLUSTER or binding.resource_name == CLUSTER_NAME,
            f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}",
        ),
        (lambda: bool(binding.resource_name), "Invalid empty resource name"),
        (
            lambda: ":" in binding.principal,
            f"Could not parse principal from `{binding.principal}` (no colon is present separating the principal type from the "
            "principal name)",
        ),
    )
    return next((message for holds, message in checks if not holds()), None)


def _filter_problem(wanted: AclBindingFilter) -> str | None:
    return "The filter contains unknown elements." if wanted.is_unknown else None
