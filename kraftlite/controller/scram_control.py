"""SCRAM credentials: stored and described; brokers ask for them at their listeners with SASL. Source: KIP-554, KIP-900; CM-59."""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

from kraftlite.controller.feature_control import FeatureControl
from kraftlite.controller.results import BoundedRecords, ControllerResult
from kraftlite.controller.turns import Steps
from kraftlite.metadata.features import supports_scram
from kraftlite.metadata.records import RemoveUserScramCredentialRecord, UserScramCredentialRecord
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.messages.security import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramDeletion,
    ScramResult,
    ScramUpsertion,
)
from kraftlite.timeline.collections import TimelineMap
from kraftlite.timeline.registry import TimelineRegistry

HASHES: Final = {1: "sha256", 2: "sha512"}
"""The hash of each mechanism, by its number."""
MIN_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 16384


class ScramControl:
    """The credentials by user and mechanism. Of a password only what RFC 5802 keeps reaches a record."""

    def __init__(self, registry: TimelineRegistry, features: FeatureControl) -> None:
        self._features = features
        self.credentials: TimelineMap[tuple[str, int], UserScramCredentialRecord] = TimelineMap(registry)

    def alter(self, request: AlterUserScramCredentialsRequest) -> Steps[ControllerResult[AlterUserScramCredentialsResponse]]:
        """Each user by itself: an error in one of its changes refuses all of them."""
        errors: dict[str, ApiError | None] = {}
        changes: tuple[ScramDeletion | ScramUpsertion, ...] = (*request.deletions, *request.upsertions)
        seen: set[tuple[str, int]] = set()
        for change in changes:
            yield
            key = (change.name, change.mechanism)
            error = _refusal(change)
            if not supports_scram(self._features.level_or_minimum()):
                error = ApiError(ErrorCode.UNSUPPORTED_VERSION, "The current metadata version does not support SCRAM")
            if error is None and isinstance(change, ScramDeletion) and key not in self.credentials:
                error = ApiError(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
            if key in seen:
                error = ApiError(ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request")
            seen.add(key)
            if errors.get(change.name) is None:
                errors[change.name] = error
        records = BoundedRecords()
        for change in changes:
            yield
            if errors[change.name] is None:
                records.append(_record(change))
        results = tuple(
            ScramResult(
                user=user,
                error=ErrorCode.NONE if error is None else error.code,
                message=None if error is None else error.message,
            )
            for user, error in errors.items()
        )
        return ControllerResult(records=list(records), response=AlterUserScramCredentialsResponse(results=results), atomic=True)

    def replay(self, record: UserScramCredentialRecord) -> None:
        self.credentials[record.name, record.mechanism] = record

    def replay_removed(self, record: RemoveUserScramCredentialRecord) -> None:
        if self.credentials.pop((record.name, record.mechanism)) is None:
            raise ValueError(f"no SCRAM credential of {record.name} for mechanism {record.mechanism}")


def _refusal(change: ScramDeletion | ScramUpsertion) -> ApiError | None:
    if not change.name:
        return ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if change.mechanism not in HASHES:
        return ApiError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(change, ScramUpsertion):
        if change.iterations < MIN_ITERATIONS:
            return ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
        if change.iterations > MAX_ITERATIONS:
            return ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    return None


def _record(change: ScramDeletion | ScramUpsertion) -> UserScramCredentialRecord | RemoveUserScramCredentialRecord:
    if isinstance(change, ScramDeletion):
        return RemoveUserScramCredentialRecord(name=change.name, mechanism=change.mechanism)
    algorithm = HASHES[change.mechanism]
    client_key = hmac.digest(change.salted_password, b"Client Key", algorithm)
    return UserScramCredentialRecord(
        name=change.name,
        mechanism=change.mechanism,
        salt=change.salt,
        stored_key=hashlib.new(algorithm, client_key).digest(),
        server_key=hmac.digest(change.salted_password, b"Server Key", algorithm),
        iterations=change.iterations,
    )
