"""Delegation tokens, as a broker without authenticated clients answers for them. Source: Kafka's KafkaApis; CM-60."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kraftlite.model.errors import ErrorCode
from kraftlite.wire.apis.call import Call, cold

_NO_TIME: Final = 0


def _token_refused(**more: object) -> Mapping[str, object]:
    """Tokens are for clients that have authenticated, and no listener here authenticates."""
    return {"error_code": ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, "throttle_time": 0} | more


async def _create_token(call: Call, request: Any) -> Mapping[str, object]:
    return _token_refused(
        principal_type="User",
        principal_name="ANONYMOUS",
        token_requester_principal_type="User",
        token_requester_principal_name="ANONYMOUS",
        issue_timestamp=_NO_TIME,
        expiry_timestamp=_NO_TIME,
        max_timestamp=_NO_TIME,
        token_id="",
        hmac=b"",
    )


async def _changed_token(call: Call, request: Any) -> Mapping[str, object]:
    return _token_refused(expiry_timestamp=_NO_TIME)


async def _describe_tokens(call: Call, request: Any) -> Mapping[str, object]:
    return _token_refused(tokens=[])


CREATE_DELEGATION_TOKEN = cold(38, "CreateDelegationToken", versions=(1, 3), flexible_from=2, adapt=_create_token)
RENEW_DELEGATION_TOKEN = cold(39, "RenewDelegationToken", versions=(1, 2), flexible_from=2, adapt=_changed_token)
EXPIRE_DELEGATION_TOKEN = cold(40, "ExpireDelegationToken", versions=(1, 2), flexible_from=2, adapt=_changed_token)
DESCRIBE_DELEGATION_TOKEN = cold(41, "DescribeDelegationToken", versions=(1, 3), flexible_from=2, adapt=_describe_tokens)
