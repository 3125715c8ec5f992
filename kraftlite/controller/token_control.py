"""Delegation tokens: issued, renewed, ended and swept. Source: Kafka's DelegationTokenControlManager; KIP-48, KIP-900; SE-16.

Whether the client may ask at all, its broker decides; the controller decides what only the token's record can say. The code of a
token is in no record: whoever has `delegation.token.secret.key` computes it from the id.
"""

from __future__ import annotations

import random
from typing import Final

from kraftlite.controller.feature_control import FeatureControl
from kraftlite.controller.results import ControllerResult
from kraftlite.metadata.features import supports_delegation_tokens
from kraftlite.metadata.records import DelegationTokenRecord, MetadataRecord, RemoveDelegationTokenRecord
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import random_uuid, uuid_to_str
from kraftlite.model.messages.tokens import (
    ChangedDelegationTokenResponse,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from kraftlite.model.tuning import TokenTimes
from kraftlite.security.tokens import has_expired, may_renew, token_hmac
from kraftlite.timeline.collections import TimelineMap
from kraftlite.timeline.registry import TimelineRegistry

LAST_MS: Final = 253_402_300_799_000
"""The end of the year 9999: no token lasts longer."""
MAX_SWEPT: Final = 1_000
"""Tokens that one sweep removes; more are left to the next, which follows at once."""


class TokenControl:
    """The tokens by id, and their ids by their codes where the secret is known."""

    def __init__(
        self, registry: TimelineRegistry, features: FeatureControl, times: TokenTimes, secret: str | None, rng: random.Random
    ) -> None:
        self._features = features
        self._times = times
        self._secret = secret
        self._rng = rng
        self.tokens: TimelineMap[str, DelegationTokenRecord] = TimelineMap(registry)
        self._ids: TimelineMap[bytes, str] = TimelineMap(registry)

    def create(self, request: CreateDelegationTokenRequest, wall_ms: int) -> ControllerResult[CreateDelegationTokenResponse]:
        """Raises ApiError."""
        secret = self._enabled()
        self._check_level()
        lifetime_ms = self._times.max_lifetime_ms
        if request.max_lifetime_ms > 0:
            lifetime_ms = min(lifetime_ms, request.max_lifetime_ms)
        max_ms = min(LAST_MS, wall_ms + lifetime_ms)
        token = DelegationTokenRecord(
            owner=request.owner,
            requester=request.requester,
            renewers=request.renewers,
            issue_timestamp_ms=wall_ms,
            max_timestamp_ms=max_ms,
            expiration_timestamp_ms=min(max_ms, wall_ms + self._times.expiry_ms),
            token_id=uuid_to_str(random_uuid(self._rng)),
        )
        response = CreateDelegationTokenResponse(
            issued_ms=wall_ms,
            expiry_ms=token.expiration_timestamp_ms,
            max_ms=max_ms,
            token_id=token.token_id,
            hmac=token_hmac(secret, token.token_id),
        )
        return ControllerResult(records=[token], response=response, atomic=True)

    def renew(self, request: RenewDelegationTokenRequest, wall_ms: int) -> ControllerResult[ChangedDelegationTokenResponse]:
        """Raises ApiError."""
        token = self._token(request.hmac)
        _check_lasts(token, wall_ms)
        _check_may_renew(token, request.requester)
        period_ms = self._times.expiry_ms
        if request.period_ms > 0:
            period_ms = min(period_ms, request.period_ms)
        return self._until(token, min(token.max_timestamp_ms, wall_ms + period_ms))

    def expire(self, request: ExpireDelegationTokenRequest, wall_ms: int) -> ControllerResult[ChangedDelegationTokenResponse]:
        """A negative period removes the token at once, also one that has expired and is not swept yet (KAFKA-17315). Raises
        ApiError."""
        token = self._token(request.hmac)
        _check_may_renew(token, request.requester)
        if request.period_ms < 0:
            response = ChangedDelegationTokenResponse(expiry_ms=wall_ms)
            return ControllerResult(
                records=[RemoveDelegationTokenRecord(token_id=token.token_id)], response=response, atomic=True
            )
        _check_lasts(token, wall_ms)
        return self._until(token, min(token.max_timestamp_ms, wall_ms + request.period_ms))

    def sweep(self, wall_ms: int) -> ControllerResult[bool]:
        """Remove what has expired. The response says that there is more."""
        records: list[MetadataRecord] = []
        for token_id in self.tokens:
            if has_expired(self.tokens[token_id], wall_ms):
                if len(records) == MAX_SWEPT:
                    return ControllerResult(records=records, response=True)
                records.append(RemoveDelegationTokenRecord(token_id=token_id))
        return ControllerResult(records=records, response=False)

    def replay(self, record: DelegationTokenRecord) -> None:
        self.tokens[record.token_id] = record
        if self._secret is not None:
            self._ids[token_hmac(self._secret, record.token_id)] = record.token_id

    def replay_removed(self, record: RemoveDelegationTokenRecord) -> None:
        self.tokens.pop(record.token_id)
        if self._secret is not None:
            self._ids.pop(token_hmac(self._secret, record.token_id))

    def _enabled(self) -> str:
        if self._secret is None:
            raise ApiError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, "Delegation Token feature is not enabled.")
        return self._secret

    def _check_level(self) -> None:
        if not supports_delegation_tokens(self._features.level_or_minimum()):
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "The current metadata version does not support delegation tokens")

    def _token(self, code: bytes) -> DelegationTokenRecord:
        self._enabled()
        self._check_level()
        token_id = self._ids.get(code)
        token = None if token_id is None else self.tokens.get(token_id)
        if token is None:
            raise ApiError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, "Delegation Token is not found on server.")
        return token

    @staticmethod
    def _until(token: DelegationTokenRecord, expiry_ms: int) -> ControllerResult[ChangedDelegationTokenResponse]:
        changed = DelegationTokenRecord(
            owner=token.owner,
            requester=token.requester,
            renewers=token.renewers,
            issue_timestamp_ms=token.issue_timestamp_ms,
            max_timestamp_ms=token.max_timestamp_ms,
            expiration_timestamp_ms=expiry_ms,
            token_id=token.token_id,
        )
        return ControllerResult(records=[changed], response=ChangedDelegationTokenResponse(expiry_ms=expiry_ms), atomic=True)


def _check_lasts(token: DelegationTokenRecord, wall_ms: int) -> None:
    if has_expired(token, wall_ms):
        raise ApiError(ErrorCode.DELEGATION_TOKEN_EXPIRED, "Delegation Token is expired.")


def _check_may_renew(token: DelegationTokenRecord, requester: str) -> None:
    if not may_renew(token, requester):
        raise ApiError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, "Specified Principal is not valid Owner/Renewer.")
