"""Messages of the controller service about access control entries. Source: KIP-140; SE-35."""

from __future__ import annotations

from dataclasses import dataclass

from kraftlite.model.acls import AclBinding, AclBindingFilter
from kraftlite.model.errors import ErrorCode
from kraftlite.model.messages.requester import RequesterInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateAclsRequest:
    creations: tuple[AclBinding, ...]
    timeout_ms: int
    requester: RequesterInfo | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateAclResult:
    error: ErrorCode
    message: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateAclsResponse:
    """One result for each creation, in order."""

    results: tuple[CreateAclResult, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteAclsRequest:
    filters: tuple[AclBindingFilter, ...]
    timeout_ms: int
    requester: RequesterInfo | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteAclsResult:
    """The entries that one filter has removed."""

    error: ErrorCode
    message: str | None
    removed: tuple[AclBinding, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteAclsResponse:
    """One result for each filter, in order."""

    results: tuple[DeleteAclsResult, ...]
